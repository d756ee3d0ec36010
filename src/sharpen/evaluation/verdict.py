"""Did training sharpen what the model could do, or extend it? One word, by a rule that is written down.

Two things are measured, paired by problem, with their 95 % intervals:

- the change of *reach*: mean Pass@K at the largest K, after − before;
- the gain *within reach*: what Pass@1 gained on problems that the model already solved before within K samples.

The gain of Pass@1 is the sum over problems of q − p, the chances that one sample is right after and before. With R = 1 − (1 − p)^K, the
chance that K samples before held a right one, it is split in two,

    q − p  =  R (q − p)  +  (1 − R) (q − p)  =  within reach + from beyond it,

and each part has an unbiased estimate from the counts (`within_reach`). The word is then

    extended        reach rose by more than the margin (the lower end of its interval is above it)
    sharpened       the gain within reach is above 0 (its interval), and reach did not rise by more than the margin (the upper end of its
                    interval is below it), and at most one of the two models may be at the ceiling
    both            reach rose by more than the margin, and the gain within reach is above 0
    no clear change anything else; what was missing is told

A model may be at the ceiling when Wilson's interval of its Pass@K reaches up to 1 − margin. Where both may be, nothing that training could
have added would show at this K.

docs/verdict.md explains the rule and has its error rates, measured by benchmarks/verdict.py, which runs the functions below.

Axes: S sets of problems at once, n problems; m samples of each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sharpen.errors import SharpenError
from sharpen.evaluation.intervals import Estimate, stepped, wilson_share
from sharpen.evaluation.pass_at_k import pass_at_k

Array = NDArray[np.float64]
Word = Literal["sharpened", "extended", "both", "no clear change"]

MARGIN = 0.05
"""The change of mean Pass@K at the largest K that is taken for none."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What the rule reads: arrays over S sets of problems, or single numbers.

    Attributes:
        reach: change of mean Pass@K, after − before: value, lower and upper end.
        within: gain of Pass@1 within reach: value, lower and upper end.
        highest: the upper ends of Pass@K before and after.
    """

    reach: tuple[Array, Array, Array]
    within: tuple[Array, Array, Array]
    highest: tuple[Array, Array]

    def ceiling(self, margin: float) -> NDArray[np.bool_]:
        """Where both models may be at the ceiling."""
        found: NDArray[np.bool_] = np.minimum(*self.highest) >= 1 - margin
        return found


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The word with its numbers.

    Attributes:
        word: `sharpened`, `extended`, `both` or `no clear change`.
        k: the largest K, at which reach is measured.
        margin: the change of reach that is taken for none, 0.05 for 5 points.
        reach: the change of Pass@K.
        gain: the change of Pass@1.
        within_reach: the part of it on problems that were within reach before.
        from_beyond: the rest of it.
        ceiling: whether both models may be at the ceiling.
        reasons: what decided, and what was missing, a sentence each.
    """

    word: Word
    k: int
    margin: float
    reach: Estimate
    gain: Estimate
    within_reach: Estimate
    from_beyond: Estimate
    ceiling: bool
    reasons: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        estimates = {name: getattr(self, name).to_dict() for name in ESTIMATES}
        return {"word": self.word, "k": self.k, "margin": self.margin, "ceiling": self.ceiling, "reasons": list(self.reasons)} | estimates

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Verdict:
        """The verdict that `to_dict` wrote."""
        estimates: dict[str, Any] = {name: Estimate.from_dict(data[name]) for name in ESTIMATES}
        plain = {name: data[name] for name in ("word", "k", "margin", "ceiling")}
        return cls(**plain, **estimates, reasons=tuple(data["reasons"]))


ESTIMATES = ("reach", "gain", "within_reach", "from_beyond")


def judge(before: Sequence[int], after: Sequence[int], samples: int, k: int, *, margin: float = MARGIN) -> Verdict:
    """The verdict on a model before and after training.

    Args:
        before: how many of a problem's samples were right before, for each of at least 2 problems.
        after: the same problems after.
        samples: m, of each problem.
        k: the largest K, 2 to m.
        margin: the change of reach that is taken for none, in (0, 1).

    Raises:
        SharpenError: for one problem or one sample, from which nothing can be told, and for a margin out of range.
    """
    if not 0 < margin < 1:
        raise SharpenError(f"margin {margin}: expected a share between 0 and 1.", fix="Give 0.05 for 5 points.")
    if len(before) < 2 or not 2 <= k <= samples:
        raise SharpenError(
            f"A verdict needs 2 problems and a K from 2 to the number of samples; there are {len(before)}, K = {k} and {samples} samples.",
            fix="Evaluate more problems, with more samples.",
        )
    evidence = weigh(before, after, samples, k)
    word: Word = WORDS[int(decide(evidence, margin))]
    gain = (np.asarray(after) - np.asarray(before)) / samples
    within = within_reach(before, after, samples, k)
    found = Verdict(
        word=word,
        k=k,
        margin=margin,
        reach=_estimate(evidence.reach),
        gain=_estimate(stepped(gain, 1 / samples)),
        within_reach=_estimate(evidence.within),
        from_beyond=_estimate(stepped(gain - within, 1 / samples)),
        ceiling=bool(evidence.ceiling(margin)),
        reasons=(),
    )
    return Verdict(**(vars(found) | {"reasons": tuple(_reasons(found))}))


