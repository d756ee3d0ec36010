"""Scoring: groups of completions → named parts → one weighted reward a completion.

Axes: P problems, G completions a group, N = P · G.
"""

from __future__ import annotations

import logging
import math
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeGuard, TypeVar

import torch

from sharpen.errors import RewardError
from sharpen.grading import shared
from sharpen.records import Completion, Group, Problem, RewardFailure, Scores
from sharpen.rewards.beside import Logged, TrainerState
from sharpen.rewards.call import Columns, Value, call
from sharpen.rewards.functions import RewardFunction
from sharpen.rewards.gaming import RULE
from sharpen.rewards.learned import Learned, ModelMemory
from sharpen.rewards.settings import RewardFunctionSettings, RewardSettings, load_function
from sharpen.rewards.splitters import split
from sharpen.rewards.steps import judge, step_columns

_log = logging.getLogger(__name__)

T = TypeVar("T")


class VerdictLike(Protocol):
    """A grader's judgement of one completion."""

    @property
    def outcome(self) -> str:
        """`right`, `wrong` or `unscorable`."""

    @property
    def reason(self) -> str | None:
        """Why."""

    @property
    def extracted(self) -> str | None:
        """The answer that was extracted, None when there is none."""


@dataclass(frozen=True)
class _NoVerdict:
    """What stands for a verdict when the grader itself failed."""

    reason: str
    outcome: str = "unscorable"
    extracted: None = None


Grader = Callable[[Problem, str], VerdictLike]
Decode = Callable[[Sequence[int]], str]


class Scorer:
    """Scores groups by a recipe's reward functions.

    The reward is Σ weight · part over the parts that count at the step and are given. A part is not given (NaN in `parts`, and a
    `RewardFailure`) where its function raises or returns None, NaN or an infinity. Where no part that counts is given, the completion is
    unscorable: its total is NaN, never 0.

    Args:
        settings: the recipe's section.
        grade: judges a completion's text for a problem, called in this process, once a completion; the shared pool of grading workers
            does when None.
        base: the folder that the paths of user functions are relative to.
        decode: token ids → text; given, the steps of completions are judged too.
        steps: of the training, told to functions that ask for `trainer_state`.

    Raises:
        RewardError: for a function that cannot be loaded.
    """

    def __init__(
        self,
        settings: RewardSettings,
        *,
        grade: Grader | None = None,
        base: Path | None = None,
        decode: Decode | None = None,
        steps: int = 0,
    ) -> None:
        self._grade, self._sandbox = grade, settings.sandbox
        self._fail_fast = settings.fail_fast
        self._base, self._decode = base, decode
        self._steps = (settings.steps.function, settings.steps.load(base)) if decode is not None else None
        self._ends = settings.steps.ends
        self._training_steps = steps
        self._by_rule_from = math.inf
        self._settings = settings
        self._functions: dict[str, tuple[RewardFunctionSettings, RewardFunction]] = {
            name: (entry, load_function(entry, base)) for name, entry in settings.parts.items()
        }

    def meet(self, tokenizer: Any, notice: Callable[[str], None], *, decode: Decode | None = None) -> None:
        """Learn of the policy, once it has been loaded.

        Args:
            tokenizer: whose tokens the completions will be; reward models compare it with their own.
            notice: told where a reward model has another.
            decode: token ids → text; given, the steps of completions are judged from now on.

        Raises:
            RewardError: for a step function that cannot be loaded.
        """
        if decode is not None and self._steps is None:
            self._decode, self._steps = decode, (self._settings.steps.function, self._settings.steps.load(self._base))
        for model in self.models.values():
            model.meet(tokenizer, notice)

    @property
    def models(self) -> dict[str, Learned]:
        """The functions that are reward models, by the name of their part; that of the steps is `steps`."""
        every: dict[str, Any] = {name: function for name, (_, function) in self._functions.items()}
        if self._steps is not None:
            every["steps"] = self._steps[1]
        return {name: function for name, function in every.items() if isinstance(function, Learned)}

    def fall_back(self, step: int) -> None:
        """From this step on the reward is the part `accuracy` alone; the others are recorded."""
        self._by_rule_from = step

    def memory(self, device: str) -> ModelMemory:
        """What reward models need on this device; those that come and go do so one at a time."""
        each = [model.memory(device) for model in self.models.values()]
        return ModelMemory(
            held=sum(one.held for one in each),
            loaded=sum(one.loaded for one in each),
            scoring=max((one.scoring for one in each), default=0),
        )

    def close(self) -> None:
        """Give the memory of reward models back."""
        for model in self.models.values():
            model.close()

    def score(self, groups: Sequence[Group], *, step: int = 1) -> Scores:
        """The rewards of P groups of G completions.

        Args:
            groups: of one size.
            step: of training, counted from 1, whose rewards they are; what is scored before training is scored as in its first step.

        Raises:
            RewardError: for a function that does not return one number (or None) a completion; and with `fail_fast`, for any part that is
                not given.
            ValueError: for groups of different sizes.
        """
        shape = _shape(groups)
        rows = [(group.problem, index, completion) for group in groups for index, completion in enumerate(group.completions)]
        grades = self._graded([(problem, completion.text) for problem, _, completion in rows])
        columns = _columns(groups, grades)
        parts: dict[str, list[float]] = {}
        failures: list[RewardFailure] = []
        state, logged = TrainerState(global_step=step - 1, max_steps=self._training_steps), Logged()
        for name, (entry, function) in self._functions.items():
            values, reasons = call(name, function, columns, entry.parameters, state=state, logged=logged) if rows else ([], {})
            if isinstance(function, Learned):
                function.release()
            parts[name] = [value if _is_given(value) else math.nan for value in values]
            for place, value in enumerate(values):
                if not _is_given(value):
                    reason = reasons.get(place) or _why(value, grades[place])
                    failures.append(RewardFailure(function=name, problem_id=rows[place][0].id, index=rows[place][1], reason=reason))
        self._report(failures)
        answers = [grade.extracted for grade in grades]
        weights = self._settings.weights(step) if step < self._by_rule_from else {RULE: 1.0}
        totals = [_total(weights, parts, place) for place in range(len(rows))]
        return Scores(
            total=_tensor(totals, shape),
            parts={name: _tensor(values, shape) for name, values in parts.items()},
            correct=torch.tensor([grade.outcome == "right" for grade in grades], dtype=torch.bool).reshape(shape),
            answers=_grouped(answers, shape),
            failures=tuple(failures),
            steps=self._judged([completion for _, _, completion in rows], totals, columns, shape[1]),
            logged={name: _grouped(values, shape) for name, values in logged.columns.items()},
            metrics={name: tuple(values) for name, values in logged.metrics.items()},
        )

    def _judged(
        self, completions: Sequence[Completion], totals: Sequence[float], columns: Columns, size: int
    ) -> tuple[tuple[tuple[tuple[int, float], ...], ...], ...] | None:
        """The step rewards of groups of `size` completions; an empty completion has none."""
        if self._decode is None or self._steps is None or not completions:
            return None
        (name, function), filled = self._steps, [place for place, completion in enumerate(completions) if completion.tokens]
        steps = [split(completions[place], self._decode, self._ends) for place in filled]
        ends: list[list[int]] = [[] for _ in completions]
        for place, one in zip(filled, steps, strict=True):
            ends[place] = [step.end for step in one]
        taken = step_columns(function, columns | {"step_ends": ends}, filled)
        found = judge(name, function, steps, [totals[place] for place in filled], taken)
        if isinstance(function, Learned):
            function.release()
        by_place = dict(zip(filled, found, strict=True))
        every = [by_place.get(place, ()) for place in range(len(completions))]
        return tuple(tuple(every[start : start + size]) for start in range(0, len(every), size))

    def _graded(self, items: Sequence[tuple[Problem, str]]) -> Sequence[VerdictLike]:
        if self._grade is None:
            return shared().grade_all(items, sandbox=self._sandbox)
        return [_judged(self._grade, problem, text) for problem, text in items]

    def _report(self, failures: list[RewardFailure]) -> None:
        """Stop at the first failure with `fail_fast`, else one warning."""
        if not failures:
            return
        first = failures[0]
        place = f"problem '{first.problem_id}', completion {first.index}"
        what = f"Reward function '{first.function}' gave no reward for {place}: {first.reason}"
        if self._fail_fast:
            raise RewardError(what, fix="Mend the function or the problem; or set fail_fast = false to leave such completions out.")
        _log.warning("%d rewards could not be given. The first: %s", len(failures), what)


