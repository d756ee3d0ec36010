"""How good a reward model's numbers are, on completions (or pairs) of problems that it was not fitted on.

Problems are the independent draws, so intervals resample problems: shares and means by `intervals.estimate`, the area under the ROC curve
and the expected calibration error as percentiles of the same resamples. A resample's calibration error is on average larger than the
sample's, for noise adds to an error that is never negative; the interval leans upwards by that.

Axes: N examples, n problems, R resamples, K bins.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sharpen.evaluation.intervals import SMALL, Array, Estimate, Measure, estimate, resample

Places = NDArray[np.int64]
Bools = NDArray[np.bool_]

BINS = 10
_AT_ONCE = 2_000_000  # entries of [R, N] that exist at once


@dataclass(frozen=True, kw_only=True)
class Bin:
    """The examples whose probability lies between two bounds.

    Attributes:
        low: the lower bound, included.
        high: the upper bound, included only where it is 1.
        count: examples.
        probability: their mean probability; NaN without any.
        right: the mean of their labels, the share that is right; NaN without any.
    """

    low: float
    high: float
    count: int
    probability: float
    right: float


@dataclass(frozen=True, kw_only=True)
class Quality:
    """The figures of a reward model; NaN where there is nothing to measure.

    Attributes:
        kind: what was judged: completions, steps or pairs.
        examples: N.
        problems: n.
        positive: the mean label, NaN for pairs.
        accuracy: the share judged rightly at a probability of 0.5 (of pairs: the preferred one has the larger number; a tie is half).
        auc: the area under the ROC curve: how often a right one outranks a wrong one, whatever the problems; NaN for pairs.
        within: how often a right one outranks a wrong one of the same problem, which is what a group's advantages are made of.
        chosen: how often the one with the largest number of a problem's completions is right, which best-of-N lives by; equal numbers count
            by their share of right ones. NaN for steps and pairs. Where wrong answers are many and each is rare, it may be low though
            `within`, which counts the frequent ones again and again, is not.
        brier: the mean squared error of the probability.
        calibration_error: the mean distance of probability and share right over the bins, weighted by their examples.
        reliability: the bins.
    """

    kind: str
    examples: int
    problems: int
    positive: float
    accuracy: Estimate
    auc: Estimate
    within: Estimate
    chosen: Estimate
    brier: Estimate
    calibration_error: Estimate
    reliability: tuple[Bin, ...]

    @property
    def majority(self) -> float:
        """The accuracy of always saying what is more frequent."""
        return math.nan if math.isnan(self.positive) else max(self.positive, 1 - self.positive)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, None for what is unknown."""
        figures = {name: getattr(self, name).to_dict() for name in FIGURES}
        bins = [
            {"low": one.low, "high": one.high, "count": one.count, "probability": _plain(one.probability), "right": _plain(one.right)}
            for one in self.reliability
        ]
        counts = {"kind": self.kind, "examples": self.examples, "problems": self.problems, "positive": _plain(self.positive)}
        return {**counts, "majority": _plain(self.majority), **figures, "reliability": bins}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Quality:
        """The figures that `to_dict` wrote."""

        def known(row: Mapping[str, Any]) -> dict[str, Any]:
            return {key: math.nan if value is None else value for key, value in row.items()}

        bins = tuple(Bin(**known(row)) for row in data["reliability"])
        positive = math.nan if data["positive"] is None else data["positive"]
        rest: dict[str, Any] = {name: data[name] for name in ("kind", "examples", "problems")}
        rest |= {name: Estimate.from_dict(data[name]) if name in data else UNKNOWN for name in FIGURES}  # older files have fewer
        return cls(positive=positive, reliability=bins, **rest)


FIGURES = ("accuracy", "auc", "within", "chosen", "brier", "calibration_error")
UNKNOWN = Estimate(math.nan, math.nan, math.nan)


