"""Means over micro-batches and ranks, as sums over sums.

A mean of means weighs a micro-batch of 10 tokens like one of 90. Kept as (sum, count), 10 tokens of mean 0.5 and 90 of mean 0.1 are
(5 + 9) / 100 = 0.14, however they are cut.
"""

from __future__ import annotations

import math
from typing import Any, Literal

Kind = Literal["mean", "max", "min"]


class Means:
    """Gathers the parts of a step's metrics; each name is a mean, a max or a min, by the method that first adds to it."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[float, float]] = {}
        self._extremes: dict[str, float] = {}
        self._kinds: dict[str, Kind] = {}

    def add(self, name: str, sum: float, count: float) -> None:
        """Add a sum over `count` things to the mean of this name, for example the sum of a loss over a micro-batch's tokens."""
        self._claim(name, "mean")
        if count < 0:
            raise ValueError(f"Metric `{name}`: a count of {count}; expected 0 or more.")
        total, things = self._sums.get(name, (0.0, 0.0))
        self._sums[name] = (total + float(sum), things + float(count))

    def add_max(self, name: str, value: float) -> None:
        """Keep the larger of this value and those before; NaN stays."""
        self._extreme(name, float(value), "max")

    def add_min(self, name: str, value: float) -> None:
        """Keep the smaller of this value and those before; NaN stays."""
        self._extreme(name, float(value), "min")

    def merge(self, other: Means) -> None:
        """Take in what another micro-batch or rank gathered."""
        for name, (total, count) in other._sums.items():
            self.add(name, total, count)
        for name, value in other._extremes.items():
            self._extreme(name, value, other._kinds[name])

    def result(self) -> dict[str, float]:
        """Every metric by name, sorted; NaN for a mean over nothing."""
        means = {name: total / count if count else math.nan for name, (total, count) in self._sums.items()}
        return dict(sorted((means | self._extremes).items()))

    def to_dict(self) -> dict[str, Any]:
        """What `from_dict` needs, as plain values: to send between ranks."""
        return {"sums": dict(self._sums), "extremes": {name: (self._kinds[name], value) for name, value in self._extremes.items()}}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Means:
        """The metrics that `to_dict` wrote."""
        means = cls()
        for name, (total, count) in data["sums"].items():
            means.add(name, total, count)
        for name, (kind, value) in data["extremes"].items():
            means._extreme(name, value, kind)
        return means

    def _extreme(self, name: str, value: float, kind: Kind) -> None:
        self._claim(name, kind)
        known = self._extremes.get(name, value)
        unknown = math.isnan(known) or math.isnan(value)
        self._extremes[name] = math.nan if unknown else max(known, value) if kind == "max" else min(known, value)

    def _claim(self, name: str, kind: Kind) -> None:
        if self._kinds.setdefault(name, kind) != kind:
            raise ValueError(f"Metric `{name}` is a {self._kinds[name]} already, and cannot be a {kind} too.")
