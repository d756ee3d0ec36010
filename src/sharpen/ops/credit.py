r"""From rewards of tokens, steps and sequences to advantages of tokens. Axes: B sequences, T tokens.

A token's advantage is what follows it: the rewards of the tokens and steps that end at it or later.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sharpen.ops import checks


def at_last_token(values: Tensor, mask: Tensor) -> Tensor:
    """A value of each sequence at its last token, 0 elsewhere.

    Args:
        values: [B].
        mask: bool [B, T], True from the first token to the last.

    Returns:
        [B, T], of the values' dtype.
    """
    checks.rank(1, values=values)
    checks.rank(2, mask=mask)
    place = torch.arange(mask.shape[1], device=mask.device)
    last = mask & (place == mask.sum(dim=1, keepdim=True) - 1)
    return torch.where(last, values[:, None], 0.0)


def to_go(rewards: Tensor, mask: Tensor, *, gamma: float = 1.0) -> Tensor:
    r"""Discounted rewards from each token on: $R_t = \sum_{s \ge t} \gamma^{s-t} r_s$.

    Args:
        rewards: [B, T].
        mask: bool [B, T].
        gamma: γ, the discount.

    Returns:
        [B, T], 0 where masked out. `[1, 2, 3]` with γ 1 gives 6, 5, 3; with γ 0.5: 2.75, 3.5, 3.
    """
    checks.same_shape(rewards=rewards, mask=mask)
    rewards = torch.where(mask, rewards, 0.0)
    out, after = torch.zeros_like(rewards), torch.zeros_like(rewards[:, 0])
    for t in range(rewards.shape[1] - 1, -1, -1):
        after = rewards[:, t] + gamma * after
        out[:, t] = after
    return torch.where(mask, out, 0.0)


def gae(rewards: Tensor, values: Tensor, mask: Tensor, *, gamma: float = 1.0, lam: float = 1.0) -> tuple[Tensor, Tensor]:
    r"""Generalised advantage estimation, and the returns that a value model learns.

    $\delta_t = r_t + \gamma V(s_{t+1}) - V(s_t)$, $\hat A_t = \sum_{l \ge 0} (\gamma\lambda)^l \delta_{t+l}$, $R_t = \hat A_t + V(s_t)$;
    after the last token V is 0 (a completion that the length limit cut ends there too). With γ = λ = 1, $\hat A_t$ is the observed return
    less V(s_t). Source: Schulman et al. (arXiv:1506.02438) Eq. 16; PPO (arXiv:1707.06347) Eq. 11.

    Args:
        rewards: of each token, [B, T].
        values: V(s_t), [B, T].
        mask: bool [B, T], True from the first token to the last.
        gamma: γ, the discount.
        lam: λ.

    Returns:
        Advantages and returns, [B, T] each, detached and 0 where masked out. Rewards 0, 0, 1 and values 0.5, 0.6, 0.7 with γ 1 and λ 0.5
        have δ = 0.1, 0.1, 0.3 and advantages 0.225, 0.25, 0.3.
    """
    checks.same_shape(rewards=rewards, values=values, mask=mask)
    rewards, values = torch.where(mask, rewards.detach(), 0.0), torch.where(mask, values.detach(), 0.0)
    following = torch.cat([values[:, 1:], torch.zeros_like(values[:, :1])], dim=1)
    advantages = to_go(rewards + gamma * following - values, mask, gamma=gamma * lam)
    return advantages, torch.where(mask, advantages + values, 0.0)


def batch_norm(values: Tensor, mask: Tensor, *, ddof: int = 1, eps: float = 1e-4) -> Tensor:
    r"""Values normalised over all tokens of the batch: $(x - \mathrm{mean}(x)) / (\mathrm{std}(x) + \epsilon)$.

    Source: REINFORCE++ (arXiv:2501.03262) §3. All values equal, or fewer than two tokens, give exactly 0.

    Args:
        values: [B, T].
        mask: bool [B, T], the tokens that count.
        ddof: of the deviation, 0 or 1.
        eps: added to the deviation.
    """
    checks.same_shape(values=values, mask=mask)
    chosen = values.detach()[mask]
    if len(chosen) < 2 or bool((chosen == chosen[0]).all()):
        return torch.zeros_like(values)
    centred = chosen - chosen.mean()
    out = torch.zeros_like(values)
    out[mask] = centred / (centred.square().sum().div(len(chosen) - ddof).sqrt() + eps)
    return out


def process(step_rewards: Tensor, group_index: Tensor, mask: Tensor, *, ddof: int = 1, eps: float = 1e-4) -> Tensor:
    r"""Process supervision: step rewards normalised over all steps of the group, and for each token the sum of the steps still to end.

    $\tilde r = (r - \mathrm{mean}(R)) / (\mathrm{std}(R) + \epsilon)$ with R the rewards of all steps of all G completions, and
    $\hat A_{i,t} = \sum_{index(j) \ge t} \tilde r_i^{index(j)}$. Source: DeepSeekMath (arXiv:2402.03300) §4.1.3. All steps of a group
    equal, or fewer than two, give exactly 0.

    Args:
        step_rewards: [B, T], a step's reward at its last token, NaN elsewhere.
        group_index: int64 [B].
        mask: bool [B, T].
        ddof: of the deviation, 0 or 1.
        eps: added to the deviation.

    Returns:
        [B, T], detached, 0 where masked out.
    """
    checks.same_shape(step_rewards=step_rewards, mask=mask)
    checks.rank(1, group_index=group_index)
    rewards = step_rewards.detach()
    ends = mask & ~rewards.isnan()
    normalised = torch.zeros_like(rewards)
    for group in group_index.unique():
        rows = group_index == group
        normalised[rows] = batch_norm(rewards[rows], ends[rows], ddof=ddof, eps=eps)
    return to_go(normalised, mask)
