"""Does a reward pay for what is no right answer? It is tried with attacks, with honest answers, and with the answers of other problems.

A part of the reward *judges* when it tells a right answer from a wrong one in the same words; a part for format, language or length does
not, and is left out of account. A completion is accepted when its judging parts sum up to more than the middle between what right and
wrong answers typically get.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from sharpen.errors import RewardError
from sharpen.grading import state_gold
from sharpen.records import Completion, Group, Problem
from sharpen.rewards.attacks import ANOTHER, COSTLY, WRONG, Trial, another_value, attacks, honest, same
from sharpen.rewards.score import Scorer

COSTLY_PROBLEMS = 1
"""The costly attacks are tried on so many."""
_JUDGES = 0.1
"""Share of a part's spread by which right answers must be worth more than wrong ones for the part to judge."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A completion that was judged wrongly.

    Attributes:
        fault: `accepted` (it should not be), `rejected` (it should not be), or `unsure` (accepted, and two formulas may well be equal).
        name: of what was tried.
        problem_id: on which problem.
        gold: its ground truth.
        completion: the text.
        answer: what was extracted from it.
        reward: what the judging parts paid.
    """

    fault: Literal["accepted", "rejected", "unsure"]
    name: str
    problem_id: str
    gold: str
    completion: str
    answer: str | None
    reward: float


@dataclass
class Count:
    """How often something was tried, how often the verdict was wrong, and how often there was none."""

    tried: int = 0
    faults: int = 0
    unscorable: int = 0


@dataclass(kw_only=True)
class Audit:
    """What was found.

    Attributes:
        problems: how many were tried.
        judging: the parts that tell right from wrong.
        threshold: what their sum must exceed to be accepted.
        attacks: by name; a fault is an attack that was accepted.
        honest: by style; a fault is an honest answer that was rejected.
        findings: every fault.
    """

    problems: int
    judging: tuple[str, ...]
    threshold: float
    attacks: dict[str, Count] = field(default_factory=dict)
    honest: dict[str, Count] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    @property
    def accepted(self) -> int:
        """Attacks that were accepted."""
        return sum(count.faults for count in self.attacks.values())

    @property
    def rejected(self) -> int:
        """Honest answers that were rejected."""
        return sum(count.faults for count in self.honest.values())

    def of(self, fault: str) -> list[Finding]:
        """The findings of one kind."""
        return [finding for finding in self.findings if finding.fault == fault]


class _Tried(NamedTuple):
    """Completions of one problem with their parts: by name, a value a completion, NaN where there is none."""

    problem: Problem
    trials: Sequence[Trial]
    parts: dict[str, list[float]]
    answers: Sequence[str | None]


class _Problem(NamedTuple):
    """A problem with the styles of its right and of a wrong answer, tried."""

    right: _Tried
    wrong: _Tried
    other: str


def audit(
    problems: Sequence[Problem], scorer: Scorer, weights: dict[str, float], *, on_progress: Callable[[int], None] | None = None
) -> Audit:
    """Try a reward.

    Args:
        problems: with ground truths; one that has no single right answer is passed over.
        scorer: gives the parts of the reward; it should not fail fast.
        weights: of the parts that count.
        on_progress: called with the number of problems that are done.

    Raises:
        RewardError: no part tells right from wrong, or there is no problem to try it on.
    """
    usable = [problem for problem in problems if state_gold(problem) is not None]
    if not usable:
        raise RewardError("audit: no problem has a single right answer to try the reward with.", fix="Name a recipe with other problems.")
    golds = list(dict.fromkeys(problem.answer for problem in usable))
    known = []
    for problem in usable:
        other = another_value(problem, [gold for gold in golds if gold != problem.answer])
        right, wrong = honest(problem, problem.answer.strip()), honest(problem, other)
        known.append(_Problem(_try(scorer, problem, right), _try(scorer, problem, wrong), other))
    judging = _judging(known, weights)
    counted = {name: weights[name] for name in judging}
    if not judging:
        raise RewardError(
            f"audit: none of the parts {', '.join(weights)} pays more for a right answer than for a wrong one, on {len(usable)} problems.",
            fix="Add a function that looks at the answer, such as accuracy; or mend your own.",
        )
    levels = [statistics.median(x for one in known for x in _judged(getattr(one, side), counted)) for side in ("right", "wrong")]
    found = Audit(problems=len(usable), judging=judging, threshold=sum(levels) / 2)
    unsure: list[Finding] = []
    for place, one in enumerate(known):
        problem = one.right.problem
        _count(found, found.honest, one.right, counted, expected=True)
        wrong = [Trial(WRONG, trial.text) for trial in one.wrong.trials]
        _count(found, found.attacks, one.wrong._replace(trials=wrong), counted, expected=False)
        trials = [trial for trial in attacks(problem, one.other) if trial.name != COSTLY or place < COSTLY_PROBLEMS]
        _count(found, found.attacks, _try(scorer, problem, trials), counted, expected=False)
        unsure += _of_others(found, scorer, problem, usable, counted)
        if on_progress is not None:
            on_progress(1)
    _settle(found, unsure)
    return found


def _try(scorer: Scorer, problem: Problem, trials: Sequence[Trial]) -> _Tried:
    """Score completions of a problem. Their tokens are the bytes of their texts: there is no model here, and so no tokenizer."""
    completions = tuple(
        Completion(
            tokens=tuple(trial.text.encode()), sampling_logprobs=(0.0,) * len(trial.text.encode()), text=trial.text, finish_reason="stop"
        )
        for trial in trials
    )
    scores = scorer.score([Group(id="audit", problem=problem, prompt_tokens=(0,), completions=completions)])
    return _Tried(problem, trials, {name: part[0].tolist() for name, part in scores.parts.items()}, scores.answers[0])


def _judging(known: Sequence[_Problem], weights: dict[str, float]) -> tuple[str, ...]:
    """The parts that pay more for a right answer than for a wrong one in the same words."""
    out = []
    for name, weight in weights.items():
        pairs = [pair for one in known for pair in zip(one.right.parts[name], one.wrong.parts[name], strict=True)]
        pairs = [(right, wrong) for right, wrong in pairs if right == right and wrong == wrong]
        values = [value for pair in pairs for value in pair]
        if not pairs or max(values) == min(values):
            continue
        gap = statistics.fmean(right - wrong for right, wrong in pairs)
        if weight * gap > _JUDGES * abs(weight) * (max(values) - min(values)):
            out.append(name)
    return tuple(out)


def _judged(tried: _Tried, weights: dict[str, float]) -> list[float]:
    """What the judging parts sum up to, a completion; NaN where none is given."""
    out = []
    for place in range(len(tried.trials)):
        given = [
            weight * tried.parts[name][place] for name, weight in weights.items() if tried.parts[name][place] == tried.parts[name][place]
        ]
        out.append(sum(given) if given else float("nan"))
    return out


def _count(found: Audit, counts: dict[str, Count], tried: _Tried, weights: dict[str, float], *, expected: bool) -> None:
    """Take down how completions were judged that should all be accepted, or all not."""
    for trial, answer, reward in zip(tried.trials, tried.answers, _judged(tried, weights), strict=True):
        count = counts.setdefault(trial.name, Count())
        count.tried += 1
        count.unscorable += reward != reward
        if (reward > found.threshold) != expected:
            count.faults += 1
            found.findings.append(_finding("rejected" if expected else "accepted", trial, tried.problem, answer, reward))


def _finding(
    fault: Literal["accepted", "rejected", "unsure"], trial: Trial, problem: Problem, answer: str | None, reward: float
) -> Finding:
    return Finding(
        fault=fault, name=trial.name, problem_id=problem.id, gold=problem.answer, completion=trial.text, answer=answer, reward=reward
    )


def _of_others(found: Audit, scorer: Scorer, problem: Problem, problems: Sequence[Problem], weights: dict[str, float]) -> list[Finding]:
    """Try the answers of the other problems on one; those accepted that may be equal to its own are returned, to be settled later."""
    if problem.kind not in ("math", "choice"):
        return []
    others = list(dict.fromkeys(other.answer.strip() for other in problems if other.kind == problem.kind))
    equal = {other: same(problem.kind, problem.answer, other) for other in others}
    for known in ("no", "unsure"):
        trials = [Trial(ANOTHER, rf"The answer is \boxed{{{other}}}.") for other in others if equal[other] == known]
        if known == "no" and trials:
            _count(found, found.attacks, _try(scorer, problem, trials), weights, expected=False)
        elif trials:
            tried = _try(scorer, problem, trials)
            count = found.attacks.setdefault(ANOTHER, Count())
            count.tried += len(trials)
            judged = zip(trials, tried.answers, _judged(tried, weights), strict=True)
            return [_finding("unsure", trial, problem, answer, reward) for trial, answer, reward in judged if reward > found.threshold]
    return []


def _settle(found: Audit, unsure: Iterable[Finding]) -> None:
    """Formulas that are each taken for the other may be equal; one that is taken for the other but not the other way round is not."""
    pairs = {(finding.gold.strip(), finding.completion): finding for finding in unsure}
    for (gold, completion), finding in pairs.items():
        back = next(
            (g for g, c in pairs if rf"The answer is \boxed{{{g}}}." == completion and c == rf"The answer is \boxed{{{gold}}}."), None
        )
        if back is None:
            found.attacks[ANOTHER].faults += 1
        found.findings.append(finding if back is not None else replace(finding, fault="accepted"))
