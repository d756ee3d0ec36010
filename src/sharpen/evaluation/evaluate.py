"""Sampling and grading a set of problems. Axes: P problems, K samples of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from sharpen.evaluation.summary import ProblemResult
from sharpen.grading import SandboxKind, Verdict, shared
from sharpen.grading.votes import votes
from sharpen.records import Group, Problem, Scores, groups_of
from sharpen.rollout.engine import Sampling
from sharpen.rollout.rollout import Rollout


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The samples of a set of problems, graded.

    Attributes:
        groups: P groups of K completions.
        scores: 1 for right and 0 for wrong, in the shape of rewards; NaN where the grader could not tell.
        results: the same by problem, as `summarise` and `compare` take them.
    """

    groups: list[Group]
    scores: Scores
    results: list[ProblemResult]

    @property
    def pass_rates(self) -> dict[str, float]:
        """The share of right completions of each problem, by its id."""
        return {result.problem_id: sum(result.correct) / result.samples for result in self.results}


def evaluate(
    rollout: Rollout,
    problems: Sequence[Problem],
    samples: int,
    sampling: Sampling,
    *,
    stream: str = "evaluation",
    first: int = 0,
    require_stop: bool = True,
    grader: Callable[[Problem, str], Verdict] | None = None,
    sandbox: SandboxKind = "bubblewrap",
    on_progress: Callable[[int], None] | None = None,
) -> Evaluation:
    """Sample K completions of each problem and grade them.

    The streams do not depend on training, so two models are compared on the same draws.

    Args:
        rollout: samples with the weights of the moment.
        problems: P of them, with distinct ids.
        samples: K.
        sampling: limits and temperature.
        stream: names the random streams, so that different uses draw apart.
        first: the position of the first problem, where these are a part of a longer list.
        require_stop: a completion that the limit cut has no answer yet: it is neither right nor a vote.
        grader: judges a completion's text; the shared pool of grading workers does when None.
        sandbox: where the pool runs the code of completions.
        on_progress: called with the number of completions that have just finished.
    """
    groups = rollout.sample(problems, samples, sampling, stream=stream, first=first, on_progress=on_progress)
    verdicts = iter(_verdicts([(group.problem, one.text) for group in groups for one in group.completions], grader, sandbox))
    found: list[list[str | None]] = []
    rewards: list[list[float]] = []
    reasons: list[tuple[str, ...]] = []
    for group in groups:
        why: list[str] = []
        answers: list[str | None] = []
        values: list[float] = []
        for completion in group.completions:
            judged = next(verdicts)
            why.append(judged.reason)
            counts = completion.finish_reason == "stop" or not require_stop
            answers.append(judged.extracted if counts else None)
            values.append(float("nan") if judged.outcome == "unscorable" else float(judged.outcome == "right" and counts))
        found.append(answers)
        rewards.append(values)
        reasons.append(tuple(why))
    counted = votes([(group.problem, answers) for group, answers in zip(groups, found, strict=True)], shared().grade_all)
    results = [
        ProblemResult(
            problem_id=group.problem.id,
            answers=answers,
            correct=tuple(value == 1.0 for value in values),
            finished=tuple(completion.finish_reason == "stop" for completion in group.completions),
            lengths=tuple(len(completion.tokens) for completion in group.completions),
            groups=groups_of(group.problem),
        )
        for group, answers, values in zip(groups, counted, rewards, strict=True)
    ]
    total = torch.tensor(rewards, dtype=torch.float64).reshape(len(groups), samples)
    answers_all = tuple(result.answers for result in results)
    scores = Scores(total=total, parts={}, correct=total == 1.0, answers=answers_all, logged={"reason": tuple(reasons)})
    return Evaluation(groups=groups, scores=scores, results=results)


def _verdicts(
    items: Sequence[tuple[Problem, str]], grader: Callable[[Problem, str], Verdict] | None, sandbox: SandboxKind
) -> list[Verdict]:
    return shared().grade_all(items, sandbox=sandbox) if grader is None else [grader(problem, text) for problem, text in items]
