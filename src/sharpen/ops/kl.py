r"""Per-token estimators of the Kullback-Leibler divergence between the policy and the reference.

With $\delta = \log\pi_\theta(o_t) - \log\pi_{ref}(o_t)$ for a token drawn from $\pi_\theta$; source: Schulman, "Approximating KL
divergence" (2020), and DeepSeekMath (arXiv:2402.03300) Eq. 4 for k3.

An estimator of the value is not one of the gradient. Inside the loss and on-policy, the expected gradient of k1 is 0, of k2 it is
that of $KL(\pi_\theta \| \pi_{ref})$, and of k3 that of $KL(\pi_{ref} \| \pi_\theta)$.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from sharpen.ops import checks

Estimator = Literal["k1", "k2", "k3"]


def estimate(logprobs: Tensor, ref_logprobs: Tensor, estimator: Estimator) -> Tensor:
    r"""The estimator's value for each token, in nats.

    k1: $\delta$. k2: $\delta^2 / 2$. k3: $e^{-\delta} + \delta - 1$, never negative.

    Args:
        logprobs: log π_θ of the sampled tokens, any shape.
        ref_logprobs: log π_ref of the same tokens, the same shape.
        estimator: which.

    Returns:
        The same shape. For -1.0 and -1.5: k1 0.5, k2 0.125, k3 0.106531.
    """
    checks.same_shape(logprobs=logprobs, ref_logprobs=ref_logprobs)
    delta = logprobs - ref_logprobs
    if estimator == "k1":
        return delta
    if estimator == "k2":
        return delta.square() / 2
    if estimator == "k3":
        return torch.expm1(-delta) + delta
    raise ValueError(f"expected estimator k1, k2 or k3, got {estimator!r}")


def derivative(logprobs: Tensor, ref_logprobs: Tensor, estimator: Estimator) -> Tensor:
    r"""The derivative of each token's estimate with respect to its own log π_θ: 1, $\delta$, or $1 - e^{-\delta}$.

    Args and shapes as in `estimate`. For -1.0 and -1.5 and k3: 0.393469.
    """
    checks.same_shape(logprobs=logprobs, ref_logprobs=ref_logprobs)
    delta = logprobs - ref_logprobs
    if estimator == "k1":
        return torch.ones_like(delta)
    if estimator == "k2":
        return delta
    if estimator == "k3":
        return -torch.expm1(-delta)
    raise ValueError(f"expected estimator k1, k2 or k3, got {estimator!r}")
