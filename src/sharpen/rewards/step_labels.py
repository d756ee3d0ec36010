"""Labels of steps: by completing the answer from each step on (Monte Carlo), by a rule, or by people's marks.

Monte Carlo is Math-Shepherd's (arXiv:2312.08935 §3.2): a policy, the completer, continues the prompt and the steps so far n times. A step's
soft label is the share of those continuations that reach the right answer, its hard label is 1 when any of them does. The last step
needs no continuation: its label is the completion's own verdict.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from sharpen.errors import RewardError
from sharpen.records import Completion, Problem
from sharpen.rewards.splitters import Decode, Step
from sharpen.rewards.steps import equations
from sharpen.rollout.engine import Sampled, Sampling
from sharpen.rollout.torch_engine import TorchEngine
from sharpen.streams import derive

AfterError = Literal["judge", "wrong"]
Estimate = Literal["hard", "soft"]
Judge = Callable[[Sequence[tuple[Problem, str]]], Sequence[float | None]]
"""(problem, text) pairs → 1 right, 0 wrong, None where it cannot be told."""

STREAM = "step_labels"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A completion whose steps are to be labelled.

    Attributes:
        key: its own among the completions of its problem; a part of the seeds.
        problem: the problem.
        prompt_tokens: what it continues.
        completion: it, with at least one token.
        steps: as a splitter cut it.
        verdict: of its answer: 1 right, 0 wrong, None where that cannot be told.
    """

    key: str
    problem: Problem
    prompt_tokens: tuple[int, ...]
    completion: Completion
    steps: tuple[Step, ...]
    verdict: float | None


@dataclass(frozen=True, slots=True)
class StepLabel:
    """What is known of a step.

    Attributes:
        value: 1 right, 0 wrong, a share between them when soft; None: no label.
        outcomes: of the continuations from it, in the order of their draws: 1 right, 0 wrong, None where it could not be told. Empty for
            labels of another kind.
        stopped: sampling stopped at the first right one, so that the share of right ones estimates nothing.
    """

    value: float | None
    outcomes: tuple[float | None, ...] = ()
    stopped: bool = False

    @property
    def rollouts(self) -> int:
        """Continuations that were judged (n)."""
        return sum(outcome is not None for outcome in self.outcomes)

    @property
    def right(self) -> int:
        """How many of those are right."""
        return sum(outcome == 1.0 for outcome in self.outcomes)

    @property
    def hard(self) -> float | None:
        """1 when any continuation is right; the value, for labels of another kind."""
        return self.value if not self.outcomes else float(self.right > 0) if self.rollouts else None

    @property
    def soft(self) -> float | None:
        """The share of continuations that are right; None where sampling stopped early."""
        if self.stopped:
            return None
        return self.value if not self.outcomes else self.right / self.rollouts if self.rollouts else None

    def first(self, n: int, estimate: Estimate) -> StepLabel:
        """The label that the first n continuations give; one without continuations is as it is."""
        if not self.outcomes:
            return self
        fewer = replace(self, outcomes=self.outcomes[:n])
        return replace(fewer, value=fewer.hard if estimate == "hard" else fewer.soft)


