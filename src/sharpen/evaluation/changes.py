"""Everything that a comparison of two evaluations tells: figures, the verdict, where the gap closes, problems, levels and subjects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sharpen.evaluation.gap import Gap, pass_gap
from sharpen.evaluation.problem_changes import ProblemChange, problem_changes, to_dict
from sharpen.evaluation.summary import Comparison, ProblemResult, by_group, compare, pair
from sharpen.evaluation.verdict import MARGIN, Verdict, judge, rule


@dataclass(frozen=True, kw_only=True)
class Changes:
    """The same problems before and after training, with what follows.

    Attributes:
        comparison: Pass@K, Maj@K, length and the rest, before, after, and their change.
        verdict: sharpened, extended, both or no clear change; None with one problem, or where the largest K is 1.
        gap: where the gap of Pass@K closes.
        problems: the change of each problem, by id.
        breakdown: the comparison by level and by subject, as in `{"level": {"1": ..., "2": ...}}`.
        differences: settings in which the two evaluations differ, a sentence each.
    """

    comparison: Comparison
    verdict: Verdict | None
    gap: Gap
    problems: Sequence[ProblemChange]
    breakdown: Mapping[str, Mapping[str, Comparison]]
    differences: Sequence[str] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; write them with sorted keys."""
        told = None if self.verdict is None else self.verdict.to_dict() | {"rule": list(rule(self.verdict.k, self.verdict.margin))}
        return self.comparison.to_dict() | {
            "verdict": told,
            "gap": self.gap.to_dict(),
            "problems": [to_dict(change) for change in self.problems],
            "breakdown": {name: {value: one.to_dict() for value, one in parts.items()} for name, parts in self.breakdown.items()},
            "differences": list(self.differences),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Changes:
        """The changes that `to_dict` wrote, say into a run's `evaluation/comparison.json`."""
        return cls(
            comparison=Comparison.from_dict(data),
            verdict=None if data["verdict"] is None else Verdict.from_dict(data["verdict"]),
            gap=Gap.from_dict(data["gap"]),
            problems=[ProblemChange(**row) for row in data["problems"]],
            breakdown={
                name: {value: Comparison.from_dict(one) for value, one in parts.items()} for name, parts in data["breakdown"].items()
            },
            differences=tuple(data["differences"]),
        )


def changes(
    before: Sequence[ProblemResult],
    after: Sequence[ProblemResult],
    ks: Iterable[int],
    *,
    margin: float = MARGIN,
    seed: int = 0,
    expected_samples: int | None = None,
    differences: Sequence[str] = (),
) -> Changes:
    """Compare two models on the same problems; arguments and errors as in `compare`.

    Args:
        before: one result a problem.
        after: the same problems.
        ks: the K of Pass@K and Maj@K; the verdict is on the largest.
        margin: the change of reach that is taken for none.
        seed: of the resampling.
        expected_samples: of each problem; those with fewer are left out.
        differences: settings in which the evaluations differ, to be told.
    """
    ks = sorted(set(ks))
    comparison = compare(before, after, ks, seed=seed, expected_samples=expected_samples)
    pairs = pair(before, after, expected_samples=expected_samples)
    samples, largest = comparison.before.samples, ks[-1]
    old, new = [result.right for result in pairs.before], [result.right for result in pairs.after]
    partners = {result.problem_id: result for result in pairs.after}
    return Changes(
        comparison=comparison,
        verdict=judge(old, new, samples, largest, margin=margin) if len(old) > 1 and largest > 1 else None,
        gap=pass_gap(old, new, samples, largest, margin=margin, seed=seed),
        problems=problem_changes(pairs.before, pairs.after),
        breakdown={
            name: {
                value: compare(part, [partners[result.problem_id] for result in part], ks, seed=seed, expected_samples=samples)
                for value, part in parts.items()
            }
            for name, parts in by_group(pairs.before).items()
        },
        differences=tuple(differences),
    )
