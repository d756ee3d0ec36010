"""Advantages from rewards. Axes: P problems, G completions of a group.

A NaN reward is unscorable: it is left out of the group's mean and deviation, and its own advantage is 0 (the caller leaves it out of the
loss as well). A group whose scorable rewards are all equal, or of which fewer than two are scorable, has advantage exactly 0.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sharpen.ops import checks


def group_norm(rewards: Tensor, *, ddof: int = 1, eps: float = 1e-4) -> Tensor:
    r"""Rewards normalised within their group: $\hat A_i = (r_i - \mathrm{mean}(r)) / (\mathrm{std}(r) + \epsilon)$.

    Source: DeepSeekMath (arXiv:2402.03300) §4.1.2, outcome supervision. The paper does not say which deviation: `ddof` 1 (the
    sample's, as TRL and verl) or 0 (the population's, which makes advantages sqrt(G / (G - 1)) times larger).

    Args:
        rewards: [P, G], NaN where unscorable.
        ddof: delta degrees of freedom of the deviation, 0 or 1.
        eps: added to the deviation.

    Returns:
        [P, G], detached. `[1, 0, 0, 0]` with ddof 1 and eps 1e-4 gives 1.4997, -0.4999, -0.4999, -0.4999.

    Raises:
        ValueError: G < 2 (a group of one has no baseline), a ddof other than 0 or 1, or another rank.
    """
    if ddof not in (0, 1):
        raise ValueError(f"expected ddof 0 or 1, got {ddof}")
    centred, scorable = _centred(rewards)
    count = scorable.sum(dim=1, keepdim=True)
    variance = centred.square().sum(dim=1, keepdim=True) / (count - ddof).clamp(min=1)
    return torch.where(centred == 0, 0.0, centred / (variance.sqrt() + eps))  # never 0/0, also with eps 0


def group_mean(rewards: Tensor) -> Tensor:
    r"""Rewards less their group's mean: $\hat A_i = r_i - \mathrm{mean}(r)$; source: Dr.GRPO (arXiv:2503.20783) §3.2.

    Args:
        rewards: [P, G], NaN where unscorable.

    Returns:
        [P, G], detached. `[1, 0, 0, 0]` gives 0.75, -0.25, -0.25, -0.25.
    """
    return _centred(rewards)[0]


def leave_one_out(rewards: Tensor) -> Tensor:
    r"""Rewards less the mean of the group's others: $\hat A_i = r_i - \frac{1}{G-1} \sum_{j \ne i} r_j$.

    It is G/(G-1) times `group_mean`, with G the scorable ones. Source: RLOO (arXiv:2402.14740) §4.2; Kool et al. (2019).

    Args:
        rewards: [P, G], NaN where unscorable.

    Returns:
        [P, G], detached. `[1, 0, 0, 0]` gives 1, -1/3, -1/3, -1/3.
    """
    centred, scorable = _centred(rewards)
    count = scorable.sum(dim=1, keepdim=True)
    return centred * (count / (count - 1).clamp(min=1))


def accept(rewards: Tensor, *, threshold: float = 1.0) -> Tensor:
    """1 for a completion whose reward reaches the threshold, else 0: rejection sampling's choice, as a coefficient.

    Source: DeepSeekMath (arXiv:2402.03300) App. A.1.2, the indicator of a right answer.

    Args:
        rewards: [P, G], NaN where unscorable (0 there).
        threshold: of acceptance.
    """
    return (rewards.detach() >= threshold).to(rewards.dtype)


def zero_variance(rewards: Tensor) -> Tensor:
    """Bool [P]: groups that teach nothing, since their scorable rewards are all equal or fewer than two.

    Args:
        rewards: [P, G], NaN where unscorable.
    """
    scorable = ~rewards.isnan()
    low = torch.where(scorable, rewards, torch.inf).amin(dim=1)
    high = torch.where(scorable, rewards, -torch.inf).amax(dim=1)
    return (scorable.sum(dim=1) < 2) | (low == high)


def _centred(rewards: Tensor) -> tuple[Tensor, Tensor]:
    checks.rank(2, rewards=rewards)
    if rewards.shape[1] < 2:
        raise ValueError(f"expected groups of at least 2 completions, got rewards of shape {tuple(rewards.shape)}: one has no baseline")
    rewards = rewards.detach()
    scorable = ~rewards.isnan()
    known = torch.where(scorable, rewards, 0.0)
    mean = known.sum(dim=1, keepdim=True) / scorable.sum(dim=1, keepdim=True).clamp(min=1)
    learns = scorable & ~zero_variance(rewards)[:, None]  # exact zeros: 8 × 0.1 in float32 would leave rounding behind
    return torch.where(learns, known - mean, 0.0), scorable
