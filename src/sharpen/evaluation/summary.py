"""What a model does on a set of problems, in a few numbers with intervals; and what training changed.

Axes: n samples of each problem, K samples looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from sharpen import streams
from sharpen.errors import SharpenError
from sharpen.evaluation.intervals import Estimate, Measure, change, estimate
from sharpen.evaluation.pass_at_k import maj_at_ks, pass_at_k

T = TypeVar("T")
S = TypeVar("S")
U = TypeVar("U")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemResult:
    """The graded samples of one problem.

    Attributes:
        problem_id: the problem's id, for example `gsm8k/test/17`.
        answers: n normalised answers, None where a completion has none; equal strings are votes for one answer.
        correct: n verdicts; a completion without an answer is not correct.
        finished: n flags, whether the completion ended by itself.
        lengths: n completion lengths in tokens.
        groups: what the problem belongs to, for figures by level and subject: `{"level": "3", "subject": "Algebra"}`.
    """

    problem_id: str
    answers: tuple[str | None, ...]
    correct: tuple[bool, ...]
    finished: tuple[bool, ...]
    lengths: tuple[int, ...]
    groups: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what does not fit together."""
        counts = [len(self.answers), len(self.correct), len(self.finished), len(self.lengths)]
        if len(set(counts)) != 1:
            raise ValueError(
                f"Problem {self.problem_id}: answers, correct, finished, lengths have {counts} entries; expected one a sample each."
            )
        if any(right and answer is None for answer, right in zip(self.answers, self.correct, strict=True)):
            raise ValueError(f"Problem {self.problem_id}: a sample without an answer is marked correct.")

    @property
    def samples(self) -> int:
        """How many completions were sampled."""
        return len(self.answers)

    @property
    def right(self) -> int:
        """How many of them are right."""
        return sum(self.correct)


@dataclass(frozen=True, kw_only=True)
class Figures(Generic[T]):
    """One `T` for every quantity that is measured, say its estimate or the estimate of its change.

    Attributes:
        pass_at_k: by K, the mean over problems of the unbiased Pass@K.
        maj_at_k: by K, the mean over problems of the expected majority vote.
        finished: the share of completions that ended by themselves.
        right_given_finished: completions that are right and finished over those that finished, sums over sums.
        mean_length: the mean length of a completion in tokens.
    """

    pass_at_k: Mapping[int, T]
    maj_at_k: Mapping[int, T]
    finished: T
    right_given_finished: T
    mean_length: T

    def each(self, function: Callable[[T], U]) -> Figures[U]:
        """The function of every quantity."""
        return self.paired(self, lambda quantity, _: function(quantity))

    def paired(self, other: Figures[S], function: Callable[[T, S], U]) -> Figures[U]:
        """The function of every quantity here and the same quantity there."""
        return Figures(
            pass_at_k={k: function(quantity, other.pass_at_k[k]) for k, quantity in self.pass_at_k.items()},
            maj_at_k={k: function(quantity, other.maj_at_k[k]) for k, quantity in self.maj_at_k.items()},
            finished=function(self.finished, other.finished),
            right_given_finished=function(self.right_given_finished, other.right_given_finished),
            mean_length=function(self.mean_length, other.mean_length),
        )


