"""What a completion, finished or begun, is worth: values in [0, 1] that a search is led by.

Any callable `value(problem, prompt_tokens, completions) -> list[float]` is one (`Plain`). The ground truth is asked by `Rollouts` with
`oracle=True` alone, whose name says so.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from sharpen.errors import RewardError
from sharpen.grading import Verdict, shared
from sharpen.grading.votes import spelled
from sharpen.records import Completion, FinishReason, Problem
from sharpen.rewards.splitters import Step as StepText
from sharpen.rewards.splitters import split
from sharpen.rewards.steps import step_columns
from sharpen.rollout.engine import Engine, Sampling
from sharpen.streams import derive

Tokens = tuple[int, ...]
Value = Callable[[Problem, Tokens, Sequence[Sequence[int]]], Sequence[float]]
Decode = Callable[[Sequence[int]], str]
UNKNOWN = 0.5
"""The value of a completion of which nothing can be judged yet."""

SHARED_LIMIT = 16
"""Limits of rollouts are multiples of this."""


class Asked(NamedTuple):
    """Completions of one problem to be valued; `turn` counts the times that its search has asked before."""

    problem: Problem
    prompt: Tokens
    completions: tuple[Tokens, ...]
    turn: int


class Judged(NamedTuple):
    """Values, one a completion; the tokens that they took; and what was finished for them: (which completion it continues, all tokens)."""

    values: tuple[float, ...]
    tokens: int = 0
    finished: tuple[tuple[int, Tokens], ...] = ()


class Judge(Protocol):
    """Values completions of several problems at once."""

    name: str
    most_tokens: int
    """The most tokens that valuing one completion can generate; 0 for what only reads."""

    def __call__(self, asked: Sequence[Asked]) -> list[Judged]:
        """One result each, in order."""
        ...


class Reader:
    """Reads completions: their answers as votes, by their spelling (a search sees them one after another), and whether they are right.

    Args:
        decode: token ids → text.
        stop_ids: a completion that does not end in one has no answer.
        grader: judges a text; the shared pool of grading workers does when None.
    """

    def __init__(self, decode: Decode, stop_ids: Sequence[int], grader: Callable[[Problem, str], Verdict] | None = None) -> None:
        self.decode, self.stop_ids, self._grader = decode, frozenset(stop_ids), grader

    def finished(self, tokens: Sequence[int]) -> bool:
        """Whether a completion has ended by itself."""
        return len(tokens) > 0 and tokens[-1] in self.stop_ids

    def votes(self, items: Sequence[tuple[Problem, Tokens]]) -> list[str | None]:
        """The answer of each completion as it is spelled (`sharpen.grading.votes.spelled`); None without one. Not whether it is right."""
        return [answer for answer, _ in self.graded(items)]

    def graded(self, items: Sequence[tuple[Problem, Tokens]]) -> list[tuple[str | None, bool]]:
        """The answer of each completion and whether it is right by the ground truth."""
        ended = [place for place, (_, tokens) in enumerate(items) if self.finished(tokens)]
        texts = [(items[place][0], self.decode(items[place][1][:-1])) for place in ended]
        verdicts = shared().grade_all(texts) if self._grader is None else [self._grader(*one) for one in texts]
        out: list[tuple[str | None, bool]] = [(None, False)] * len(items)
        for place, verdict in zip(ended, verdicts, strict=True):
            answer = None if verdict.extracted is None else spelled(verdict.extracted, items[place][0].kind)
            out[place] = (answer, verdict.outcome == "right" and answer is not None)
        return out


class Plain:
    """A judge from a callable, called once a problem.

    Args:
        value: see the module; one number in [0, 1] a completion.
        name: for results and messages.
    """

    most_tokens = 0

    def __init__(self, value: Value, name: str) -> None:
        self.value, self.name = value, name

    def __call__(self, asked: Sequence[Asked]) -> list[Judged]:
        """See `Judge`.

        Raises:
            RewardError: another number of values, or one that is no number in [0, 1].
        """
        out = []
        for one in asked:
            values = list(self.value(one.problem, one.prompt, one.completions)) if one.completions else []
            if len(values) != len(one.completions):
                raise RewardError(
                    f"value '{self.name}', problem {one.problem.id}: expected {len(one.completions)} values, got {len(values)}.",
                    fix="Return one number a completion.",
                )
            for value in values:
                if not isinstance(value, int | float) or not 0 <= value <= 1:
                    raise RewardError(
                        f"value '{self.name}', problem {one.problem.id}: expected numbers in [0, 1], got {value!r}.",
                        fix="Give probabilities: of a logit, its sigmoid.",
                    )
            # The last bits of a model's values depend on what is batched together, and must not decide.
            out.append(Judged(tuple(round(float(value), 6) for value in values)))
        return out


def of_steps(function: Callable[..., Any], decode: Decode, reader: Reader) -> Value:
    """A value from a step function (`sharpen.rewards.steps`): the lowest of the judged steps, `UNKNOWN` where none is judged.

    The function may ask for `prompts` and `problem_id`, and never for the ground truth.
    """

    def value(problem: Problem, prompt: Tokens, completions: Sequence[Sequence[int]]) -> list[float]:
        known: list[float] = []
        texts = [[step.text for step in steps_of(tokens, decode, reader)] for tokens in completions]
        columns = {"prompts": [problem.prompt] * len(texts), "problem_id": [problem.id] * len(texts)}
        try:
            rows = function(texts, **step_columns(function, columns, range(len(texts))))
        except TypeError as error:
            raise RewardError(
                f"step function '{getattr(function, '__name__', function)}': {error}.",
                fix="Ask for prompts and problem_id alone: a search does not know the ground truth.",
            ) from error
        for row in rows:
            judged = [float(value) for value in row if value is not None and math.isfinite(value)]
            known.append(min(judged, default=UNKNOWN))
        return known

    return value


class RewardModelLike(Protocol):
    """What a search asks of a reward model, as `sharpen.models.reward_model` has it."""

    def score(self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]) -> Sequence[float]:
        """One logit a completion."""
        ...

    def score_steps(
        self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], ends: Sequence[Sequence[int]]
    ) -> Sequence[Sequence[float]]:
        """The probability that each step is right, read at the place of its last token."""
        ...


class OfModel:
    """A judge from a reward model, which reads all that is asked for in one call.

    An outcome model's value is the sigmoid of its logit at the completion's end, begun or finished; a process model's is the lowest of its
    steps' (Lightman et al. 2023, arXiv:2305.20050, have their product as well; the lowest does not fall with the number of steps).

    Args:
        model: the reward model.
        kind: `outcome` or `process`.
        decode: token ids → text, to find the steps.
        reader: knows what is finished.
        name: for results.
    """

    most_tokens = 0

    def __init__(self, model: RewardModelLike, kind: str, decode: Decode, reader: Reader, *, name: str) -> None:
        self.model, self.kind, self.decode, self.reader, self.name = model, kind, decode, reader, name

    def __call__(self, asked: Sequence[Asked]) -> list[Judged]:
        """See `Judge`."""
        prompts = [one.prompt for one in asked for _ in one.completions]
        completions = [tokens for one in asked for tokens in one.completions]
        if self.kind == "process":
            ends = [[step.end for step in steps_of(tokens, self.decode, self.reader)] for tokens in completions]
            values = [min(row, default=UNKNOWN) for row in self.model.score_steps(prompts, completions, ends)]
        else:
            values = [sigmoid(logit) for logit in self.model.score(prompts, completions)]
        rest = iter(values)
        return [Judged(tuple(round(float(next(rest)), 6) for _ in one.completions)) for one in asked]


def steps_of(tokens: Sequence[int], decode: Decode, reader: Reader) -> list[StepText]:
    """A completion's steps, finished or begun; none of an empty one."""
    reason: FinishReason = "stop" if reader.finished(tokens) else "length"
    one = Completion(tokens=tuple(tokens), sampling_logprobs=(), text="", finish_reason=reason)
    return split(one, decode) if tokens else []


