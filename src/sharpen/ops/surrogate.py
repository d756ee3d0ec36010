"""Surrogate objectives, as per-token losses to minimise. Axes: B sequences, T tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from sharpen.ops import checks


def clipped_token(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, *, low: float, high: float) -> Tensor:
    r"""The clipped surrogate of PPO and GRPO, token by token.

    $\ell_t = -\min(r_t \hat A_t,\ \mathrm{clip}(r_t, 1 - \epsilon_{low}, 1 + \epsilon_{high}) \hat A_t)$ with
    $r_t = \exp(\log\pi_\theta(o_t) - \log\pi_{old}(o_t))$. Source: PPO (arXiv:1707.06347) Eq. 7; DeepSeekMath (arXiv:2402.03300) Eq. 3;
    separate bounds as in DAPO (arXiv:2503.14476) Eq. 8.

    Args:
        logprobs: log π_θ, [B, T], with gradient.
        old_logprobs: log π_old, [B, T].
        advantages: [B, T], detached.
        low: ε below 1; at 1 or more nothing is clipped below.
        high: ε above 1.

    Returns:
        [B, T]. With ε 0.2/0.2: (r 1.5, A 1) → -1.2; (0.5, 1) → -0.5; (1.5, -1) → 1.5; (0.5, -1) → 0.8.
    """
    checks.same_shape(logprobs=logprobs, old_logprobs=old_logprobs, advantages=advantages)
    return clipped(torch.exp(logprobs - old_logprobs), advantages, low=low, high=high)


def is_clipped(ratio: Tensor, advantages: Tensor, *, low: float, high: float) -> Tensor:
    """bool, which tokens the clip takes the gradient from: (A > 0 and r > 1 + high) or (A < 0 and r < 1 - low); no other counts."""
    checks.same_shape(ratio=ratio, advantages=advantages)
    return ((advantages > 0) & (ratio > 1 + high)) | ((advantages < 0) & (ratio < 1 - low))


def log_probability(logprobs: Tensor, advantages: Tensor) -> Tensor:
    r"""The policy gradient's own: $\ell_t = -\hat A_t \log\pi_\theta(o_t)$; without a ratio, so right on-policy (or for fixed data) only.

    Source: REINFORCE (Williams 1992); with advantage 1 it is the negative log-likelihood of SFT.

    Args:
        logprobs: log π_θ, [B, T], with gradient.
        advantages: [B, T], detached.
    """
    checks.same_shape(logprobs=logprobs, advantages=advantages)
    return -advantages * logprobs


def sequence_ratio(logprobs: Tensor, old_logprobs: Tensor, mask: Tensor) -> Tensor:
    r"""GSPO's ratio at each token: $s_{i,t} = \mathrm{sg}[s_i] \cdot \pi_\theta(o_t) / \mathrm{sg}[\pi_\theta(o_t)]$.

    $s_i = (\pi_\theta(o_i) / \pi_{old}(o_i))^{1/|o_i|}$, the geometric mean of the tokens' ratios. The value is s_i at every token, and the
    gradient goes to the token itself. With one advantage a completion the loss and its gradient are those of $s_i$ itself. Source: GSPO
    (arXiv:2507.18071) Eq. 7 and Eq. 14.

    Args:
        logprobs: log π_θ, [B, T], 0 where masked out, with gradient.
        old_logprobs: log π_old, [B, T], 0 where masked out.
        mask: bool [B, T].

    Returns:
        [B, T].
    """
    checks.same_shape(logprobs=logprobs, old_logprobs=old_logprobs, mask=mask)
    lengths = mask.sum(dim=1, keepdim=True).clamp(min=1)
    mean = (logprobs - old_logprobs).detach().sum(dim=1, keepdim=True) / lengths
    return torch.exp(mean + logprobs - logprobs.detach())


def clipped(ratio: Tensor, advantages: Tensor, *, low: float, high: float) -> Tensor:
    """-min(r Â, clip(r, 1 - low, 1 + high) Â) for a ratio of any kind, [B, T]."""
    checks.same_shape(ratio=ratio, advantages=advantages)
    return -torch.minimum(ratio * advantages, ratio.clamp(1 - low, 1 + high) * advantages)


def clipped_weight(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, *, low: float, high: float) -> Tensor:
    r"""CISPO: $\ell_t = -\mathrm{sg}[\mathrm{clip}(r_t, 1 - \epsilon_{low}, 1 + \epsilon_{high})] \hat A_t \log\pi_\theta(o_t)$.

    The weight is clipped and the gradient of no token is lost. Source: MiniMax-M1 (arXiv:2506.13585) Eq. 4.

    Args:
        logprobs: log π_θ, [B, T], with gradient.
        old_logprobs: log π_old, [B, T].
        advantages: [B, T], detached.
        low: ε below 1; at 1 or more the weight has no lower bound.
        high: ε above 1.
    """
    checks.same_shape(logprobs=logprobs, old_logprobs=old_logprobs, advantages=advantages)
    weight = torch.exp(logprobs.detach() - old_logprobs).clamp(1 - low, 1 + high)
    return -weight * advantages * logprobs


def truncated_importance(old_logprobs: Tensor, sampling_logprobs: Tensor, *, cap: float) -> Tensor:
    r"""$\min(\pi_{old} / \pi_{engine}, C)$ of each token: corrects for an engine whose log-probabilities are not the trainer's.

    Source: truncated importance sampling (Ionides 2008), as Yao et al. (2025) use it between a rollout engine and a trainer.

    Args:
        old_logprobs: the trainer's, before the rollout's first update, [B, T].
        sampling_logprobs: the engine's, [B, T].
        cap: C, at least 1.

    Returns:
        [B, T], detached. Old -1.0 and engine -1.5 with C 2: e^0.5 = 1.6487; engine -2.0: e^1 = 2.718 is cut to 2.
    """
    checks.same_shape(old_logprobs=old_logprobs, sampling_logprobs=sampling_logprobs)
    return torch.exp(old_logprobs.detach() - sampling_logprobs).clamp(max=cap)
