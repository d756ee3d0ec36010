"""Which problems changed by more than chance: newly solved, newly lost, better, worse.

With m samples of a problem before and after, c and c′ of them right, Fisher's exact test asks how often two models that are equally good at
it would differ at least so much. Over all problems the chances are corrected by Benjamini and Hochberg (1995): of the problems that are
told as changed, at most 5 % are so by chance, on average.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sharpen.evaluation.summary import ProblemResult

FALSE_SHARE = 0.05
"""At most this share of the problems that are told as changed, on average, is so by chance."""

What = Literal["newly solved", "newly lost", "better", "worse", "unclear"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemChange:
    """What training did to one problem.

    Attributes:
        problem_id: the problem.
        samples: m, before and after each.
        before: how many of them were right before.
        after: how many were right after.
        p: Fisher's exact two-sided p-value.
        adjusted: the same after the correction over all problems.
        what: `newly solved` (never right before), `newly lost` (never right after), `better` or `worse` where `adjusted` is at most 5 %;
            else `unclear`.
        groups: the problem's level and subject.
    """

    problem_id: str
    samples: int
    before: int
    after: int
    p: float
    adjusted: float
    what: What
    groups: Mapping[str, str]


def problem_changes(before: Sequence[ProblemResult], after: Sequence[ProblemResult]) -> list[ProblemChange]:
    """The change of each problem; both lists have the same problems, in the same order, equally many samples of each."""
    samples = before[0].samples
    ps = [fisher(old.right, new.right, samples) for old, new in zip(before, after, strict=True)]
    return [
        ProblemChange(
            problem_id=old.problem_id,
            samples=samples,
            before=old.right,
            after=new.right,
            p=p,
            adjusted=adjusted,
            what=_what(old.right, new.right, adjusted),
            groups=old.groups,
        )
        for old, new, p, adjusted in zip(before, after, ps, benjamini_hochberg(ps).tolist(), strict=True)
    ]


def count(changes: Sequence[ProblemChange], what: What) -> int:
    """How many problems changed so."""
    return sum(change.what == what for change in changes)


@lru_cache(maxsize=65536)
def fisher(before: int, after: int, samples: int) -> float:
    """Fisher's exact two-sided p-value of `before` and `after` right ones, each of `samples`.

    Given their sum t, the number before is hypergeometric, C(m, x) C(m, t − x) / C(2m, t); the p-value is the sum over all x that are at
    most as likely as what was seen. In integers, so that equally likely ones are equal.
    """
    if not (0 <= before <= samples and 0 <= after <= samples):
        raise ValueError(f"fisher: {before} and {after} right of {samples}; expected 0 to {samples}.")
    total = before + after
    ways = {x: math.comb(samples, x) * math.comb(samples, total - x) for x in range(max(0, total - samples), min(samples, total) + 1)}
    return sum(way for way in ways.values() if way <= ways[before]) / math.comb(2 * samples, total)


def benjamini_hochberg(ps: ArrayLike) -> NDArray[np.float64]:
    """p-values corrected for their number, float64 [n]: the least rate of false discoveries at which each would be told."""
    values = np.asarray(ps, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    scaled = values[order] * len(values) / np.arange(1, len(values) + 1)
    out = np.empty_like(values)
    out[order] = np.minimum(1.0, np.minimum.accumulate(scaled[::-1])[::-1])
    return out


def to_dict(change: ProblemChange) -> dict[str, Any]:
    """Plain values for JSON."""
    return {name: getattr(change, name) for name in ProblemChange.__slots__} | {"groups": dict(change.groups)}


def _what(before: int, after: int, adjusted: float) -> What:
    if adjusted > FALSE_SHARE:
        return "unclear"
    if after > before:
        return "newly solved" if before == 0 else "better"
    return "newly lost" if after == 0 else "worse"