def sigmoid(logit: float) -> float:
    """1 / (1 + exp(−x)), without overflow."""
    return 1 / (1 + math.exp(-logit)) if logit >= 0 else math.exp(logit) / (1 + math.exp(logit))


class Rollouts:
    """Values by completing to the end: the share of completions whose answer is the problem's most common one so far.

    The answers of all that was completed for a problem, in the search at hand, are counted; among equally common ones the share is the
    mean. What is finished is worth 1 or 0 by itself. No ground truth is used; with `oracle`, it alone is: the share of right answers.

    Args:
        engine: samples to the end.
        reader: reads answers.
        rollouts: completions of each that is not finished.
        sampling: limits of whole completions, and temperature.
        seed: of the completions.
        oracle: judge by the ground truth, for a ceiling.
        context: positions that the model has, where it has a limit.
    """

    def __init__(
        self,
        engine: Engine,
        reader: Reader,
        *,
        rollouts: int,
        sampling: Sampling,
        seed: int,
        oracle: bool = False,
        context: int | None = None,
    ) -> None:
        self.engine, self.reader, self.rollouts, self.sampling = engine, reader, rollouts, sampling
        self.seed, self.oracle, self.context = seed, oracle, context
        self.name = "oracle" if oracle else "rollouts"
        self.most_tokens = rollouts * (sampling.max_new_tokens + SHARED_LIMIT)
        self._votes: dict[str, Counter[str]] = {}

    def __call__(self, asked: Sequence[Asked]) -> list[Judged]:
        """See `Judge`."""
        written, spent = self._complete(asked)
        every = [(one.problem, tokens) for one, rows in zip(asked, written, strict=True) for row in rows for tokens in row]
        read = iter(self.reader.graded(every) if self.oracle else [(answer, False) for answer in self.reader.votes(every)])
        out = []
        for one, rows, tokens in zip(asked, written, spent, strict=True):
            answers = [[next(read) for _ in row] for row in rows]
            values = self._oracle(answers) if self.oracle else self._agreement(one.problem.id, [[a for a, _ in row] for row in answers])
            ended = [
                (place, whole)
                for place, row in enumerate(rows)
                for whole in row
                if len(whole) > len(one.completions[place]) and self.reader.finished(whole)
            ]
            out.append(Judged(tuple(values), tokens, tuple(ended)))
        return out

    def _complete(self, asked: Sequence[Asked]) -> tuple[list[list[list[Tokens]]], list[int]]:
        """The whole completions of each that was asked for, itself where it is finished, else its rollouts; and each problem's tokens."""
        out: list[list[list[Tokens]]] = [[[tokens] for tokens in one.completions] for one in asked]
        spent = [0] * len(asked)
        groups: dict[int, list[tuple[int, int]]] = {}
        for a, one in enumerate(asked):
            for place, tokens in enumerate(one.completions):
                if not self.reader.finished(tokens):
                    groups.setdefault(self._limit(one.prompt, tokens), []).append((a, place))
        for limit, places in sorted(groups.items()):
            contexts = [(*asked[a].prompt, *asked[a].completions[place]) for a, place in places]
            seeds = [
                [derive(self.seed, "search_rollout", asked[a].problem.id, asked[a].turn, place, i) for i in range(self.rollouts)]
                for a, place in places
            ]
            sampling = Sampling(max_new_tokens=limit, temperature=self.sampling.temperature, top_p=self.sampling.top_p)
            for (a, place), group in zip(places, self.engine.sample(contexts, seeds, sampling), strict=True):
                before = asked[a].completions[place]
                out[a][place] = [(*before, *one.tokens)[: self.sampling.max_new_tokens] for one in group]
                spent[a] += sum(len(one.tokens) for one in group)
        return out, spent

    def _limit(self, prompt: Tokens, begun: Tokens) -> int:
        """New tokens of a completion's rollouts, rounded up so that many share a batch: it depends on no other completion.

        What goes on past the completion's own limit is paid for, and has no answer.
        """
        left = -(-(self.sampling.max_new_tokens - len(begun)) // SHARED_LIMIT) * SHARED_LIMIT
        return max(1, left if self.context is None else min(left, self.context - len(prompt) - len(begun)))

    def _oracle(self, answers: list[list[tuple[str | None, bool]]]) -> list[float]:
        return [sum(right for _, right in row) / len(row) for row in answers]

    def _agreement(self, name: str, answers: list[list[str | None]]) -> list[float]:
        votes = self._votes.setdefault(name, Counter())
        votes.update(answer for row in answers for answer in row if answer is not None)
        top = max(votes.values(), default=0)
        leaders = {answer for answer, count in votes.items() if count == top}
        return [sum(answer in leaders for answer in row) / len(row) / len(leaders) if leaders else 0.0 for row in answers]
