"""Who wrote the completions that a step learns from: the current policy, the policy before training, or demonstrations.

Axes: P problems, G completions a group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from sharpen.errors import ProblemError
from sharpen.records import Completion, Group, Problem
from sharpen.rollout.engine import Sampling
from sharpen.rollout.rollout import Rollout
from sharpen.training.collect import Collected, Scorer, collect
from sharpen.training.problem_stream import ProblemStream

Progress = Callable[[int], None]


class Source(Protocol):
    """Gives a step its scored groups."""

    @property
    def problems(self) -> ProblemStream:
        """Where the next problems come from; its position is the checkpoint's."""
        ...

    def collect(self, step: int, sampling: Sampling, on_progress: Progress | None = None) -> Collected:
        """The groups of a step, counted from 1, and their rewards."""
        ...


@dataclass(frozen=True, kw_only=True)
class CurrentPolicy:
    """Samples from the policy as it is.

    Attributes:
        rollout: samples.
        scorer: scores.
        problems: where the next problems come from.
        count: P.
        group_size: G.
        refills: see `collect`.
    """

    rollout: Rollout
    scorer: Scorer
    problems: ProblemStream
    count: int
    group_size: int
    refills: int = 0

    def collect(self, step: int, sampling: Sampling, on_progress: Progress | None = None) -> Collected:
        """See `Source.collect`."""
        return collect(
            self.rollout,
            self.scorer,
            self.problems,
            step=step,
            count=self.count,
            group_size=self.group_size,
            sampling=sampling,
            refills=self.refills,
            on_progress=on_progress,
        )


@dataclass(frozen=True, kw_only=True)
class Stored:
    """Groups that were sampled once, before training; each epoch over the problems meets the same completions again.

    Attributes:
        groups: by problem id.
        scorer: scores.
        problems: where the next problems come from.
        count: P.
    """

    groups: Mapping[str, Group]
    scorer: Scorer
    problems: ProblemStream
    count: int

    def collect(self, step: int, sampling: Sampling, on_progress: Progress | None = None) -> Collected:
        """See `Source.collect`; the policy that sampled is as old as the training."""
        taken = [self.groups[problem.id] for problem in self.problems.take(self.count)]
        groups = [replace(group, id=f"{step}/{position}/0") for position, group in enumerate(taken)]
        return Collected(groups=groups, scores=self.scorer.score(groups, step=step), replaced=0, age=step - 1)


@dataclass(frozen=True, kw_only=True)
class Demonstrations:
    """The problems' own worked solutions, one a problem, so groups of one.

    Attributes:
        demonstrate: a problem's solution as a completion.
        render: a problem's prompt tokens.
        scorer: scores.
        problems: where the next problems come from.
        count: problems a step.
    """

    demonstrate: Callable[[Problem], Completion]
    render: Callable[[Problem], tuple[int, ...]]
    scorer: Scorer
    problems: ProblemStream
    count: int

    def collect(self, step: int, sampling: Sampling, on_progress: Progress | None = None) -> Collected:
        """See `Source.collect`."""
        groups = [
            Group(
                id=f"{step}/{position}/0",
                problem=problem,
                prompt_tokens=self.render(problem),
                completions=(self.demonstrate(problem),),
            )
            for position, problem in enumerate(self.problems.take(self.count))
        ]
        return Collected(groups=groups, scores=self.scorer.score(groups, step=step), replaced=0)


def needed(problems: Sequence[Problem], seed: int, count: int) -> list[Problem]:
    """The different problems among the first `count` that training will meet, in that order."""
    return list({problem.id: problem for problem in ProblemStream(problems, seed).take(min(count, len(problems)))}.values())


def demonstration(problem: Problem, tokenizer: Any, stop_id: int, limit: int) -> Completion:
    """A problem's worked solution as a completion that ends by itself; nobody sampled it, so its log-probabilities are NaN.

    Args:
        problem: with the solution as `meta["solution"]`.
        tokenizer: a Hugging Face tokenizer.
        stop_id: ends it.
        limit: of a completion in tokens.

    Raises:
        ProblemError: no solution, or one that is longer than the limit.
    """
    text = problem.meta.get("solution")
    if not isinstance(text, str) or not text.strip():
        raise ProblemError(
            f"problem {problem.id}: no worked solution, and demonstrations are what this method learns from.",
            fix='Give problems with a field "solution", or choose a method that samples, such as grpo or rft.',
        )
    tokens = (*tokenizer(text, add_special_tokens=False)["input_ids"], stop_id)
    if len(tokens) > limit:
        raise ProblemError(
            f"problem {problem.id}: its solution has {len(tokens)} tokens, and rollout.max_new_tokens is {limit}.",
            fix=f"Set rollout.max_new_tokens to at least {len(tokens)}, or leave such problems out.",
        )
    return Completion(tokens=tokens, sampling_logprobs=(float("nan"),) * len(tokens), text=text, finish_reason="stop")
