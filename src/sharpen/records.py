"""The frozen records that the rooms hand to each other.

Axes: P problems, G completions a group, B sequences (B = P · G), T tokens of a completion.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:  # a process that only grades holds problems and no tensors: it is spared the time and memory of torch
    import torch
    from torch import Tensor

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    r"""A prompt with what is needed to judge an answer.

    Attributes:
        id: unique among the problems of a run, for example `gsm8k/train/17`.
        prompt: the question as text, before any template.
        answer: the ground truth, for example `72` or `\frac{1}{2}`.
        kind: which grader judges it (`math`, `reasoning_gym`).
        meta: anything else the source knows (level, subject, generator entry); passed on to reward functions.
    """

    id: str
    prompt: str
    answer: str
    kind: str = "math"
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One sampled answer.

    Attributes:
        tokens: the sampled token ids, the stop token included when there is one, for example `(5, 6, 2)`.
        sampling_logprobs: the engine's log π(token) in nats at the sampling temperature, one a token.
        text: the tokens as text, without the stop token.
        finish_reason: `stop` when a stop token ended it, `length` when the limit cut it.
    """

    tokens: tuple[int, ...]
    sampling_logprobs: tuple[float, ...]
    text: str
    finish_reason: FinishReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The G completions of one problem, sampled together.

    Attributes:
        id: explicit and unique in a run, `step/position/attempt`; the prompt's text is never a key.
        problem: the problem.
        prompt_tokens: the token ids the completions continue, template included.
        completions: G of them.
    """

    id: str
    problem: Problem
    prompt_tokens: tuple[int, ...]
    completions: tuple[Completion, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardFailure:
    """A reward that could not be given: which function, on which problem and completion, and why."""

    function: str
    problem_id: str
    index: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """The rewards of P groups of G completions.

    Attributes:
        total: float64 [P, G], the weighted sum of the parts; NaN marks an unscorable completion (never a 0).
        parts: float64 [P, G] each, by the reward function's name, before weights.
        correct: bool [P, G], whether the answer is right by the problem's own grader.
        answers: P lists of G extracted answers, None where a completion has none.
        failures: every part that could not be given.
        steps: P lists of G lists of step rewards, each (index of the step's last token, value): `((3, 1.0), (9, 0.0))` for a completion of
            ten tokens in two steps. None when steps are not judged.
        logged: P lists of G values each, by name: what reward functions wrote down of each completion.
        metrics: numbers that reward functions wrote down of the whole, by name.
    """

    total: Tensor
    parts: Mapping[str, Tensor]
    correct: Tensor
    answers: tuple[tuple[str | None, ...], ...]
    failures: tuple[RewardFailure, ...] = ()
    steps: tuple[tuple[tuple[tuple[int, float], ...], ...], ...] | None = None
    logged: Mapping[str, tuple[tuple[Any, ...], ...]] = field(default_factory=dict)
    metrics: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingBatch:
    """What a loss is computed from. Completions only: prompts are context, and never enter a loss, a KL, an entropy or a mean.

    Attributes:
        prompts: the prompt's token ids, one a group.
        group_index: int64 [B], which of `prompts` each sequence continues.
        tokens: int64 [B, T], completion tokens, right-padded with 0.
        loss_mask: bool [B, T], True on completion tokens, the stop token included: `[5, 6, 2, 0]` ending in stop id 2 has mask 1, 1, 1, 0.
        advantages: float32 [B, T], detached.
        weights: float32 [B, T], the reduction's weight of each token in the whole minibatch, so that the loss is the plain sum of
            weight × per-token loss however the minibatch is cut. 0 where masked out.
        sampling_logprobs: float32 [B, T], the engine's.
        old_logprobs: float32 [B, T], the trainer's before the rollout's first update; None means that the policy is still the old
            policy, so that its own detached log-probabilities stand in, exactly.
        ref_logprobs: float32 [B, T], the reference's; None when the method has no KL term.
        rewards: float64 [P, G], the raw rewards of the whole rollout, NaN where unscorable; never overwritten.
        place: int64 [B], where each sequence stands in `rewards` counted row by row: completion i of group p is p · G + i.
        step_rewards: float64 [B, T], a step's reward at its last token and NaN elsewhere; None without process supervision.
        values: float32 [B, T], the value model's V(s_t) before the rollout's first update, s_t being what token t continues.
        returns: float32 [B, T], what the value model learns; None without one.
        pair: int64 [B], which pair of a preferred and a dispreferred completion each sequence is of; None without pairs. The two stand
            next to each other, the preferred one first.
    """

    prompts: tuple[tuple[int, ...], ...]
    group_index: Tensor
    tokens: Tensor
    loss_mask: Tensor
    advantages: Tensor
    weights: Tensor
    sampling_logprobs: Tensor
    old_logprobs: Tensor | None = None
    ref_logprobs: Tensor | None = None
    rewards: Tensor | None = None
    place: Tensor | None = None
    step_rewards: Tensor | None = None
    values: Tensor | None = None
    returns: Tensor | None = None
    pair: Tensor | None = None

    @property
    def lengths(self) -> Tensor:
        """int64 [B], completion tokens of each sequence."""
        return self.loss_mask.sum(dim=1)

    def select(self, rows: Tensor) -> TrainingBatch:
        """The batch of these sequences (int64 [b]); weights keep their meaning in the whole minibatch."""
        width = max(1, int(self.loss_mask[rows].sum(dim=1).max())) if len(rows) else 1
        taken = {name: value[rows][:, :width] for name in PER_TOKEN if (value := getattr(self, name)) is not None}
        taken |= {name: value[rows] for name in PER_SEQUENCE if (value := getattr(self, name)) is not None}
        return replace(self, **taken)

    def to(self, device: torch.device) -> TrainingBatch:
        """The batch with its tensors on the device."""
        names = (*PER_TOKEN, *PER_SEQUENCE, "rewards")
        return replace(self, **{name: value.to(device) for name in names if (value := getattr(self, name)) is not None})


PER_TOKEN = (
    "tokens",
    "loss_mask",
    "advantages",
    "weights",
    "sampling_logprobs",
    "old_logprobs",
    "ref_logprobs",
    "step_rewards",
    "values",
    "returns",
)
PER_SEQUENCE = ("group_index", "place", "pair")


def groups_of(problem: Problem) -> dict[str, str]:
    """The level and the subject of a problem, where its source knows them: `{"level": "3", "subject": "Algebra"}`."""
    found: dict[str, str] = {}
    for name, fields in GROUP_FIELDS.items():
        value = next((problem.meta[key] for key in fields if isinstance(problem.meta.get(key), str | int | float)), None)
        if value is not None:
            found[name] = str(value).strip().removeprefix("Level ")
    return found


GROUP_FIELDS = {"level": ("level", "difficulty"), "subject": ("subject", "type", "category")}
"""The fields of a problem that say what it belongs to; the first that there is counts."""


def pad(rows: list[tuple[float, ...]] | list[tuple[int, ...]], *, dtype: torch.dtype, width: int | None = None) -> Tensor:
    """Right-pad rows of numbers with zeros into a [B, T] tensor; T is `width` or the longest row, at least 1."""
    import torch

    width = max([1, *(len(row) for row in rows)]) if width is None else width
    out = torch.zeros(len(rows), width, dtype=dtype)
    for i, row in enumerate(rows):
        out[i, : len(row)] = torch.tensor(row, dtype=dtype)
    return out
