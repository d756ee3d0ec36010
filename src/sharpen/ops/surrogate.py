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
    ratio = torch.exp(logprobs - old_logprobs)
    return -torch.minimum(ratio * advantages, ratio.clamp(1 - low, 1 + high) * advantages)


def is_clipped(ratio: Tensor, advantages: Tensor, *, low: float, high: float) -> Tensor:
    """bool, which tokens the clip takes the gradient from: (A > 0 and r > 1 + high) or (A < 0 and r < 1 - low); no other counts."""
    checks.same_shape(ratio=ratio, advantages=advantages)
    return ((advantages > 0) & (ratio > 1 + high)) | ((advantages < 0) & (ratio < 1 - low))
