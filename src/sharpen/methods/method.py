"""A method is a value: a data source × a reward × a gradient coefficient (DeepSeekMath, arXiv:2402.03300, §5.2.1).

    ∇J = E_{(q,o) ~ source} [ reduce_t  coefficient(q, o, t; reward) · ∇ log π_θ(o_t | q, o_<t) ]

The trainer asks a method for advantages and for per-token losses, never for its name. Axes: P problems, G completions a group, B sequences,
T tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from sharpen.ops import advantages as adv
from sharpen.ops import kl as kls
from sharpen.ops import surrogate as surrogates
from sharpen.ops.reduce import Reduction
from sharpen.records import TrainingBatch

DataSource = Literal["demonstrations", "sft_policy", "current_policy"]
RewardKind = Literal["none", "rule", "model", "preference"]
Supervision = Literal["outcome", "process"]


@dataclass(frozen=True, kw_only=True)
class Advantage:
    """How rewards become advantages.

    Attributes:
        kind: `group_norm` or `group_mean` (see `sharpen.ops.advantages`).
        ddof: of the group's deviation, 0 or 1; 1 by default, as TRL and verl (the paper does not say).
        eps: added to the deviation.
    """

    kind: Literal["group_norm", "group_mean"]
    ddof: int = 1
    eps: float = 1e-4


@dataclass(frozen=True, kw_only=True)
class Surrogate:
    """What is differentiated.

    Attributes:
        kind: `clipped_token` (see `sharpen.ops.surrogate`).
        clip_low: ε below 1.
        clip_high: ε above 1; 1 and more are allowed (R1's first stage used 10).
    """

    kind: Literal["clipped_token"]
    clip_low: float = 0.2
    clip_high: float = 0.2


@dataclass(frozen=True, kw_only=True)
class KL:
    """The penalty for leaving the reference.

    Attributes:
        placement: `none`, or `in_loss` (per token, beside the surrogate).
        estimator: k1, k2 or k3 (see `sharpen.ops.kl`).
        coef: β; 0 turns the term off, and no reference is then kept.
    """

    placement: Literal["none", "in_loss"] = "none"
    estimator: kls.Estimator = "k3"
    coef: float = 0.0


class TokenLoss(NamedTuple):
    """Per-token values, [B, T] each and 0 where masked out.

    Attributes:
        values: the loss to minimise, before the reduction's weights.
        ratio: π_θ / π_old, detached.
        clipped: bool, where the clip took the gradient away.
        kl: the KL estimate, detached; None without a reference.
    """

    values: Tensor
    ratio: Tensor
    clipped: Tensor
    kl: Tensor | None


@dataclass(frozen=True, kw_only=True)
class Method:
    """A post-training method. See the module's text; the fields are the columns of `sharpen methods`."""

    name: str
    title: str
    data_source: DataSource
    reward: RewardKind
    supervision: Supervision
    advantage: Advantage
    surrogate: Surrogate
    kl: KL
    reduction: Reduction
    source: str

    @property
    def needs_reference(self) -> bool:
        """Whether the loss has a term that compares with the reference."""
        return self.kl.placement != "none" and self.kl.coef != 0.0

    def advantages(self, rewards: Tensor) -> Tensor:
        """Advantages of outcome rewards.

        Args:
            rewards: [P, G], NaN where unscorable.

        Returns:
            [P, G], detached: one value a completion, the same for each of its tokens.
        """
        return _ADVANTAGES[self.advantage.kind](rewards, self.advantage)

    def loss(self, logprobs: Tensor, batch: TrainingBatch) -> TokenLoss:
        """Per-token losses; the loss is their sum under `batch.weights`.

        Args:
            logprobs: log π_θ of `batch.tokens`, [B, T], with gradient.
            batch: see `TrainingBatch`.
        """
        logprobs, old, ref = _selected(logprobs, batch)
        surrogate = self.surrogate
        advantages = batch.advantages.to(logprobs.dtype)
        values = surrogates.clipped_token(logprobs, old, advantages, low=surrogate.clip_low, high=surrogate.clip_high)
        kl = None
        if self.needs_reference and ref is not None:
            penalty = kls.estimate(logprobs, ref, self.kl.estimator)
            values = values + self.kl.coef * penalty
            kl = penalty.detach()
        ratio = torch.exp(logprobs.detach() - old)
        clipped = surrogates.is_clipped(ratio, advantages, low=surrogate.clip_low, high=surrogate.clip_high) & batch.loss_mask
        return TokenLoss(values=torch.where(batch.loss_mask, values, 0.0), ratio=ratio, clipped=clipped, kl=kl)

    def coefficient(self, logprobs: Tensor, batch: TrainingBatch) -> Tensor:
        """The gradient coefficient of ∇ log π_θ(o_t), in closed form (DeepSeekMath App. A.1), before the reduction's weights.

        For GRPO on-policy it is Â + β (π_ref / π_θ - 1). Minus its product with `batch.weights` is the gradient of the loss.

        Args:
            logprobs: log π_θ of `batch.tokens`, [B, T].
            batch: see `TrainingBatch`.

        Returns:
            [B, T], 0 where masked out.
        """
        logprobs, old, ref = _selected(logprobs.detach(), batch)
        advantages = batch.advantages.to(logprobs.dtype)
        ratio = torch.exp(logprobs - old)
        clipped = surrogates.is_clipped(ratio, advantages, low=self.surrogate.clip_low, high=self.surrogate.clip_high)
        out = torch.where(clipped, 0.0, ratio * advantages)
        if self.needs_reference and ref is not None:
            out = out - self.kl.coef * kls.derivative(logprobs, ref, self.kl.estimator)
        return torch.where(batch.loss_mask, out, 0.0)


_ADVANTAGES: dict[str, Callable[[Tensor, Advantage], Tensor]] = {
    "group_norm": lambda rewards, a: adv.group_norm(rewards, ddof=a.ddof, eps=a.eps),
    "group_mean": lambda rewards, a: adv.group_mean(rewards),
}


def _selected(logprobs: Tensor, batch: TrainingBatch) -> tuple[Tensor, Tensor, Tensor | None]:
    """Policy, old and reference log-probabilities with 0 at masked positions: chosen, not multiplied, so that no NaN there gets through."""
    if logprobs.shape != batch.tokens.shape:
        raise ValueError(f"expected logprobs of shape {tuple(batch.tokens.shape)} as the tokens, got {tuple(logprobs.shape)}")
    mask = batch.loss_mask
    logprobs = torch.where(mask, logprobs, 0.0)
    old = logprobs.detach() if batch.old_logprobs is None else torch.where(mask, batch.old_logprobs.to(logprobs.dtype), 0.0)
    ref = None if batch.ref_logprobs is None else torch.where(mask, batch.ref_logprobs.to(logprobs.dtype), 0.0)
    return logprobs, old, ref
