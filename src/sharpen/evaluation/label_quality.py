"""How well labels of steps agree with others that are taken for the truth. Axes: n solutions.

A step counts as wrong where its label is below a half. Steps that either side has no label for are in no figure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sharpen.evaluation.intervals import Estimate, Measure, estimate

Labels = Sequence[float | None]


@dataclass(frozen=True, kw_only=True)
class LabelQuality:
    """Figures with 95 % intervals, over solutions as independent draws.

    Attributes:
        solutions: n.
        steps: labelled by both sides.
        wrong: of those, wrong by the truth.
        coverage: the share of the truth's labelled steps that have a label.
        accuracy: the share of steps labelled by both on which they agree.
        precision: of steps said to be wrong, the share that is.
        recall: of wrong steps, the share that is said to be.
        first_error: the share of solutions whose first wrong step, or none, is the truth's very one.
    """

    solutions: int
    steps: int
    wrong: int
    coverage: Estimate
    accuracy: Estimate
    precision: Estimate
    recall: Estimate
    first_error: Estimate


def first_error(labels: Labels) -> int | None:
    """The first step labelled wrong, from 0; None where there is none."""
    return next((k for k, label in enumerate(labels) if label is not None and label < 0.5), None)


def quality(said: Sequence[Labels], true: Sequence[Labels], *, seed: int = 0) -> LabelQuality:
    """Compare the labels of n solutions with the truth.

    Args:
        said: of each solution, a label a step.
        true: the same steps.
        seed: of the bootstrap.

    Raises:
        ValueError: not the same steps.
    """
    if [len(one) for one in said] != [len(one) for one in true]:
        raise ValueError("said and true labels: expected the same steps of the same solutions")
    pairs = [
        [(a < 0.5, b < 0.5) for a, b in zip(one, other, strict=True) if a is not None and b is not None]
        for one, other in zip(said, true, strict=True)
    ]

    def share(numerators: Sequence[int], denominators: Sequence[int]) -> Estimate:
        return estimate(Measure(numerators, denominators), seed=seed)

    both = [len(row) for row in pairs]
    hits = [sum(a and b for a, b in row) for row in pairs]
    return LabelQuality(
        solutions=len(pairs),
        steps=sum(both),
        wrong=sum(b for row in pairs for _, b in row),
        coverage=share(both, [sum(label is not None for label in one) for one in true]),
        accuracy=share([sum(a == b for a, b in row) for row in pairs], both),
        precision=share(hits, [sum(a for a, _ in row) for row in pairs]),
        recall=share(hits, [sum(b for _, b in row) for row in pairs]),
        first_error=share([int(first_error(a) == first_error(b)) for a, b in zip(said, true, strict=True)], [1] * len(pairs)),
    )
