"""95 % intervals for what is measured on a set of problems.

Problems are the independent draws; the samples of one problem are not. So every interval resamples problems, and a change between two
models is measured on the same problems and resamples both together (paired).

The method is the bias-corrected and accelerated bootstrap (BCa, Efron 1987) at levels widened for small sets, z → √(n/(n−1)) · t_{n−1}
(Hesterberg 2015, arXiv:1411.5279, the expanded percentile interval). Two cases where resampling says nothing have their own rule:

- 2 to 4 problems: Student's t interval, cut at the bounds;
- no spread (say, every problem solved): a share of up to p = z²/(n + z²) of problems may still differ by as much as the bounds allow, so
  the interval is value + p · (bound − value) on each side. For a share of 0 or 1 that is the Wilson interval.

A paired change of Pass@K or Maj@K has Student's interval instead, with the sum of squares raised by 2 · step²: as if, beside the n
problems, one had gained and one had lost as much as a single sample can move a problem, step = K / samples (`stepped`). At K = samples the
differences are −1, 0 and 1, mostly 0, and resampling what was seen cannot show what was not: there BCa is on the wrong side up to 24 times
in 100 where 2.5 are meant, and this one at most 6 (docs/verdict.md has the simulation).

One problem gives no interval (NaN).

Axes: n problems, R resamples, S sets of problems at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sharpen import streams

Array = NDArray[np.float64]
RESAMPLES = 4_000
SMALL = 5
"""From this many problems on the interval is a bootstrap."""

NORMAL = NormalDist()
Z = NORMAL.inv_cdf(0.975)
STUDENT = {1: 12.7062, 2: 4.3027, 3: 3.1824, 4: 2.7764}
SHARE = (0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A measured value with its 95 % interval; NaN where the data cannot tell.

    Attributes:
        value: the point estimate, for example 0.839.
        low: the interval's lower end, for example 0.771.
        high: its upper end, for example 0.896.
    """

    value: float
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval lies on one side of 0; an unknown interval does not."""
        return self.low > 0 or self.high < 0

    def to_dict(self) -> dict[str, float | None]:
        """The three numbers for JSON, None for what is unknown."""
        return {name: None if math.isnan(number := getattr(self, name)) else number for name in ("value", "low", "high")}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Estimate:
        """The estimate that `to_dict` wrote."""
        return cls(*(math.nan if data[name] is None else float(data[name]) for name in ("value", "low", "high")))


class Measure:
    """A ratio of sums over problems, Σ numerators / Σ denominators; a plain mean has denominators 1.

    Args:
        numerators: float [n], one a problem.
        denominators: float [n], non-negative; 1 each when left out. A problem with denominator 0 says nothing about the ratio.
        bounds: what the ratio can be, (0, 1) for shares.
        step: how far a single sample can move a problem's numerator; a paired change of plain means that have one is `stepped`.
    """

    def __init__(
        self,
        numerators: ArrayLike,
        denominators: ArrayLike | None = None,
        *,
        bounds: tuple[float, float] = SHARE,
        step: float | None = None,
    ) -> None:
        self.numerators = np.asarray(numerators, dtype=np.float64)
        self.denominators = np.ones_like(self.numerators) if denominators is None else np.asarray(denominators, dtype=np.float64)
        if self.numerators.ndim != 1 or self.numerators.shape != self.denominators.shape:
            raise ValueError(f"Expected two arrays of shape (n,), got {self.numerators.shape} and {self.denominators.shape}.")
        if not np.isfinite([self.numerators, self.denominators]).all() or (self.denominators < 0).any():
            raise ValueError("Numerators must be finite, and denominators finite and not negative.")
        if step is not None and not (self.denominators == 1).all():
            raise ValueError("A step is for plain means, whose denominators are all 1.")
        self.bounds, self.step = bounds, step

    @property
    def value(self) -> float:
        """The ratio; NaN when the denominators sum to 0."""
        return float(self.resampled(np.ones((1, len(self.numerators))))[0])

    @property
    def informative(self) -> NDArray[np.bool_]:
        """The problems that have a say, bool [n]."""
        return self.denominators > 0

    @property
    def influence(self) -> Array:
        """How far each problem pulls the ratio, float64 [n]: (numerator − ratio · denominator) / mean denominator; sums to 0."""
        pull: Array = (self.numerators - self.value * self.denominators) / self.denominators.mean()
        return pull

    def resampled(self, weights: Array) -> Array:
        """The ratio in each resample, float64 [R], from how often it drew each problem, [R, n]; NaN where no problem has a say."""
        sums = weights @ self.denominators
        ratios: Array = np.divide(weights @ self.numerators, sums, out=np.full(len(sums), np.nan), where=sums > 0)
        return ratios


def estimate(measure: Measure, *, seed: int = 0) -> Estimate:
    """The measure's value with its 95 % interval (see the top of the file for the method)."""
    value, informative = measure.value, int(measure.informative.sum())
    if informative < 2:
        return Estimate(value, math.nan, math.nan)
    resampled = measure.resampled(resample(len(measure.numerators), seed)) if informative >= SMALL else None
    return _interval(value, measure.influence, resampled, informative, measure.bounds)


