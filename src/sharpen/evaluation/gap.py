"""The K at which the gap between two models' Pass@K closes.

The gap is Pass@K after − before, on the same problems. It is closed at a K from which on, up to the largest, it is at most the margin;
before may be ahead there. `behind` is the K from which on it is below 0. Both have intervals by bootstrap over problems (percentiles of
4,000 resamples, each of the whole curve); a resample in which the gap does not close counts as a K beyond the largest.

Axes: n problems, K samples looked at, R resamples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sharpen.evaluation.intervals import SMALL, resample
from sharpen.evaluation.pass_at_k import pass_at_k


@dataclass(frozen=True, slots=True)
class Crossing:
    """The K from which on something holds, with its 95 % interval; None where it does not hold at the largest K.

    Attributes:
        k: the estimate; None: not up to the largest K.
        low: the interval's lower end.
        high: its upper end; None: beyond the largest K.
    """

    k: int | None
    low: int | None
    high: int | None


@dataclass(frozen=True, kw_only=True)
class Gap:
    """The gap of Pass@K at every K from 1 to the largest.

    Attributes:
        curve: the gap by K, the first of K = 1.
        margin: what counts as none.
        closes: from which K on it is at most the margin.
        behind: from which K on the model after is behind the one before.
        interval: whether there are enough problems (5) for intervals.
    """

    curve: tuple[float, ...]
    margin: float
    closes: Crossing
    behind: Crossing
    interval: bool

    @property
    def k(self) -> int:
        """The largest K."""
        return len(self.curve)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        crossings = {name: {part: getattr(getattr(self, name), part) for part in ("k", "low", "high")} for name in ("closes", "behind")}
        return {"curve": list(self.curve), "margin": self.margin, "interval": self.interval} | crossings

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Gap:
        """The gap that `to_dict` wrote."""
        crossings = {name: Crossing(**data[name]) for name in ("closes", "behind")}
        return cls(curve=tuple(data["curve"]), margin=data["margin"], interval=data["interval"], **crossings)

    def __str__(self) -> str:
        """One sentence."""
        points = f"{100 * self.margin:g} points"
        if self.curve[0] <= self.margin:
            return f"There is no gap to close: Pass@1 is not more than {points} ahead after training."
        if self.closes.k is None:
            early = f" (interval from K = {self.closes.low})" if self.interval and self.closes.low is not None else ""
            return f"The gap of Pass@K does not close up to K = {self.k}{early}; closed is at most {points}."
        told = f"The gap of Pass@K closes at K = {self.closes.k}{self._interval(self.closes)}; closed is at most {points}."
        if self.behind.k is not None:
            told += f" From K = {self.behind.k}{self._interval(self.behind)} on the model before is ahead."
        return told

    def _interval(self, crossing: Crossing) -> str:
        if not self.interval:
            return ""
        low, high = (f"> {self.k}" if end is None else str(end) for end in (crossing.low, crossing.high))
        return f" [{low}, {high}]"


def pass_gap(before: Sequence[int], after: Sequence[int], samples: int, k: int, *, margin: float, seed: int = 0) -> Gap:
    """The gap of Pass@K from counts of right samples, for every K up to `k`.

    Args:
        before: right samples of each problem before.
        after: the same problems after.
        samples: of each problem.
        k: the largest K.
        margin: the gap that counts as none.
        seed: of the resampling.
    """
    table = np.array([[pass_at_k(samples, c, size) for size in range(1, k + 1)] for c in range(samples + 1)])
    moved = table[np.asarray(after)] - table[np.asarray(before)]
    curve = moved.mean(axis=0)
    enough = len(moved) >= SMALL
    curves = resample(len(moved), seed) @ moved / len(moved) if enough else curve[None]
    return Gap(
        curve=tuple(curve.tolist()),
        margin=margin,
        closes=_crossing(curve, curves, margin + 1e-12, enough),
        behind=_crossing(curve, curves, -1e-12, enough),
        interval=enough,
    )


def _crossing(curve: NDArray[np.float64], curves: NDArray[np.float64], level: float, enough: bool) -> Crossing:
    size = len(curve)

    def told(k: int) -> int | None:
        return None if k > size else k

    value = told(int(_settles(curve[None], level)[0]))
    if not enough:
        return Crossing(value, None, None)
    low, high = np.quantile(_settles(curves, level), [0.025, 0.975], method="inverted_cdf").astype(int).tolist()
    return Crossing(value, told(low), told(high))


def _settles(curves: NDArray[np.float64], level: float) -> NDArray[np.int64]:
    """The K from which on each curve is at most the level, int64 [R]; one beyond the largest K where it ends above."""
    above = curves > level
    last: NDArray[np.int64] = np.where(above.any(axis=1), curves.shape[1] - above[:, ::-1].argmax(axis=1), 0)
    return last + 1
