"""Sampling and scoring a step's groups. Axes: P problems, G completions a group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from sharpen.ops.advantages import zero_variance
from sharpen.records import Group, Scores
from sharpen.rollout.engine import Sampling
from sharpen.rollout.rollout import Rollout
from sharpen.training.problem_stream import ProblemStream


class Scorer(Protocol):
    """Gives groups their rewards."""

    def score(self, groups: Sequence[Group], *, step: int = 1) -> Scores:
        """See `sharpen.rewards.score.Scorer.score`."""
        ...


@dataclass(frozen=True, kw_only=True)
class Collected:
    """A step's groups and their scores.

    Attributes:
        groups: P of them.
        scores: their rewards.
        replaced: how many groups were sampled and thrown away to find them.
        age: steps of training between the policy that sampled and the one that learns; 0 on-policy.
    """

    groups: list[Group]
    scores: Scores
    replaced: int
    age: int = 0


def collect(
    rollout: Rollout,
    scorer: Scorer,
    problems: ProblemStream,
    *,
    step: int,
    count: int,
    group_size: int,
    sampling: Sampling,
    refills: int = 0,
    on_progress: Callable[[int], None] | None = None,
) -> Collected:
    """Sample and score `count` groups; with refills, groups of zero variance give way to groups of the next problems (DAPO §3.2).

    Args:
        rollout: samples.
        scorer: scores.
        problems: where the next problems come from.
        step: of training, counted from 1.
        count: P.
        group_size: G.
        sampling: limits and temperature.
        refills: times that the groups of zero variance are replaced; what is still without variance then stays.
        on_progress: called with the number of completions that have just finished.
    """
    groups = rollout.sample(problems.take(count), group_size, sampling, step=step, on_progress=on_progress)
    scores = scorer.score(groups, step=step)
    replaced = 0
    for attempt in range(1, refills + 1):
        flat = zero_variance(scores.total).nonzero().squeeze(1).tolist()
        if not flat:
            break
        fresh = rollout.sample(problems.take(len(flat)), group_size, sampling, step=step, attempt=attempt, on_progress=on_progress)
        fresh_scores = scorer.score(fresh, step=step)
        replaced += len(flat)
        groups, scores = _replace(groups, scores, flat, fresh, fresh_scores)
    return Collected(groups=groups, scores=scores, replaced=replaced)


def _replace(
    groups: list[Group], scores: Scores, places: list[int], fresh: list[Group], fresh_scores: Scores
) -> tuple[list[Group], Scores]:
    groups = list(groups)
    answers = list(scores.answers)
    index = torch.tensor(places)
    steps = scores.steps
    if steps is not None and fresh_scores.steps is not None:
        new = dict(zip(places, fresh_scores.steps, strict=True))
        steps = tuple(new.get(place, old) for place, old in enumerate(steps))
    for place, group, found in zip(places, fresh, fresh_scores.answers, strict=True):
        groups[place], answers[place] = group, found
    logged: dict[str, tuple[tuple[object, ...], ...]] = {}
    for name in dict.fromkeys([*scores.logged, *fresh_scores.logged]):
        nothing = tuple((None,) * len(group.completions) for group in groups)
        rows = list(scores.logged.get(name, nothing))
        for row, place in enumerate(places):
            rows[place] = fresh_scores.logged[name][row] if name in fresh_scores.logged else nothing[place]
        logged[name] = tuple(rows)
    return groups, Scores(
        total=scores.total.index_copy(0, index, fresh_scores.total),
        parts={name: part.index_copy(0, index, fresh_scores.parts[name]) for name, part in scores.parts.items()},
        correct=scores.correct.index_copy(0, index, fresh_scores.correct),
        answers=tuple(answers),
        failures=scores.failures + fresh_scores.failures,
        steps=steps,
        logged=logged,
        metrics={
            name: (*scores.metrics.get(name, ()), *fresh_scores.metrics.get(name, ()))
            for name in dict.fromkeys([*scores.metrics, *fresh_scores.metrics])
        },
    )


def summary(collected: Collected) -> dict[str, float]:
    """What a step's rollout tells: rewards, pass rate, lengths (tokens), how completions ended, and what teaches nothing."""
    total, groups = collected.scores.total, collected.groups
    scorable = ~total.isnan()
    completions = [completion for group in groups for completion in group.completions]
    finished = sum(completion.finish_reason == "stop" for completion in completions)
    out = {
        "reward": float(total[scorable].mean()) if scorable.any() else float("nan"),
        "pass_rate": float(collected.scores.correct.double().mean()),
        "length": sum(len(completion.tokens) for completion in completions) / len(completions),
        "finished": finished / len(completions),
        **({"zero_variance": float(zero_variance(total).double().mean())} if total.shape[1] > 1 else {}),
        "age": float(collected.age),
        "unscorable": float((~scorable).sum()),
        "replaced_groups": float(collected.replaced),
    }
    for name, part in collected.scores.parts.items():
        known = ~part.isnan()
        out[f"reward/{name}"] = float(part[known].mean()) if known.any() else float("nan")
    for name, values in collected.scores.metrics.items():
        out[f"log/{name}"] = sum(values) / len(values)
    return out
