"""Advantages of tokens from a rollout's rewards, by the kind of advantage. Axes: P problems, G completions, B sequences, T tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from sharpen.methods.settings import KL, Advantage
from sharpen.ops import advantages as adv
from sharpen.ops import credit, kl, preference
from sharpen.records import TrainingBatch

BY_COMPLETION: dict[str, Callable[[Tensor, Advantage], Tensor]] = {
    "constant": lambda rewards, a: torch.ones_like(rewards),
    "reward": lambda rewards, a: rewards.nan_to_num(0.0),
    "accept": lambda rewards, a: adv.accept(rewards, threshold=a.threshold),
    "group_norm": lambda rewards, a: adv.group_norm(rewards, ddof=a.ddof, eps=a.eps),
    "group_mean": lambda rewards, a: adv.group_mean(rewards),
    "leave_one_out": lambda rewards, a: adv.leave_one_out(rewards),
}
"""Rewards [P, G] → advantages [P, G], one for all tokens of a completion."""


def assign(batch: TrainingBatch, advantage: Advantage, penalty: KL) -> TrainingBatch:
    """The batch with its advantages, and its returns where a value model learns.

    Args:
        batch: of the whole rollout, with `rewards` and `place`; with old and reference log-probabilities for a KL term in the reward, and
            with values for `gae`.
        advantage: how.
        penalty: a KL term in the reward is taken from each token's reward, or from the completion's by the sum over its tokens.
    """
    if batch.rewards is None or batch.place is None:
        raise ValueError("expected a batch with rewards and place")
    if advantage.kind == "preference":
        return _pairs(batch)
    costs = penalties(batch, penalty) if penalty.placement == "in_reward" and penalty.used else None
    if advantage.kind in BY_COMPLETION:
        rewards = batch.rewards
        if costs is not None:
            spent = torch.zeros(rewards.numel(), dtype=rewards.dtype, device=rewards.device)
            rewards = rewards - spent.index_add(0, batch.place, costs.sum(dim=1).to(rewards.dtype)).reshape(rewards.shape)
        values = BY_COMPLETION[advantage.kind](rewards, advantage).flatten()[batch.place]
        return _with(batch, values[:, None].expand(batch.tokens.shape))
    if advantage.kind == "process":
        if costs is not None:
            raise ValueError("a KL term in the reward is of tokens, and process supervision normalises steps: expected it in the loss")
        return _with(batch, credit.process(step_rewards(batch), batch.group_index, batch.loss_mask, ddof=advantage.ddof, eps=advantage.eps))
    rewards = credit.at_last_token(batch.rewards.flatten()[batch.place], batch.loss_mask)
    rewards = rewards if costs is None else rewards - costs
    if advantage.kind == "batch_norm":
        following = credit.to_go(rewards, batch.loss_mask)
        return _with(batch, credit.batch_norm(following, batch.loss_mask, ddof=advantage.ddof, eps=advantage.eps))
    if batch.values is None:
        raise ValueError("expected a batch with the value model's values")
    values = batch.values.to(rewards.dtype)
    found, returns = credit.gae(rewards, values, batch.loss_mask, gamma=advantage.gamma, lam=advantage.gae_lambda)
    if advantage.whiten:
        found = credit.batch_norm(found, batch.loss_mask, ddof=advantage.ddof, eps=advantage.eps)
    return replace(_with(batch, found), returns=returns.to(batch.advantages.dtype))


def penalties(batch: TrainingBatch, penalty: KL) -> Tensor:
    """β times the KL estimate of each token between the policy that sampled and the reference, [B, T]."""
    if batch.old_logprobs is None or batch.ref_logprobs is None:
        raise ValueError("a KL term in the reward: expected a batch with old and reference log-probabilities")
    old, ref = (torch.where(batch.loss_mask, x, 0.0) for x in (batch.old_logprobs, batch.ref_logprobs))
    return penalty.coef * kl.estimate(old, ref, penalty.estimator)


def step_rewards(batch: TrainingBatch) -> Tensor:
    """The batch's step rewards; without any, each completion is one step, worth its reward and ending at its last token, [B, T]."""
    if batch.step_rewards is not None:
        return batch.step_rewards
    assert batch.rewards is not None and batch.place is not None
    last = credit.at_last_token(torch.ones_like(batch.place), batch.loss_mask).bool()
    return torch.where(last, batch.rewards.flatten()[batch.place][:, None], torch.nan)


def _with(batch: TrainingBatch, values: Tensor) -> TrainingBatch:
    """Selected, not multiplied, by the mask."""
    return replace(batch, advantages=torch.where(batch.loss_mask, values, 0.0).to(batch.advantages.dtype))


def _pairs(batch: TrainingBatch) -> TrainingBatch:
    """The completions that form pairs, each pair's two next to each other, with advantages +1 and -1."""
    assert batch.rewards is not None and batch.place is not None
    row_of = {place: row for row, place in enumerate(batch.place.tolist())}
    size = batch.rewards.shape[1]
    found: list[int] = []
    for p, rewards in enumerate(batch.rewards):
        there = torch.tensor([p * size + i in row_of for i in range(size)], device=rewards.device)
        for one, other in preference.pairs(torch.where(there, rewards, torch.nan)):
            found += [row_of[p * size + one], row_of[p * size + other]]
    chosen = batch.select(torch.tensor(found, dtype=torch.int64, device=batch.place.device))
    sign = torch.tensor([1.0, -1.0], device=batch.place.device).repeat(len(found) // 2)[:, None]
    return replace(_with(chosen, sign.expand(chosen.tokens.shape)), pair=torch.arange(len(found), device=batch.place.device) // 2)