def _judged(grade: Grader, problem: Problem, text: str) -> VerdictLike:
    try:
        return grade(problem, text)
    except Exception:
        return _NoVerdict(reason=f"the grader failed\n{traceback.format_exc()}")


def _total(weights: Mapping[str, float], parts: Mapping[str, Sequence[float]], place: int) -> float:
    """The weighted sum of the parts that are given; NaN when none is."""
    given = [weight * parts[name][place] for name, weight in weights.items() if not math.isnan(parts[name][place])]
    return sum(given) if given else math.nan


def _is_given(value: Value) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)


def _why(value: Value, grade: VerdictLike) -> str:
    """Why a value is none: its own fault, or the grader's."""
    if value is not None:
        return f"it returned {value}, which is not a finite number"
    return f"the answer cannot be judged: {grade.reason}" if grade.outcome == "unscorable" else "it returned None"


def _shape(groups: Sequence[Group]) -> tuple[int, int]:
    sizes = sorted({len(group.completions) for group in groups})
    if len(sizes) > 1:
        raise ValueError(f"Groups of one batch must be equally large; got sizes {sizes}.")
    return len(groups), sizes[0] if sizes else 0


def _grouped(values: Sequence[T], shape: tuple[int, int]) -> tuple[tuple[T, ...], ...]:
    return tuple(tuple(values[start * shape[1] : (start + 1) * shape[1]]) for start in range(shape[0]))


def _tensor(values: list[float], shape: tuple[int, int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64).reshape(shape)


def _columns(groups: Sequence[Group], grades: Sequence[VerdictLike]) -> Columns:
    """What reward functions may ask for, N values each; a key of `meta` that a problem lacks is None there."""
    problems = [group.problem for group in groups for _ in group.completions]
    completions = [completion for group in groups for completion in group.completions]
    known = dict.fromkeys(key for group in groups for key in group.problem.meta)
    columns: Columns = {key: [problem.meta.get(key) for problem in problems] for key in known}
    return columns | {
        "prompts": [problem.prompt for problem in problems],
        "completions": [completion.text for completion in completions],
        "prompt_ids": [list(group.prompt_tokens) for group in groups for _ in group.completions],
        "completion_ids": [list(completion.tokens) for completion in completions],
        "finish_reason": [completion.finish_reason for completion in completions],
        "answer": [problem.answer for problem in problems],
        "problem_id": [problem.id for problem in problems],
        "verdict": [grade.outcome for grade in grades],
    }