@dataclass(frozen=True, kw_only=True)
class Summary(Figures[Estimate]):
    """What a model does on a set of problems: every quantity as an estimate with its 95 % interval over problems.

    Attributes:
        problems: how many problems the numbers are from.
        samples: n, how many samples of each.
        short: problems with fewer samples than asked for and how many they have, by id; they are in none of the numbers.
    """

    problems: int
    samples: int
    short: Mapping[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; write them with sorted keys."""
        return _figures_to_dict(self) | {"problems": self.problems, "samples": self.samples, "short": dict(self.short)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Summary:
        """The summary that `to_dict` wrote."""
        figures = vars(_figures_from_dict(data))
        return cls(**figures, problems=data["problems"], samples=data["samples"], short=dict(data["short"]))


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The same problems before and after training.

    Attributes:
        before: the model before, on the problems that are complete in both.
        after: the model after, on the same problems.
        change: after − before, paired by problem, with the interval of the change.
    """

    before: Summary
    after: Summary
    change: Figures[Estimate]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; write them with sorted keys."""
        return {"before": self.before.to_dict(), "after": self.after.to_dict(), "change": _figures_to_dict(self.change)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Comparison:
        """The comparison that `to_dict` wrote."""
        before, after = Summary.from_dict(data["before"]), Summary.from_dict(data["after"])
        return cls(before=before, after=after, change=_figures_from_dict(data["change"]))


def summarise(results: Sequence[ProblemResult], ks: Iterable[int], *, seed: int = 0, expected_samples: int | None = None) -> Summary:
    """Sum up one model's results.

    Args:
        results: one a problem.
        ks: the K of Pass@K and Maj@K, each 1 to n.
        seed: of the resampling, and of Maj@K's subsets where it is not exact.
        expected_samples: n. A problem with fewer is listed in `short` and left out of every number. When None, all must have equally many.

    Returns:
        The summary; the same for the same results in any order of the samples.

    Raises:
        SharpenError: for mixed numbers of samples, a problem given twice, a K that n samples cannot tell, or nothing to measure.
    """
    by_id = _by_id(results)
    complete, short = _split(by_id, expected_samples or _common_samples(results))
    return _summary(_measures(complete, ks, seed), complete, short, seed)


def compare(
    before: Sequence[ProblemResult],
    after: Sequence[ProblemResult],
    ks: Iterable[int],
    *,
    seed: int = 0,
    expected_samples: int | None = None,
) -> Comparison:
    """Compare two models on the same problems.

    Args:
        before: one result a problem.
        after: the same problems, in any order.
        ks: the K of Pass@K and Maj@K.
        seed: as in `summarise`.
        expected_samples: n, as in `summarise`; a problem that is short in either is left out of both.

    Returns:
        Both summaries and the paired change.

    Raises:
        SharpenError: as in `summarise`, and when the problems differ.
    """
    pairs, ks = pair(before, after, expected_samples=expected_samples), list(ks)
    was, now = _measures(pairs.before, ks, seed), _measures(pairs.after, ks, seed)
    return Comparison(
        before=_summary(was, pairs.before, pairs.short_before, seed),
        after=_summary(now, pairs.after, pairs.short_after, seed),
        change=was.paired(now, lambda one, other: change(one, other, seed=seed)),
    )


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """The results of two models on the same problems, in the same order; those short of samples in either apart."""

    before: list[ProblemResult]
    after: list[ProblemResult]
    short_before: Mapping[str, int]
    short_after: Mapping[str, int]


def pair(before: Sequence[ProblemResult], after: Sequence[ProblemResult], *, expected_samples: int | None = None) -> Pairs:
    """Put the results of two models side by side, by problem id; errors as in `compare`."""
    old, new = _by_id(before), _by_id(after)
    if old.keys() != new.keys():
        only = [f"{when} {_names(one.keys() - other.keys())}" for when, one, other in (("before", old, new), ("after", new, old))]
        raise SharpenError(
            f"A comparison needs the same problems before and after. Only {'; only '.join(only)}.",
            fix="Evaluate both models on the same problem file.",
        )
    samples = expected_samples or _common_samples([*before, *after])
    (complete, old_short), (_, new_short) = _split(old, samples), _split(new, samples)
    complete = _nonempty([result for result in complete if result.problem_id not in new_short])
    partners = [new[result.problem_id] for result in complete]
    return Pairs(before=complete, after=partners, short_before=old_short, short_after=new_short)


def by_group(results: Sequence[ProblemResult]) -> dict[str, dict[str, list[ProblemResult]]]:
    """The results by level and by subject, as in `{"level": {"1": [...], "2": [...]}}`; a name under which all are alike is left out."""
    found: dict[str, dict[str, list[ProblemResult]]] = {}
    for result in results:
        for name, value in result.groups.items():
            found.setdefault(name, {}).setdefault(value, []).append(result)
    return {name: dict(sorted(parts.items(), key=_natural)) for name, parts in sorted(found.items()) if len(parts) > 1}


def _natural(item: tuple[str, Any]) -> tuple[int, float, str]:
    """Numbers by their size, before words."""
    try:
        return 0, float(item[0]), item[0]
    except ValueError:
        return 1, 0.0, item[0]


def _names(ids: Iterable[str], shown: int = 10) -> str:
    """How many ids, and their names, but no more than ten of them: "2: `a`, `b`"."""
    ordered = sorted(ids)
    more = f" and {len(ordered) - shown} more" if len(ordered) > shown else ""
    return f"{len(ordered)}: {', '.join(f'`{name}`' for name in ordered[:shown])}{more}" if ordered else "none"


def _by_id(results: Iterable[ProblemResult]) -> dict[str, ProblemResult]:
    by_id: dict[str, ProblemResult] = {}
    for result in results:
        if result.problem_id in by_id:
            raise SharpenError(f"Problem `{result.problem_id}` has two results.", fix="Give all its samples in one result.")
        by_id[result.problem_id] = result
    return by_id


def _common_samples(results: Iterable[ProblemResult]) -> int:
    """The number of samples that every problem has."""
    counts = {result.samples: result.problem_id for result in results}
    if len(counts) > 1:
        (fewest, poor), (most, rich) = min(counts.items()), max(counts.items())
        raise SharpenError(
            f"Problems with different numbers of samples cannot be averaged: `{rich}` has {most} and `{poor}` has {fewest}.",
            fix="Sample each problem equally often, or give expected_samples to list the short ones and leave them out.",
        )
    return next(iter(counts), 0)


def _split(by_id: Mapping[str, ProblemResult], samples: int) -> tuple[list[ProblemResult], dict[str, int]]:
    """The complete problems and the sample count of each short one, both by id, so that the order given does not matter."""
    ordered = dict(sorted(by_id.items()))
    for name, result in ordered.items():
        if result.samples > samples:
            raise SharpenError(f"Problem `{name}` has {result.samples} samples; expected {samples}.", fix="Give the samples of one run.")
    complete = [result for result in ordered.values() if result.samples == samples > 0]
    return _nonempty(complete), {name: result.samples for name, result in ordered.items() if result.samples < samples}


def _nonempty(results: list[ProblemResult]) -> list[ProblemResult]:
    if not results:
        raise SharpenError("There is no problem with all its samples to measure.", fix="Evaluate at least one problem.")
    return results


def _measures(results: Sequence[ProblemResult], ks: Iterable[int], seed: int) -> Figures[Measure]:
    """Every quantity as a ratio of sums over these problems, all with n samples."""
    n, ks = results[0].samples, sorted(set(ks))
    for k in ks:
        if not 1 <= k <= n:
            raise SharpenError(
                f"K = {k} cannot be measured with {n} samples a problem.", fix=f"Draw more samples, or ask for K from 1 to {n}."
            )
    right = [result.right for result in results]
    votes = [maj_at_ks(result.answers, result.correct, ks, seed=streams.derive(seed, result.problem_id)) for result in results]
    finished = [sum(result.finished) for result in results]
    both = [sum(c and f for c, f in zip(result.correct, result.finished, strict=True)) for result in results]
    return Figures(
        pass_at_k={k: Measure([pass_at_k(n, c, k) for c in right], step=k / n) for k in ks},
        maj_at_k={k: Measure([vote[k] for vote in votes], step=k / n) for k in ks},
        finished=Measure([count / n for count in finished]),
        right_given_finished=Measure(both, finished),
        mean_length=Measure([sum(result.lengths) / n for result in results], bounds=(0.0, float("inf"))),
    )


def _summary(measures: Figures[Measure], results: Sequence[ProblemResult], short: Mapping[str, int], seed: int) -> Summary:
    estimates = measures.each(lambda measure: estimate(measure, seed=seed))
    return Summary(**vars(estimates), problems=len(results), samples=results[0].samples, short=short)


def _figures_to_dict(figures: Figures[Estimate]) -> dict[str, Any]:
    by_k = {name: {str(k): value.to_dict() for k, value in getattr(figures, name).items()} for name in ("pass_at_k", "maj_at_k")}
    return by_k | {name: getattr(figures, name).to_dict() for name in ("finished", "right_given_finished", "mean_length")}


def _figures_from_dict(data: Mapping[str, Any]) -> Figures[Estimate]:
    def by_k(name: str) -> dict[int, Estimate]:
        return {int(k): Estimate.from_dict(value) for k, value in sorted(data[name].items(), key=lambda item: int(item[0]))}

    return Figures(
        pass_at_k=by_k("pass_at_k"),
        maj_at_k=by_k("maj_at_k"),
        finished=Estimate.from_dict(data["finished"]),
        right_given_finished=Estimate.from_dict(data["right_given_finished"]),
        mean_length=Estimate.from_dict(data["mean_length"]),
    )
