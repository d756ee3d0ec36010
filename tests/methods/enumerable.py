"""A sequence policy that can be written out: three tokens of which 2 is the end, at most three of them, a row of logits for each beginning.

What 1/|o|, sums over steps, sequence ratios and accumulated KL do shows on sequences of different lengths only.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import torch
from torch import Tensor

from sharpen.methods import Method
from sharpen.models.policy import PolicyOutput
from sharpen.ops.reduce import token_weights
from sharpen.records import TrainingBatch, pad

BEGINNINGS = [(), (0,), (1,), (0, 0), (0, 1), (1, 0), (1, 1)]
COMPLETIONS = [(2,), (0, 2), (1, 2), *product((0, 1), (0, 1), (0, 1, 2))]
"""All 15 completions; eight of them are cut at the limit of three tokens and have no end."""


class SequencePolicy:
    """π(o_t | o_<t) by a table of logits, float64."""

    def __init__(self, seed: int) -> None:
        self.module = torch.nn.Module()
        generator = torch.Generator().manual_seed(seed)
        self.module.table = torch.nn.Parameter(torch.randn(len(BEGINNINGS), 3, generator=generator, dtype=torch.float64))

    def logprobs(self, batch: TrainingBatch, *, temperature: float = 1.0) -> PolicyOutput:
        rows = [[BEGINNINGS.index(tuple(row[:t])) if ok else 0 for t, ok in enumerate(mask)] for row, mask in zip(
            batch.tokens.tolist(), batch.loss_mask.tolist(), strict=True)]  # fmt: skip
        full = (self.module.table / temperature).log_softmax(dim=1)[torch.tensor(rows)]
        chosen = full.gather(2, batch.tokens[:, :, None]).squeeze(2)
        return PolicyOutput(torch.where(batch.loss_mask, chosen, 0.0), torch.zeros_like(chosen))

    def cost(self, batch: TrainingBatch) -> list[int]:
        return batch.lengths.tolist()

    def log_probability(self) -> Tensor:
        """log π(o) of every completion, [15], with gradient."""
        return self.logprobs(batch_of(list(COMPLETIONS), [0.0] * 15, 1)).logprobs.sum(dim=1)


def batch_of(completions: list[tuple[int, ...]], rewards: list[float], groups: int) -> TrainingBatch:
    """Completions of equally large groups, one after the other, in float64."""
    mask = pad([(1,) * len(o) for o in completions], dtype=torch.int64).bool()
    zeros = torch.zeros(mask.shape, dtype=torch.float64)
    size = len(completions) // groups
    return TrainingBatch(
        prompts=((9,),) * groups,
        group_index=torch.arange(groups).repeat_interleave(size),
        tokens=pad(completions, dtype=torch.int64),
        loss_mask=mask,
        advantages=zeros,
        weights=zeros,
        sampling_logprobs=zeros,
        rewards=torch.tensor(rewards, dtype=torch.float64).reshape(groups, size),
        place=torch.arange(len(completions)),
    )


def sampled_gradient(policy, method: Method, batch: TrainingBatch, reference=None, *, constant_length: int = 4, share=None) -> Tensor:
    """Minus the gradient of the loss of on-policy groups, flat: what an ascent of the objective would add.

    With `share`, one number a group, each group is a minibatch of its own and their gradients are added up by these shares.
    """
    old = policy.logprobs(batch).logprobs.detach()
    ref = reference.logprobs(batch).logprobs.detach() if reference is not None else None
    batch = method.with_advantages(replace(batch, old_logprobs=old, ref_logprobs=ref))
    whole = [slice(None)] if share is None else [batch.group_index == g for g in range(len(share))]
    weights = torch.zeros_like(batch.weights)
    for rows, part in zip(whole, [1.0] if share is None else share, strict=True):
        mask = batch.loss_mask[rows]
        weights[rows] = part * token_weights(mask, method.reduction, constant_length=constant_length, dtype=torch.float64)
    loss = (weights * method.loss(policy.logprobs(batch).logprobs, batch).values).sum()
    return -torch.autograd.grad(loss, next(policy.module.parameters()))[0].flatten()


def expected_gradient(policy: SequencePolicy, method: Method, rewards: Tensor, size: int, *, reference=None, values=None) -> Tensor:
    """The exact expectation of `sampled_gradient` over all groups of independent completions, each weighed by its probability."""
    probability = policy.log_probability().detach().exp()
    groups = torch.tensor(list(product(range(15), repeat=size)))
    chosen = groups.flatten()
    batch = batch_of([COMPLETIONS[i] for i in chosen.tolist()], rewards[chosen].tolist(), len(groups))
    if values is not None:
        batch = replace(batch, values=torch.where(batch.loss_mask, values[chosen], 0.0))
    return sampled_gradient(policy, method, batch, reference, share=probability[groups].prod(dim=1))


def gradient_of(objective: Tensor, policy) -> Tensor:
    """∇ of a scalar with respect to the policy's parameters, flat."""
    return torch.autograd.grad(objective, next(policy.module.parameters()))[0].flatten()