def quick_estimate(measure: Measure) -> Estimate:
    """The value with Student's t interval of a ratio, in closed form: for curves, which have thousands of points.

        r ± t_{n−1} √(Σ influence² / ((n − 1) n))

    the ratio estimator of cluster samples (Cochran 1977, Sampling Techniques, §6.3), cut at the bounds. Where no problem differs from
    another the interval is unknown (NaN): nothing was seen of how far others may lie off, and `estimate`'s guess would hide the curves.
    """
    value, informative = measure.value, int(measure.informative.sum())
    pull = measure.influence if informative > 1 else np.zeros(1)
    if np.abs(pull).max() <= 1e-12 * max(1.0, abs(value)):
        return Estimate(value, math.nan, math.nan)
    return _interval(value, pull, None, informative, measure.bounds)


def change(before: Measure, after: Measure, *, seed: int = 0) -> Estimate:
    """The change, after − before, over the same problems in the same order, with its paired 95 % interval.

    One resample of the problems gives both values, so what makes a problem easy or hard for both models cancels. Measures with a step
    have the interval of `stepped`.
    """
    if len(before.numerators) != len(after.numerators):
        raise ValueError(f"A paired change needs the same problems: {len(before.numerators)} before and {len(after.numerators)} after.")
    value, informative = after.value - before.value, int((before.informative & after.informative).sum())
    if informative < 2:
        return Estimate(value, math.nan, math.nan)
    if before.step is not None and after.step is not None:
        moved = stepped(after.numerators - before.numerators, max(before.step, after.step))
        return Estimate(*(float(number) for number in moved))
    weights = resample(len(before.numerators), seed) if informative >= SMALL else None
    resampled = None if weights is None else after.resampled(weights) - before.resampled(weights)
    bounds = (after.bounds[0] - before.bounds[1], after.bounds[1] - before.bounds[0])
    return _interval(value, after.influence - before.influence, resampled, informative, bounds)


def stepped(differences: ArrayLike, step: float) -> tuple[Array, Array, Array]:
    """The mean of paired differences within [−1, 1], with Student's 95 % interval under a raised sum of squares.

        mean ± t_{n−1} √((Σ (d − mean)² + 2 step²) / ((n − 1) n))

    The two added squares are those of a problem that gained and of one that lost a step: Bonett and Price's adjusted interval for paired
    proportions (2012, doi:10.3102/1076998611411915) where step = 1, but with the mean left where it is. Where no two differences differ,
    the step counts as 1: nothing was seen of how far problems that were not drawn may lie off.

    Args:
        differences: float [..., n], n at least 2.
        step: what a single sample can move a problem by.

    Returns:
        Means, lower and upper ends, float64 [...] each, the ends within [−1, 1].
    """
    d = np.asarray(differences, dtype=np.float64)
    n = d.shape[-1]
    mean = d.mean(axis=-1)
    squares = ((d - mean[..., None]) ** 2).sum(axis=-1)
    flat = np.abs(d - mean[..., None]).max(axis=-1) <= 1e-12
    added = np.where(flat, 2.0, 2 * step * step)
    half = student(n - 1) * np.sqrt((squares + added) / ((n - 1) * n))
    return mean, np.maximum(mean - half, -1.0), np.minimum(mean + half, 1.0)


