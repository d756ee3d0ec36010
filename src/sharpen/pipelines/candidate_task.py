"""The candidate run's task as tensors: features, rewards, and what a policy is worth on the held-out questions.

The reward of a candidate is 1 where its final answer is right by the grader, and else `PARTIAL_CREDIT` times the share of its equations
that hold. Axes: N questions, the n held-out ones last; C candidates; F features.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sharpen import streams
from sharpen.errors import ProblemError
from sharpen.evaluation.intervals import Estimate, Measure, change, estimate
from sharpen.grading import grade
from sharpen.models.candidate import CandidatePolicy
from sharpen.pipelines.parts import check_apart
from sharpen.problems import candidates
from sharpen.problems.candidate_data import WorkedProblems
from sharpen.problems.candidate_features import equations_that_hold, features
from sharpen.problems.candidates import CandidateQuestion

PARTIAL_CREDIT = 0.2
FIGURES = ("accuracy", "mean_reward", "expected_accuracy", "expected_reward", "kl_to_reference")


@dataclass(frozen=True, kw_only=True)
class CandidateTask:
    """Questions with candidates, as a policy and its rewards need them.

    Attributes:
        questions: N of them, those to train on first.
        trained: how many those are.
        features: float64 [N, C, F], standardised by the mean and deviation over the training questions.
        rewards: float64 [N, C].
        correct: bool [N, C].
        left_out: how many problems took no candidates, by split and reason.
    """

    questions: list[CandidateQuestion]
    trained: int
    features: Tensor
    rewards: Tensor
    correct: Tensor
    left_out: dict[str, dict[str, int]]

    @property
    def held_out(self) -> range:
        """The places of the held-out questions."""
        return range(self.trained, len(self.questions))


def make_task(problems: WorkedProblems, *, maximum: int, seed: int) -> CandidateTask:
    """The first `maximum` training problems that take candidates, and all held-out ones that do.

    Raises:
        ProblemError: none of a split does, or a held-out question is trained on as well.
    """
    train = candidates.build(problems.train, seed=seed, limit=maximum)
    held_out = candidates.build(problems.held_out, seed=seed)
    for split, built in (("train", train), ("held-out", held_out)):
        if not built.questions:
            raise ProblemError(
                f"{problems.origin}: no {split} problem takes candidate answers; {built.dropped or 'there are none'}.",
                fix="Give problems whose solutions have their equations in <<48/2=24>> and the answer after ####.",
            )
    check_apart([question.problem for question in train.questions], [question.problem for question in held_out.questions])
    questions = [*train.questions, *held_out.questions]
    correct = torch.tensor([[grade(q.problem, text).outcome == "right" for text in q.candidates] for q in questions])
    shares = torch.tensor([[equations_that_hold(text) for text in q.candidates] for q in questions], dtype=torch.float64)
    return CandidateTask(
        questions=questions,
        trained=len(train.questions),
        features=standardised(questions, trained=len(train.questions)),
        rewards=torch.where(correct, 1.0, PARTIAL_CREDIT * shares),
        correct=correct,
        left_out={"train": train.dropped, "held_out": held_out.dropped},
    )


def standardised(questions: Sequence[CandidateQuestion], *, trained: int) -> Tensor:
    """The features of all candidates, [N, C, F]: mean 0 and deviation 1 over the first `trained` questions; 0 where they are constant."""
    raw = torch.tensor([[features(q.problem.prompt, text) for text in q.candidates] for q in questions], dtype=torch.float64)
    seen = raw[:trained].flatten(0, 1)
    centred = raw - seen.mean(dim=0)
    deviation = seen.std(dim=0, correction=0)
    return torch.where(deviation > 1e-12, centred / deviation.clamp(min=1e-12), 0.0)


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What a policy is worth on the held-out questions.

    Attributes:
        measures: by question: `accuracy` and `mean_reward` of the most probable candidate (ties drawn by a seeded stream),
            `expected_accuracy` and `expected_reward` of a candidate drawn from the policy, and `kl_to_reference`, KL(π ‖ π_ref) in nats.
        choices: how many of the most probable candidates are of each origin.
    """

    measures: dict[str, Measure]
    choices: dict[str, int]

    def estimates(self, seed: int) -> dict[str, Estimate]:
        """Each measure's mean with its 95 % interval."""
        return {name: estimate(measure, seed=seed) for name, measure in self.measures.items()}

    def changes(self, after: Figures, seed: int) -> dict[str, Estimate]:
        """The change of each mean with its paired 95 % interval."""
        return {name: change(measure, after.measures[name], seed=seed) for name, measure in self.measures.items()}


def measure(task: CandidateTask, policy: CandidatePolicy, reference: CandidatePolicy, *, seed: int) -> Figures:
    """The figures of a policy on the held-out questions."""
    places = torch.tensor(list(task.held_out))
    probabilities, base = policy.distribution(places), reference.distribution(places)
    correct, rewards = task.correct[places], task.rewards[places]
    chosen = most_probable(probabilities, seed=seed)[:, None]
    values = (
        correct.gather(1, chosen).squeeze(1),
        rewards.gather(1, chosen).squeeze(1),
        (probabilities * correct).sum(dim=1),
        (probabilities * rewards).sum(dim=1),
        _kl(probabilities, base),
    )
    bounds = ((0.0, 1.0),) * 4 + ((0.0, float("inf")),)
    return Figures(
        measures={name: Measure(v.double().numpy(), bounds=b) for name, v, b in zip(FIGURES, values, bounds, strict=True)},
        choices=dict(Counter(task.questions[i].origins[c] for i, c in zip(task.held_out, chosen[:, 0].tolist(), strict=True))),
    )


def most_probable(probabilities: Tensor, *, seed: int) -> Tensor:
    """The most probable candidate of each question, [n, C] → int64 [n]; among equals, any, as a seeded stream draws."""
    lot = torch.from_numpy(streams.generator(seed, "ties").random(tuple(probabilities.shape)))
    best = probabilities == probabilities.max(dim=1, keepdim=True).values
    return torch.where(best, lot, -1.0).argmax(dim=1)


def _kl(p: Tensor, q: Tensor) -> Tensor:
    """KL(p ‖ q) of each row, with 0 · log 0 = 0."""
    return (torch.xlogy(p, p) - torch.xlogy(p, q)).sum(dim=1)
