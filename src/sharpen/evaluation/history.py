"""What the rules of a diagnosis look at: a run's metrics, completions and evaluations, and how its beginning compares with its end."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sharpen.evaluation.behaviours import Behaviours
from sharpen.evaluation.intervals import student
from sharpen.evaluation.summary import ProblemResult
from sharpen.rewards.gaming import GamingSettings

ENOUGH = 16
"""Steps from which the beginning of a run is compared with its end: four each at least."""
SURE = 3.0
"""Standard errors by which the two must differ; more where few steps tell the error, as Student's t does."""


@dataclass(frozen=True, kw_only=True)
class History:
    """What the rules look at.

    Attributes:
        metrics: of each step, as in `events.jsonl`; None where a number was not finite.
        behaviours: the completions in figures.
        held_out: results of held-out problems, by step; 0 before training.
        updates: planned for a step.
        value_warmup: steps in which no update of the policy is meant.
        same_reward_from: the first step from which the reward is the sum of the same parts, to the end.
        demonstrations: the completions were not sampled from any policy.
        learned_gaps: between a learned reward and the rule, of each step in whose reward it counts.
        gaming: when such a gap counts as open; the defaults where the recipe says nothing.
    """

    metrics: Mapping[int, Mapping[str, float | None]]
    behaviours: Behaviours
    held_out: Mapping[int, Sequence[ProblemResult]] = field(default_factory=dict)
    updates: int = 1
    value_warmup: int = 0
    same_reward_from: int = 1
    demonstrations: bool = False
    learned_gaps: Mapping[int, float] = field(default_factory=dict)
    gaming: GamingSettings = field(default_factory=GamingSettings)

    def series(self, name: str, *, since: int = 1) -> dict[int, float]:
        """A metric by step, where it is there and finite."""
        return {step: float(value) for step, one in self.metrics.items() if step >= since and (value := one.get(name)) is not None}

    def figures(self, measure: str, of: str = "all") -> dict[int, float]:
        """A behaviour in training by step."""
        return {step: value for step, (value, _) in self.behaviours.series(measure, of).items()}

    def late(self, measure: str, of: str = "all") -> float | None:
        """A behaviour in the last quarter of the steps: a sum over sums."""
        series, steps = self.behaviours.series(measure, of), quarter(self.behaviours.steps())
        known = [series[step] for step in steps if step in series]
        count = sum(things for _, things in known)
        return sum(value * things for value, things in known) / count if count else None


@dataclass(frozen=True, kw_only=True)
class Shift:
    """The first quarter of a series against its last.

    Attributes:
        first: mean of the first quarter.
        last: mean of the last quarter.
        error: standard error of their difference, from how much single steps vary.
        early: the steps of the first quarter.
        late: the steps of the last.
    """

    first: float
    last: float
    error: float
    early: Sequence[int]
    late: Sequence[int]

    @property
    def rises(self) -> bool:
        """Beyond doubt."""
        return self.last - self.first > self._doubt

    @property
    def falls(self) -> bool:
        """Beyond doubt."""
        return self.first - self.last > self._doubt

    @property
    def _doubt(self) -> float:
        freedom = min(len(self.early), len(self.late)) - 1
        return max(SURE * student(freedom) / student(10**6) * self.error, 1e-12)

    def told(self, name: str, form: str = ".3g") -> str:
        """`reward: 0.2 in steps 1 to 5, 0.5 in steps 16 to 20`."""
        return f"{name}: {self.first:{form}} in {span(self.early)}, {self.last:{form}} in {span(self.late)}"


def quarter(steps: Sequence[int]) -> list[int]:
    """The last quarter of the steps, one at least."""
    ordered = sorted(steps)
    return ordered[-max(1, len(ordered) // 4) :]


def shift(series: Mapping[int, float]) -> Shift | None:
    """The first quarter against the last; None where there are fewer than `ENOUGH` steps."""
    steps = sorted(series)
    if len(steps) < ENOUGH:
        return None
    early, late = steps[: len(steps) // 4], quarter(steps)
    a, b = [series[step] for step in early], [series[step] for step in late]
    error = math.sqrt(statistics.variance(a) / len(a) + statistics.variance(b) / len(b))
    return Shift(first=statistics.fmean(a), last=statistics.fmean(b), error=error, early=early, late=late)


def span(steps: Sequence[int]) -> str:
    """`steps 16 to 20`, or `step 3`."""
    return f"step {steps[0]}" if len(steps) == 1 else f"steps {steps[0]} to {steps[-1]}"