def wilson(successes: int, total: int) -> tuple[float, float]:
    """Wilson's 95 % score interval for a share of independent draws (Wilson 1927): (p + z²/2n ± z √(p(1−p)/n + z²/4n²)) / (1 + z²/n).

    For single draws a problem; where a problem has several samples, use `estimate`.
    """
    if not 0 <= successes <= total or total < 1:
        raise ValueError(f"{successes} successes of {total}: expected 0 to total, and total at least 1.")
    low, high = wilson_share(successes / total, total)
    return (0.0 if successes == 0 else float(low), 1.0 if successes == total else float(high))


def wilson_share(share: ArrayLike, total: int) -> tuple[Array, Array]:
    """Wilson's 95 % interval for means of `total` numbers within [0, 1], none of which varies more than a share of that mean would."""
    p, square = np.asarray(share, dtype=np.float64), Z * Z / total
    middle, half = p + square / 2, Z * np.sqrt(p * (1 - p) / total + square / (4 * total))
    return (middle - half) / (1 + square), (middle + half) / (1 + square)


@lru_cache(maxsize=1)
def resample(problems: int, seed: int) -> Array:
    """How often each of R resamples draws each problem, float64 [R, n]; each row sums to n. The same draws serve every measure."""
    drawn = streams.generator(seed, "bootstrap", problems).integers(problems, size=(RESAMPLES, problems))
    rows = np.arange(RESAMPLES)[:, None] * problems
    weights = np.bincount((rows + drawn).ravel(), minlength=RESAMPLES * problems).reshape(RESAMPLES, problems).astype(np.float64)
    weights.flags.writeable = False
    return weights


def student(freedom: int) -> float:
    """The 97.5 % quantile of Student's t: tabulated up to 4 degrees of freedom, then Abramowitz & Stegun 26.7.5 (error < 1e-3)."""
    if freedom in STUDENT:
        return STUDENT[freedom]
    terms = (
        Z,
        (Z**3 + Z) / 4,
        (5 * Z**5 + 16 * Z**3 + 3 * Z) / 96,
        (3 * Z**7 + 19 * Z**5 + 17 * Z**3 - 15 * Z) / 384,
        (79 * Z**9 + 776 * Z**7 + 1482 * Z**5 - 1920 * Z**3 - 945 * Z) / 92160,
    )
    return float(sum(term / freedom**power for power, term in enumerate(terms)))


def _interval(value: float, influence: Array, resampled: Array | None, informative: int, bounds: tuple[float, float]) -> Estimate:
    """The interval from what the problems' influence and the resamples show; `resampled` is None for too few problems."""
    low, high = bounds
    if np.abs(influence).max() <= 1e-12 * max(1.0, abs(value)):
        doubt = Z * Z / (informative + Z * Z)
        ends = tuple(value + doubt * (bound - value) if math.isfinite(bound) else value for bound in bounds)
    elif resampled is None:
        half = student(informative - 1) * math.sqrt(float(influence @ influence) / (informative - 1) / informative)
        half *= informative / len(influence)
        ends = (value - half, value + half)
    else:
        ends = _bca(value, influence, resampled[~np.isnan(resampled)], informative)
    return Estimate(value, max(low, min(ends[0], value)), min(high, max(ends[1], value)))


def _bca(value: float, influence: Array, resampled: Array, informative: int) -> tuple[float, float]:
    """The BCa quantiles: Φ(z₀ + (z₀ ± z) / (1 − a (z₀ ± z))), with the acceleration a = Σ influence³ / (6 (Σ influence²)^1.5)."""
    near = 1e-12 * max(1.0, abs(value))
    below = float((resampled < value - near).mean() + (np.abs(resampled - value) <= near).mean() / 2)
    bias = NORMAL.inv_cdf(min(max(below, 1 / RESAMPLES), 1 - 1 / RESAMPLES))
    acceleration = float((influence**3).sum() / (6 * (influence**2).sum() ** 1.5))
    reach = math.sqrt(informative / (informative - 1)) * student(informative - 1)

    def level(z: float) -> float:
        slope = 1 - acceleration * z
        return NORMAL.cdf(bias + z / slope) if slope > 0 else float(z > 0)

    low, high = np.quantile(resampled, [level(bias - reach), level(bias + reach)])
    return float(low), float(high)
