"""Scored groups → batches for a method's loss. Axes: P problems, G completions, B sequences, T tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

import torch
from torch import Tensor

from sharpen.methods import Method
from sharpen.models.policy import Reader
from sharpen.ops.reduce import token_weights
from sharpen.records import Group, Scores, TrainingBatch, pad
from sharpen.streams import permutation


def build(groups: Sequence[Group], scores: Scores) -> TrainingBatch:
    """One batch of the whole rollout; unscorable and empty completions are left out. Advantages and weights come later.

    Args:
        groups: P groups of G completions.
        scores: their rewards.
    """
    kept = [
        (p, i)
        for p, group in enumerate(groups)
        for i, completion in enumerate(group.completions)
        if completion.tokens and not scores.total[p, i].isnan()
    ]
    completions = [groups[p].completions[i] for p, i in kept]
    tokens = pad([c.tokens for c in completions], dtype=torch.int64)
    mask = pad([(1,) * len(c.tokens) for c in completions], dtype=torch.int64).bool()
    return TrainingBatch(
        prompts=tuple(group.prompt_tokens for group in groups),
        group_index=torch.tensor([p for p, _ in kept], dtype=torch.int64),
        tokens=tokens,
        loss_mask=mask,
        advantages=torch.zeros(mask.shape),
        weights=torch.zeros(mask.shape),
        sampling_logprobs=pad([c.sampling_logprobs for c in completions], dtype=torch.float32),
        rewards=scores.total,
        place=torch.tensor([p * scores.total.shape[1] + i for p, i in kept], dtype=torch.int64),
        step_rewards=None if scores.steps is None else _step_rewards([scores.steps[p][i] for p, i in kept], mask),
    )


def advantages_of(batch: TrainingBatch, groups: Sequence[Group]) -> list[list[tuple[float, ...] | None]]:
    """By group and completion, the advantage of each token; None of those that are not in the batch: unscorable, empty, or in no pair.

    Args:
        batch: of the whole rollout, with advantages and places.
        groups: P groups of G completions, from which it was built.
    """
    found: list[list[tuple[float, ...] | None]] = [[None] * len(group.completions) for group in groups]
    if batch.place is None or not len(batch.tokens):
        return found
    size = len(groups[0].completions)
    for place, length, row in zip(batch.place.tolist(), batch.lengths.tolist(), batch.advantages.tolist(), strict=True):
        found[place // size][place % size] = tuple(row[:length])
    return found


def _step_rewards(steps: Sequence[Sequence[tuple[int, float]]], mask: Tensor) -> Tensor:
    """(end, value) pairs of each sequence → float64 [B, T], NaN where no step ends; without any, NaN everywhere."""
    out = torch.full(mask.shape, torch.nan, dtype=torch.float64)
    for row, ends in enumerate(steps):
        for end, value in ends:
            out[row, end] = value
    return out


def minibatches(
    batch: TrainingBatch, method: Method, count: int, *, constant_length: int, seed: int, step: int, iteration: int
) -> Iterator[TrainingBatch]:
    """Cut a rollout into `count` minibatches of whole groups, in seeded order, each with the method's weights over itself.

    Args:
        batch: of the whole rollout.
        method: for the reduction.
        count: minibatches; the groups are dealt out as evenly as they go.
        constant_length: L of the reductions that divide by a constant, in tokens.
        seed: the run's.
        step: of training.
        iteration: which pass over the rollout, from 0 (the paper's μ passes).
    """
    groups = len(batch.prompts)
    order = list(range(groups)) if count == 1 else permutation(groups, seed, "minibatches", step, iteration)
    for part in range(count):
        members = torch.tensor(sorted(order[part::count]), dtype=torch.int64)
        rows = torch.isin(batch.group_index, members).nonzero().squeeze(1)
        if not len(rows):
            continue
        chosen = batch.select(rows)
        yield replace(chosen, weights=token_weights(chosen.loss_mask, method.reduction, constant_length=constant_length))


def learning_rows(batch: TrainingBatch, method: Method) -> Tensor:
    """int64 [b], the sequences whose loss has a gradient: all of them under a KL term in it, else those of nonzero advantage.

    Leaving the others out of the forward pass changes nothing but time, since the weights already count them.
    """
    if method.moves_without_advantage:
        return torch.arange(len(batch.tokens))
    return (batch.advantages != 0).any(dim=1).nonzero().squeeze(1)


def microbatches(batch: TrainingBatch, rows: Tensor, policy: Reader, token_budget: int) -> Iterator[TrainingBatch]:
    """Cut sequences into micro-batches of at most `token_budget` token positions each, prompts and padding included where it can.

    A group that one micro-batch can hold is not cut, for then its prompt would be read twice.

    Args:
        batch: a minibatch with its weights.
        rows: int64 [b], the sequences to visit; those of one group stay in order.
        policy: tells what a sequence costs; a policy or a value model.
        token_budget: positions of one forward pass; one sequence that is longer goes alone.
    """
    costs = policy.cost(batch)
    current: list[int] = []
    widths: dict[int, int] = {}
    for piece in _pieces(batch, rows, costs, token_budget):
        grown = _grown(widths, piece, batch, costs)
        if current and sum(grown.values()) > token_budget:
            yield batch.select(torch.tensor(current))
            current, grown = [], _grown({}, piece, batch, costs)
        current += piece
        widths = grown
    if current:
        yield batch.select(torch.tensor(current))


def _pieces(batch: TrainingBatch, rows: Tensor, costs: Sequence[int], token_budget: int) -> Iterator[list[int]]:
    """What goes into one micro-batch together: a whole group where it fits, else its units."""
    for _, units in groupby(_units(batch, rows), key=lambda unit: int(batch.group_index[unit[0]])):
        pieces = list(units)
        whole = [row for piece in pieces for row in piece]
        yield from [whole] if sum(_grown({}, whole, batch, costs).values()) <= token_budget else pieces


def _units(batch: TrainingBatch, rows: Tensor) -> list[list[int]]:
    """The sequences that must stay together: one alone, or the two of a pair."""
    chosen = rows.tolist()
    return [[row] for row in chosen] if batch.pair is None else [chosen[k : k + 2] for k in range(0, len(chosen), 2)]


def _grown(widths: Mapping[int, int], unit: Sequence[int], batch: TrainingBatch, costs: Sequence[int]) -> dict[int, int]:
    """The positions that each group takes in a forward pass, once these sequences have joined."""
    out = dict(widths)
    for row in unit:
        group = int(batch.group_index[row])
        out[group] = out.get(group, len(batch.prompts[group])) + costs[row]
    return out
