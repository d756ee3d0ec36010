"""Selection of problems by how often the model solves them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sharpen.errors import ProblemError
from sharpen.records import Problem


@dataclass(frozen=True)
class Selection:
    """The problems that are kept, in their order, and how many were dropped for which reason."""

    kept: list[Problem]
    dropped: dict[str, int]


def select_by_pass_rate(problems: Sequence[Problem], rates: Mapping[str, float], low: float = 0.0, high: float = 1.0) -> Selection:
    """Keep the problems whose pass rate is above `low` and below `high`.

    A problem that is always or never solved gives groups of equal rewards, which teach nothing; with the defaults, just these are dropped.

    Args:
        problems: to choose from.
        rates: the pass rate, 0 to 1, by problem id; a problem without one is dropped and counted.
        low: 0.0 drops what is never solved.
        high: 1.0 drops what is always solved.

    Raises:
        ProblemError: nothing is left.
    """
    kept: list[Problem] = []
    dropped: Counter[str] = Counter()
    for problem in problems:
        reason = _reason(rates.get(problem.id), low, high)
        if reason is None:
            kept.append(problem)
        else:
            dropped[reason] += 1
    if not kept:
        counts = ", ".join(f"{count} {reason}" for reason, count in dropped.items()) or "there were none"
        raise ProblemError(
            f"no problem has a pass rate above {low:g} and below {high:g}: {counts}.",
            fix="Choose easier or harder problems, widen the bounds, or estimate the rates by more samples.",
        )
    return Selection(kept, dict(dropped))


def _reason(rate: float | None, low: float, high: float) -> str | None:
    if rate is None:
        return "without a pass rate"
    if rate <= low:
        return "never solved" if rate == 0 else "too hard"
    if rate >= high:
        return "always solved" if rate == 1 else "too easy"
    return None
