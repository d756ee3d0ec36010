"""What reward functions get beside the columns, by TRL's names: where training stands, and two ways to write something down.

def lively(completions, trainer_state, log_extra, log_metric, **_):
    lengths = [len(text) for text in completions]
    log_extra("characters", lengths)                  # a column of completions/*.parquet: log/characters
    log_metric("longest", max(lengths))               # a metric of the step: log/longest
    return [trainer_state.global_step / trainer_state.max_steps * length for length in lengths]
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

ARGUMENTS = ("trainer_state", "log_extra", "log_metric")


@dataclass(frozen=True)
class TrainerState:
    """Where training stands.

    Attributes:
        global_step: steps that are done: 0 in the rewards of the first step.
        max_steps: of the run; 0 outside of one.
    """

    global_step: int
    max_steps: int


@dataclass
class Logged:
    """What reward functions wrote down about N completions.

    Attributes:
        columns: N values each, by name; None where nothing was written.
        metrics: every value, by name.
    """

    columns: dict[str, list[Any]] = field(default_factory=dict)
    metrics: dict[str, list[float]] = field(default_factory=dict)

    def add(self, other: Logged, places: Sequence[int], count: int) -> None:
        """Take over what was written about the completions at these places of `count`."""
        for name, values in other.columns.items():
            column = self.columns.setdefault(name, [None] * count)
            for place, value in zip(places, values, strict=True):
                column[place] = value
        for name, numbers_ in other.metrics.items():
            self.metrics.setdefault(name, []).extend(numbers_)

    def arguments(self, state: TrainerState, count: int) -> Mapping[str, Any]:
        """What a function is called with, for `count` completions; what it writes down lands here."""
        return {"trainer_state": state, "log_extra": self._log_extra(count), "log_metric": self._log_metric}

    def _log_extra(self, count: int) -> Callable[[str, Sequence[Any]], None]:
        def log_extra(column: str, values: Sequence[Any]) -> None:
            values = list(values)
            if len(values) != count:
                raise ValueError(f"log_extra('{column}'): expected {count} values, one a completion; got {len(values)}")
            self.columns[column] = values

        return log_extra

    def _log_metric(self, name: str, value: float) -> None:
        if not isinstance(value, numbers.Real) or not math.isfinite(value):
            raise ValueError(f"log_metric('{name}'): expected a finite number, got {value!r:.60}")
        self.metrics.setdefault(name, []).append(float(value))
