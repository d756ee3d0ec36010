r"""Direct preference optimisation. Axes: B sequences (pairs of neighbours, the preferred one first), T tokens.

$\mathcal L = -\log\sigma(h)$ with $h = \beta (\Delta^+ - \Delta^-)$ and $\Delta = \sum_t \log\frac{\pi_\theta}{\pi_{ref}}(o_t)$ of each.
Source: Rafailov et al. (arXiv:2305.18290) Eq. 7. DeepSeekMath App. A.1.4 writes an average over each completion's length; the sum is
taken here, as by DPO itself.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from sharpen.ops import checks


def margins(logprobs: Tensor, ref_logprobs: Tensor, pair: Tensor, *, beta: float) -> Tensor:
    """The margin h of each pair, [B / 2].

    Args:
        logprobs: log π_θ, [B, T], 0 where masked out.
        ref_logprobs: log π_ref, [B, T], 0 where masked out.
        pair: int64 [B], the same for two neighbours.
        beta: β.

    Raises:
        ValueError: sequences that are not pairs of neighbours.
    """
    checks.same_shape(logprobs=logprobs, ref_logprobs=ref_logprobs)
    checks.rank(1, pair=pair)
    if len(pair) % 2 or not torch.equal(pair[::2], pair[1::2]):
        raise ValueError(f"expected pairs of neighbours, got pair {pair.tolist()}")
    implicit = beta * (logprobs - ref_logprobs).sum(dim=1)
    return implicit[::2] - implicit[1::2]


def pairwise(logprobs: Tensor, ref_logprobs: Tensor, pair: Tensor, *, beta: float) -> Tensor:
    """The pairs' losses as per-token values: each stands at the first token of the preferred completion, and is 0 elsewhere.

    Args:
        logprobs: log π_θ, [B, T], with gradient, 0 where masked out.
        ref_logprobs: log π_ref, [B, T], 0 where masked out.
        pair: int64 [B], the same for two neighbours.
        beta: β.

    Returns:
        [B, T]. For sums of log-ratios 0.5 and -0.5 and β 0.1: -log σ(0.1) = 0.644397.
    """
    losses = -functional.logsigmoid(margins(logprobs, ref_logprobs, pair, beta=beta))
    first = torch.zeros_like(logprobs)
    first[::2, 0] = 1.0
    return first * losses.repeat_interleave(2)[:, None]


def pairwise_coefficient(logprobs: Tensor, ref_logprobs: Tensor, pair: Tensor, *, beta: float) -> Tensor:
    """The coefficient of each sequence's ∇ log π_θ(o_t), [B, 1]: β σ(-h) for the preferred completion, and minus that for the other."""
    strength = beta * torch.sigmoid(-margins(logprobs, ref_logprobs, pair, beta=beta))
    return torch.stack([strength, -strength], dim=1).reshape(-1, 1)


def pairs(rewards: Tensor) -> list[tuple[int, int]]:
    """Disjoint pairs of places in one group: the best with the worst, the second best with the second worst, as long as they differ.

    Args:
        rewards: [G], NaN where unscorable (in no pair).

    Returns:
        (preferred, dispreferred) places. `[0, 1, 1, 0]` gives (1, 3), (2, 0); equal rewards give none.
    """
    checks.rank(1, rewards=rewards)
    values = rewards.tolist()
    order = sorted((i for i, value in enumerate(values) if value == value), key=lambda i: -values[i])  # stable: ties by place
    return [(order[k], order[-1 - k]) for k in range(len(order) // 2) if values[order[k]] > values[order[-1 - k]]]
