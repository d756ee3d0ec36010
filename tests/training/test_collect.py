"""Sampling and scoring a step's groups, and refilling those that teach nothing."""

from __future__ import annotations

import math

import pytest
import torch

from sharpen.records import Completion, Group, Problem, Scores
from sharpen.rollout.engine import Sampling
from sharpen.training.collect import Collected, collect, summary
from sharpen.training.problem_stream import ProblemStream

PROBLEMS = [Problem(id=str(i), prompt=f"q{i}", answer="a") for i in range(50)]


class Rollout:
    """Completions whose text is the problem's id."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []

    def sample(self, problems, group_size, sampling, *, step, attempt=0, on_progress=None) -> list[Group]:
        self.calls.append((len(problems), attempt))
        one = Completion(tokens=(1, 2), sampling_logprobs=(0.0, 0.0), text="", finish_reason="stop")
        return [
            Group(id=f"{step}/{i}/{attempt}", problem=p, prompt_tokens=(1,), completions=(one,) * group_size)
            for i, p in enumerate(problems)
        ]


class EvenProblemsTeach:
    """Problems with an even id give rewards 1 and 0, the others 1 and 1."""

    def score(self, groups, *, step=1) -> Scores:
        total = torch.tensor([[1.0, float(int(group.problem.id) % 2)] for group in groups], dtype=torch.float64)
        return Scores(total=total, parts={"r": total}, correct=total > 0, answers=tuple((None, None) for _ in groups))


def run(refills: int) -> tuple[Rollout, Collected, ProblemStream]:
    rollout, stream = Rollout(), ProblemStream(PROBLEMS, 0)
    collected = collect(
        rollout, EvenProblemsTeach(), stream, step=3, count=6, group_size=2, sampling=Sampling(max_new_tokens=2), refills=refills
    )
    return rollout, collected, stream


def test_without_refills_every_group_stays() -> None:
    rollout, collected, stream = run(0)
    assert rollout.calls == [(6, 0)]
    assert stream.position == 6
    assert collected.replaced == 0


def test_groups_of_zero_variance_give_way_to_other_problems() -> None:
    _, plain, _ = run(0)
    flat = [i for i, group in enumerate(plain.groups) if int(group.problem.id) % 2]
    assert flat  # the seed gives some
    rollout, collected, stream = run(20)
    assert all(int(group.problem.id) % 2 == 0 for group in collected.groups)
    assert len({group.id for group in collected.groups}) == 6
    assert rollout.calls[:2] == [(6, 0), (len(flat), 1)]
    assert collected.replaced == sum(count for count, attempt in rollout.calls if attempt)
    assert stream.position == sum(count for count, _ in rollout.calls)
    # rewards moved with their groups, and groups that taught stayed where they were
    assert collected.scores.total.tolist() == [[1.0, 0.0]] * 6
    for i, group in enumerate(plain.groups):
        if i not in flat:
            assert collected.groups[i] == group


def test_summary_by_hand() -> None:
    long = Completion(tokens=(1, 2, 3, 4), sampling_logprobs=(0.0,) * 4, text="", finish_reason="length")
    short = Completion(tokens=(1, 2), sampling_logprobs=(0.0,) * 2, text="", finish_reason="stop")
    groups = [Group(id=str(i), problem=PROBLEMS[i], prompt_tokens=(1,), completions=(long, short)) for i in range(2)]
    total = torch.tensor([[1.0, 0.5], [math.nan, 0.0]], dtype=torch.float64)
    scores = Scores(total=total, parts={"r": total}, correct=torch.tensor([[True, False], [False, False]]), answers=((None,) * 2,) * 2)
    got = summary(Collected(groups=groups, scores=scores, replaced=4))
    # rewards 1, 0.5, 0 without the unscorable one; lengths 4, 2, 4, 2; the second group has one scorable reward, so no variance
    assert got == {
        "reward": 0.5, "pass_rate": 0.25, "length": 3.0, "finished": 0.5, "zero_variance": 0.5, "unscorable": 1.0, "replaced_groups": 4.0,
        "age": 0.0, "reward/r": 0.5,
    }  # fmt: skip


@pytest.mark.parametrize(("size", "share"), [(2, 0.70), (4, 0.45), (8, 0.20), (16, 0.04)])
def test_the_share_of_groups_that_teach_nothing(size: int, share: float) -> None:
    """At a pass rate of 0.18: p^G + (1 − p)^G."""
    assert 0.18**size + 0.82**size == pytest.approx(share, abs=0.006)