def of_labels(
    problems: Sequence[str], logits: Sequence[float], labels: Sequence[float], *, kind: str = "completions", bins: int = BINS, seed: int = 0
) -> Quality:
    """The figures of N completions, or steps, with labels; above a label of 0.5 an example counts as right.

    Args:
        problems: the problem of each.
        logits: of each; its probability is σ(logit).
        labels: of each, in [0, 1].
        kind: what they are.
        bins: of the reliability table, equally wide.
        seed: of the resampling.
    """
    names, index = _by_problem(problems)
    z, y = np.asarray(logits, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    p, right = _sigmoid(z), y > 0.5
    hits = np.where(z == 0, 0.5, ((z > 0) == right).astype(np.float64))
    table, errors = _table(p, y, index, len(names), bins), (p - y) ** 2
    pairs, wins = _within(z, right, index, len(names))
    return Quality(
        kind=kind,
        examples=len(z),
        problems=len(names),
        positive=float(y.mean()),
        accuracy=estimate(_mean(hits, index, len(names)), seed=seed),
        auc=_auc(z, right, index, len(names), seed),
        within=estimate(Measure(wins, pairs), seed=seed) if pairs.any() else UNKNOWN,
        chosen=estimate(_chosen(z, right, index, len(names)), seed=seed) if kind == "completions" else UNKNOWN,
        brier=estimate(_mean(errors, index, len(names)), seed=seed),
        calibration_error=_calibration(table, seed),
        reliability=_bins(table),
    )


def of_pairs(problems: Sequence[str], margins: Sequence[float], *, bins: int = BINS, seed: int = 0) -> Quality:
    """The figures of N preferences, each by its margin r_chosen − r_rejected.

    The probability that is checked is that of what the model prefers, σ(|margin|), against how often that is what was preferred.

    Args:
        problems: the prompt of each pair.
        margins: of each.
        bins: of the reliability table, equally wide.
        seed: of the resampling.
    """
    names, index = _by_problem(problems)
    m = np.asarray(margins, dtype=np.float64)
    hits = np.where(m == 0, 0.5, (m > 0).astype(np.float64))
    p = _sigmoid(np.abs(m))
    table = _table(p, hits, index, len(names), bins)
    return Quality(
        kind="pairs",
        examples=len(m),
        problems=len(names),
        positive=math.nan,
        accuracy=estimate(_mean(hits, index, len(names)), seed=seed),
        auc=UNKNOWN,
        within=UNKNOWN,
        chosen=UNKNOWN,
        brier=estimate(_mean((p - hits) ** 2, index, len(names)), seed=seed),
        calibration_error=_calibration(table, seed),
        reliability=_bins(table),
    )


def _by_problem(problems: Sequence[str]) -> tuple[list[str], Places]:
    """The different problems, and which of them each example is of."""
    names, index = np.unique(np.asarray(problems), return_inverse=True)
    return names.tolist(), index.astype(np.int64)


def _mean(values: NDArray[Any], index: Places, n: int) -> Measure:
    """The mean over all examples, by problem."""
    return Measure(np.bincount(index, weights=values, minlength=n), np.bincount(index, minlength=n))


def _sigmoid(z: Array) -> Array:
    positive: Array = 0.5 * (1 + np.tanh(z / 2))
    return positive


def _within(z: Array, right: Bools, index: Places, n: int) -> tuple[Array, Array]:
    """Of each problem: pairs of a right and a wrong example, and those in which the right one is ahead, a tie as half."""
    pairs, wins = np.zeros(n), np.zeros(n)
    for problem in range(n):
        mine = index == problem
        good, bad = z[mine & right], z[mine & ~right]
        ahead = good[:, None] - bad[None]
        pairs[problem], wins[problem] = ahead.size, (ahead > 0).sum() + (ahead == 0).sum() / 2
    return pairs, wins


def _chosen(z: Array, right: Bools, index: Places, n: int) -> Measure:
    """Of each problem: whether the example of the largest number is right, a tie as the share of right ones."""
    top = np.full(n, -np.inf)
    np.maximum.at(top, index, z)
    first = z == top[index]
    tied = np.bincount(index[first], minlength=n)
    return Measure(np.bincount(index[first], weights=right[first], minlength=n) / tied, np.ones(n))


def _auc(z: Array, right: Bools, index: Places, n: int, seed: int) -> Estimate:
    if right.all() or not right.any():
        return UNKNOWN
    _, rank = np.unique(z, return_inverse=True)
    order = np.argsort(rank, kind="stable")
    starts = np.flatnonzero(np.diff(rank[order], prepend=-1))

    def area(weights: Array) -> Array:
        """[R, n] → [R]: Σ over scores of the right ones there × (the wrong ones below + half of those there)."""
        each = weights[:, index[order]]
        good = np.add.reduceat(each * right[order], starts, axis=1)
        bad = np.add.reduceat(each * ~right[order], starts, axis=1)
        below = np.cumsum(bad, axis=1) - bad / 2
        whole = good.sum(axis=1) * bad.sum(axis=1)
        return np.divide((good * below).sum(axis=1), whole, out=np.full(len(whole), np.nan), where=whole > 0)

    value = float(area(np.ones((1, n)))[0])
    return _percentiles(value, area, n, seed, size=len(z))


def _table(p: Array, y: Array, index: Places, n: int, bins: int) -> Array:
    """[3, n, K]: of each problem and bin the count, and the sums of probabilities and labels."""
    place = np.minimum((p * bins).astype(np.int64), bins - 1) + bins * index
    sums = [np.bincount(place, weights=values, minlength=n * bins) for values in (np.ones_like(p), p, y)]
    table: Array = np.stack(sums).astype(np.float64).reshape(3, n, bins)
    return table


def _calibration(table: Array, seed: int) -> Estimate:
    n = table.shape[1]

    def error(weights: Array) -> Array:
        counts, probabilities, labels = (weights @ part for part in table)
        found: Array = np.abs(probabilities - labels).sum(axis=1) / counts.sum(axis=1)
        return found

    return _percentiles(float(error(np.ones((1, n)))[0]), error, n, seed, size=table.shape[2])


def _percentiles(value: float, function: Any, n: int, seed: int, *, size: int) -> Estimate:
    """The value with the 2.5th and 97.5th percentile of the function's resamples; no interval for a handful of problems."""
    if n < SMALL:
        return Estimate(value, math.nan, math.nan)
    weights, rows = resample(n, seed), max(1, _AT_ONCE // size)
    found = np.concatenate([function(weights[start : start + rows]) for start in range(0, len(weights), rows)])
    low, high = np.quantile(found[~np.isnan(found)], [0.025, 0.975])
    return Estimate(value, min(float(low), value), max(float(high), value))


def _bins(table: Array) -> tuple[Bin, ...]:
    counts, probabilities, labels = table.sum(axis=1)
    width = 1 / len(counts)
    return tuple(
        Bin(
            low=round(i * width, 10),
            high=round((i + 1) * width, 10),
            count=int(count),
            probability=float(probabilities[i] / count) if count else math.nan,
            right=float(labels[i] / count) if count else math.nan,
        )
        for i, count in enumerate(counts)
    )


def _plain(value: float) -> float | None:
    return None if math.isnan(value) else value
