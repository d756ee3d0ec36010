"""Per-token losses and their gradient coefficients, by the kind of surrogate. Axes: B sequences, T tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from sharpen.methods.settings import KL, Surrogate
from sharpen.ops import kl as kls
from sharpen.ops import preference
from sharpen.ops import surrogate as ops
from sharpen.records import TrainingBatch


class TokenLoss(NamedTuple):
    """Per-token values, [B, T] each and 0 where masked out.

    Attributes:
        values: the loss to minimise, before the reduction's weights.
        ratio: π_θ / π_old, detached; GSPO's sequence ratio where that is clipped.
        clipped: bool, where the clip took the gradient away (or bounded the weight, for `clipped_weight`).
        kl: the KL estimate, detached; None without a reference.
    """

    values: Tensor
    ratio: Tensor
    clipped: Tensor
    kl: Tensor | None


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What a surrogate is made of, [B, T] each and 0 where masked out: selected, so that no NaN there gets through."""

    logprobs: Tensor
    old: Tensor
    ref: Tensor | None
    advantages: Tensor
    mask: Tensor
    pair: Tensor | None

    @property
    def pairs(self) -> tuple[Tensor, Tensor]:
        """The reference's log-probabilities and the pairs, which `pairwise` cannot do without."""
        if self.ref is None or self.pair is None:
            raise ValueError("expected a batch of pairs with reference log-probabilities")
        return self.ref, self.pair


def terms(logprobs: Tensor, batch: TrainingBatch) -> Terms:
    """The terms of a batch; ValueError when `logprobs` is not shaped as its tokens."""
    if logprobs.shape != batch.tokens.shape:
        raise ValueError(f"expected logprobs of shape {tuple(batch.tokens.shape)} as the tokens, got {tuple(logprobs.shape)}")
    mask = batch.loss_mask
    logprobs = torch.where(mask, logprobs, 0.0)
    return Terms(
        logprobs=logprobs,
        old=logprobs.detach() if batch.old_logprobs is None else torch.where(mask, batch.old_logprobs.to(logprobs.dtype), 0.0),
        ref=None if batch.ref_logprobs is None else torch.where(mask, batch.ref_logprobs.to(logprobs.dtype), 0.0),
        advantages=torch.where(mask, batch.advantages.to(logprobs.dtype), 0.0),
        mask=mask,
        pair=batch.pair,
    )


def token_loss(logprobs: Tensor, batch: TrainingBatch, surrogate: Surrogate, penalty: KL) -> TokenLoss:
    """Per-token losses: the surrogate's, times the truncated importance weight, plus a KL term in the loss."""
    x = terms(logprobs, batch)
    values = LOSSES[surrogate.kind](x, surrogate)
    if surrogate.truncation is not None:
        values = values * _truncation(x, batch, surrogate.truncation)
    kl = None
    if penalty.used and x.ref is not None:
        estimate = kls.estimate(x.logprobs, x.ref, penalty.estimator)
        values = values + penalty.coef * estimate if penalty.placement == "in_loss" else values
        kl = estimate.detach()
    ratio = _ratio(x, surrogate)
    return TokenLoss(values=torch.where(x.mask, values, 0.0), ratio=ratio, clipped=_clipped(ratio, x, surrogate), kl=kl)


def coefficient(logprobs: Tensor, batch: TrainingBatch, surrogate: Surrogate, penalty: KL) -> Tensor:
    """The factor of ∇ log π_θ(o_t) in closed form, [B, T], before the reduction's weights; 0 where masked out."""
    x = terms(logprobs.detach(), batch)
    out = COEFFICIENTS[surrogate.kind](x, surrogate)
    if surrogate.truncation is not None:
        out = out * _truncation(x, batch, surrogate.truncation)
    if penalty.used and penalty.placement == "in_loss" and x.ref is not None:
        out = out - penalty.coef * kls.derivative(x.logprobs, x.ref, penalty.estimator)
    return torch.where(x.mask, out, 0.0)


def _ratio(x: Terms, surrogate: Surrogate) -> Tensor:
    if surrogate.kind == "clipped_sequence":
        return ops.sequence_ratio(x.logprobs, x.old, x.mask).detach()
    return torch.exp(x.logprobs.detach() - x.old)


def _clipped(ratio: Tensor, x: Terms, surrogate: Surrogate) -> Tensor:
    low, high = surrogate.clip_low, surrogate.clip_high
    if surrogate.kind in ("clipped_token", "clipped_sequence"):
        return ops.is_clipped(ratio, x.advantages, low=low, high=high) & x.mask
    if surrogate.kind == "clipped_weight":
        return ((ratio > 1 + high) | (ratio < 1 - low)) & (x.advantages != 0) & x.mask
    return torch.zeros_like(x.mask)


def _unclipped(x: Terms, surrogate: Surrogate) -> Tensor:
    """The coefficient r Â, 0 where the clip takes the gradient away."""
    ratio = _ratio(x, surrogate)
    return torch.where(_clipped(ratio, x, surrogate), 0.0, ratio * x.advantages)


def _truncation(x: Terms, batch: TrainingBatch, cap: float) -> Tensor:
    sampling = torch.where(x.mask, batch.sampling_logprobs.to(x.old.dtype), 0.0)
    return ops.truncated_importance(x.old, sampling, cap=cap)


LOSSES: dict[str, Callable[[Terms, Surrogate], Tensor]] = {
    "logprob": lambda x, s: ops.log_probability(x.logprobs, x.advantages),
    "clipped_token": lambda x, s: ops.clipped_token(x.logprobs, x.old, x.advantages, low=s.clip_low, high=s.clip_high),
    "clipped_sequence": lambda x, s: ops.clipped(
        ops.sequence_ratio(x.logprobs, x.old, x.mask), x.advantages, low=s.clip_low, high=s.clip_high
    ),
    "clipped_weight": lambda x, s: ops.clipped_weight(x.logprobs, x.old, x.advantages, low=s.clip_low, high=s.clip_high),
    "pairwise": lambda x, s: preference.pairwise(x.logprobs, *x.pairs, beta=s.beta),
}

COEFFICIENTS: dict[str, Callable[[Terms, Surrogate], Tensor]] = {
    "logprob": lambda x, s: x.advantages,
    "clipped_token": _unclipped,
    "clipped_sequence": _unclipped,
    "clipped_weight": lambda x, s: _ratio(x, s).clamp(1 - s.clip_low, 1 + s.clip_high) * x.advantages,
    "pairwise": lambda x, s: preference.pairwise_coefficient(x.logprobs, *x.pairs, beta=s.beta).expand(x.mask.shape),
}