@dataclass(frozen=True, kw_only=True)
class MonteCarlo:
    """How steps are completed.

    Attributes:
        rollouts: n, continuations of each step.
        max_new_tokens: limit of a continuation.
        temperature: of sampling, above 0.
        estimate: which of the two labels is a step's value.
        require_stop: a continuation that the limit cut is wrong.
        stop_early: continuations of a step are sampled `round_size` at a time, and no more once one is right. For hard labels only.
        round_size: with `stop_early`.
        seed: of the draws.

    Raises:
        RewardError: numbers out of range, or soft labels with an early stop.
    """

    rollouts: int = 8
    max_new_tokens: int = 256
    temperature: float = 1.0
    estimate: Estimate = "hard"
    require_stop: bool = True
    stop_early: bool = False
    round_size: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        if self.rollouts < 1 or self.round_size < 1 or self.max_new_tokens < 1 or self.temperature <= 0:
            raise RewardError(
                "Monte Carlo labels: expected rollouts, round_size and max_new_tokens of at least 1 and a temperature above 0, got "
                f"{self.rollouts}, {self.round_size}, {self.max_new_tokens} and {self.temperature}.",
                fix="At temperature 0 all continuations of a step would be the same one.",
            )
        if self.stop_early and self.estimate == "soft":
            raise RewardError(
                "Monte Carlo labels: sampling that stops at the first right continuation gives no share for soft labels.",
                fix='Take estimate = "hard", or do not stop early.',
            )


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What labelling took.

    Attributes:
        steps: that were completed.
        rollouts: continuations.
        read: tokens of prompts and steps that the model read before it wrote.
        unshared: how many those would be, were every step's beginning read by itself.
        written: tokens of continuations.
        seconds: wall clock.
    """

    steps: int = 0
    rollouts: int = 0
    read: int = 0
    unshared: int = 0
    written: int = 0
    seconds: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(**{name: getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__})


@dataclass
class _Open:
    """A step that is being completed: where it is, and what its continuations came to so far."""

    place: int
    step: int
    prefix: tuple[int, ...]
    body: tuple[int, ...]
    outcomes: list[float | None] = field(default_factory=list)

    @property
    def reached(self) -> bool:
        return 1.0 in self.outcomes


def by_completion(
    answered: Sequence[Answered],
    engine: TorchEngine,
    decode: Decode,
    judge: Judge,
    settings: MonteCarlo,
    on_progress: Callable[[int], None] | None = None,
) -> tuple[list[list[StepLabel]], Cost]:
    """Monte Carlo labels of the steps of completions.

    Each draw is from the stream (seed, problem, completion, step, rollout): what it is batched with, and n, change no draw.

    Args:
        answered: the completions.
        engine: of the completer; with `share_prefixes` a completion's steps are read once for all of them.
        decode: token ids → text.
        judge: of completed texts.
        settings: n, limits, which label.
        on_progress: called with the number of continuations that are done or need not be.

    Returns:
        A label for each step of each completion, and what they took.
    """
    began, read_before = time.monotonic(), engine.tokens_read
    tell = on_progress or (lambda count: None)
    opened = [
        _Open(place, k, (*one.prompt_tokens, *one.completion.tokens[: step.end + 1]), one.completion.tokens[: step.end + 1])
        for place, one in enumerate(answered)
        for k, step in enumerate(one.steps[:-1])
    ]
    sampling = Sampling(max_new_tokens=settings.max_new_tokens, temperature=settings.temperature)
    size = settings.round_size if settings.stop_early else settings.rollouts
    cost = Cost(steps=len(opened), unshared=sum(len(one.prefix) for one in opened))
    waiting = opened
    for first in range(0, settings.rollouts, size):
        indices = range(first, min(first + size, settings.rollouts))
        seeds = [[_seed(settings.seed, answered[one.place], one.step, i) for i in indices] for one in waiting]
        sampled = engine.sample([one.prefix for one in waiting], seeds, sampling, tell) if waiting else []
        _judge(waiting, sampled, answered, decode, judge, settings.require_stop)
        cost += Cost(rollouts=sum(map(len, sampled)), written=sum(len(one.tokens) for group in sampled for one in group))
        if settings.stop_early:
            waiting, done = [one for one in waiting if not one.reached], [one for one in waiting if one.reached]
            tell(len(done) * (settings.rollouts - indices.stop))
    labels: list[list[StepLabel]] = [[StepLabel(None)] * (len(one.steps) - 1) + [StepLabel(one.verdict)] for one in answered]
    for one in opened:
        label = StepLabel(None, tuple(one.outcomes), stopped=settings.stop_early)
        labels[one.place][one.step] = label.first(settings.rollouts, settings.estimate)
    return labels, replace(cost, read=engine.tokens_read - read_before, seconds=time.monotonic() - began)


def _seed(seed: int, one: Answered, step: int, rollout: int) -> int:
    return derive(seed, STREAM, one.problem.id, one.key, step, rollout)


def _judge(
    opened: Sequence[_Open],
    sampled: Sequence[Sequence[Sampled]],
    answered: Sequence[Answered],
    decode: Decode,
    judge: Judge,
    require_stop: bool,
) -> None:
    """Judge the continuations, each with the steps that it continues; those that the limit cut are not even read with `require_stop`."""
    flat = [(one, rollout) for one, group in zip(opened, sampled, strict=True) for rollout in group]
    counted = [(one, rollout) for one, rollout in flat if rollout.finish_reason == "stop" or not require_stop]
    texts = [
        (answered[one.place].problem, decode((*one.body, *rollout.tokens[: len(rollout.tokens) - (rollout.finish_reason == "stop")])))
        for one, rollout in counted
    ]
    verdicts = iter(judge(texts) if texts else [])
    for one, rollout in flat:
        one.outcomes.append(next(verdicts) if rollout.finish_reason == "stop" or not require_stop else 0.0)


def by_rule(
    texts: Sequence[str],
    verdict: float | None = None,
    *,
    after_error: AfterError = "judge",
    rule: Callable[[Sequence[Sequence[str]]], Sequence[Sequence[float | None]]] = equations,
) -> list[StepLabel]:
    """Labels of steps by whether their equations hold; a step without any has none.

    Args:
        texts: of one completion's steps.
        verdict: of its answer, which labels a last step without an equation.
        after_error: `judge`: each step by itself; `wrong`: every step after the first wrong one is wrong, whatever it says.
        rule: a step function.
    """
    values = list(rule([texts])[0])
    if values and values[-1] is None:
        values[-1] = verdict
    return [StepLabel(value) for value in after_first_error(values, after_error)]


def by_first_error(count: int, mistake: int | None, after_error: AfterError) -> list[StepLabel]:
    """Labels of `count` steps of which `mistake` (from 0; None: none) is the first wrong one.

    Those after it have not been judged by whoever marked it: with `judge` they have no label, with `wrong` they are wrong.
    """
    values: list[float | None] = [1.0] * count
    if mistake is not None:
        values = [*[1.0] * mistake, 0.0, *[None] * (count - mistake - 1)]
    return [StepLabel(value) for value in after_first_error(values, after_error)]


def after_first_error(values: Sequence[float | None], after_error: AfterError) -> list[float | None]:
    """The values, those after the first 0 made 0 with `wrong`."""
    first = next((k for k, value in enumerate(values) if value == 0.0), None)
    if after_error == "judge" or first is None:
        return list(values)
    return [*values[:first], *[0.0] * (len(values) - first)]