WORDS: tuple[Word, ...] = ("no clear change", "sharpened", "extended", "both")


def decide(evidence: Evidence, margin: float) -> NDArray[np.int64]:
    """The rule: the place in `WORDS` of each set's word."""
    extended = evidence.reach[1] > margin
    better = evidence.within[1] > 0
    sharpened = better & (evidence.reach[2] < margin) & ~evidence.ceiling(margin)
    found: NDArray[np.int64] = np.where(extended, np.where(better, 3, 2), np.where(sharpened, 1, 0))
    return found


def weigh(before: ArrayLike, after: ArrayLike, samples: int, k: int) -> Evidence:
    """The evidence of counts of right samples, int [..., n]."""
    old, new = np.asarray(before), np.asarray(after)
    curve = np.array([pass_at_k(samples, c, k) for c in range(samples + 1)])
    levels = curve[old].mean(axis=-1), curve[new].mean(axis=-1)
    highest = tuple(_upper(level, old.shape[-1]) for level in levels)
    return Evidence(
        reach=stepped(curve[new] - curve[old], k / samples),
        within=stepped(within_reach(old, new, samples, k), 1 / samples),
        highest=(highest[0], highest[1]),
    )


def within_reach(before: ArrayLike, after: ArrayLike, samples: int, k: int) -> Array:
    """Each problem's gain within reach, R (q − p), without bias: float64 [..., n].

    R q has the estimate pass@k(m, c, k) · c′/m, for the samples before and after are drawn apart. R p = p − p (1 − p)^h has
    c/m · (1 − C(m − c, h) / C(m − 1, h)): in a random order of the samples before, the first is right and not all of the next h are wrong.
    That takes h + 1 samples, so that R is of h = min(k, m − 1) samples in both.

    Args:
        before: c, right samples before, int [..., n].
        after: c′, after.
        samples: m, at least 2.
        k: samples that make up the reach.
    """
    reach, own = _reach(samples, min(k, samples - 1))
    old, new = np.asarray(before), np.asarray(after)
    gain: Array = reach[old] * new / samples - own[old]
    return gain


@lru_cache(maxsize=8)
def _reach(samples: int, h: int) -> tuple[Array, Array]:
    """By the count of right samples: the estimates of 1 − (1 − p)^h and of p (1 − (1 − p)^h)."""
    if not 1 <= h < samples:
        raise ValueError(f"Reach needs 2 samples of a problem, and K from 1; got {samples} and {h}.")
    own = [c / samples * (1 - math.comb(samples - c, h) / math.comb(samples - 1, h)) if c else 0.0 for c in range(samples + 1)]
    return np.array([pass_at_k(samples, c, h) for c in range(samples + 1)]), np.array(own)


def _upper(share: Array, n: int) -> Array:
    return wilson_share(share, n)[1]


def _estimate(found: tuple[Array, Array, Array]) -> Estimate:
    return Estimate(*(float(number) for number in found))


def rule(k: int, margin: float) -> tuple[str, ...]:
    """The rule in words, a line each word."""
    points = f"{100 * margin:g} points"
    return (
        f"extended: the interval of the change of Pass@{k} lies above +{points}",
        f"sharpened: Pass@1 gained within reach (interval above 0), and the interval of the change of Pass@{k} lies below +{points}",
        "both: extended, and Pass@1 gained within reach",
        f"no clear change: anything else, also where Pass@{k} of both models may be at the ceiling (within {points} of 100 %)",
    )


def _reasons(found: Verdict) -> list[str]:
    """What decided, and what was missing."""
    k, reach, points = found.k, found.reach, f"{100 * found.margin:g} points"
    if reach.low > found.margin:
        told = f"it rose by more than {points}"
    elif reach.high < 0:
        told = "it fell"
    elif reach.high < found.margin:
        told = f"it did not rise by more than {points}"
    else:
        told = f"too wide to tell whether it rose by more than {points}; more problems would tell"
    out = [f"Pass@{k} changed by {shown(reach)}: {told}."]
    gained = "above 0" if found.within_reach.low > 0 else "below 0" if found.within_reach.high < 0 else "not clearly different from 0"
    out.append(
        f"Pass@1 changed by {shown(found.gain)}; {shown(found.within_reach)} of it on problems within reach before "
        f"({gained}), {shown(found.from_beyond)} from beyond."
    )
    if found.ceiling:
        out.append(f"Both models may be at the ceiling of Pass@{k}, so that extended reach could not show; harder problems would tell.")
    return out


def shown(found: Estimate) -> str:
    """`+20.0 [-5.0, +45.0]`, in points."""
    value, low, high = (f"{round(100 * number, 1) + 0.0:+.1f}" for number in (found.value, found.low, found.high))
    return value if math.isnan(found.low) else f"{value} [{low}, {high}]"
