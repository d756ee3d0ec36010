"""One token a row from logits, by inverse distribution function. Axes: B rows, V vocabulary."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from sharpen.rollout.engine import Sampling

BLOCK = 256  # entries of the vocabulary that are summed at once


def uniforms(seeds: list[int], count: int) -> Tensor:
    """float32 [B, count] in [0, 1): row i is the stream of seed i alone, so that no row depends on what it is batched with."""
    rows = [np.random.Generator(np.random.Philox(seed)).random(count, dtype=np.float32) for seed in seeds]
    return torch.from_numpy(np.stack(rows)) if rows else torch.zeros(0, count)


def choose(logits: Tensor, draws: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
    """Choose a token a row.

    Args:
        logits: [B, V].
        draws: float32 [B], uniform in [0, 1); unused when greedy.
        sampling: temperature and top_p.

    Returns:
        Token ids int64 [B], and their log-probabilities float32 [B] at the temperature (at 1 when greedy), of the whole distribution.
    """
    if sampling.temperature == 0:
        tokens = logits.argmax(dim=-1)
        logits = logits.float()
        return tokens, logits.gather(1, tokens[:, None]).squeeze(1) - logits.logsumexp(dim=-1)
    wide = logits.float()
    probabilities = (wide if sampling.temperature == 1 else wide / sampling.temperature).softmax(dim=-1)
    tokens = _invert(probabilities if sampling.top_p >= 1 else _nucleus(probabilities, sampling.top_p), draws)
    return tokens, probabilities.gather(1, tokens[:, None]).squeeze(1).log()


def _invert(weights: Tensor, draws: Tensor) -> Tensor:
    """The first entry of each row at which the running sum is above draw · total; by blocks, so that few entries are summed one by one."""
    missing = -weights.shape[1] % BLOCK
    padded = (functional.pad(weights, (0, missing)) if missing else weights).unflatten(1, (-1, BLOCK))
    block, rest = _first_above(padded.sum(dim=2), draws, None)
    inside = padded[torch.arange(len(padded), device=padded.device), block]
    return block * BLOCK + _first_above(inside, draws, rest)[0]


def _first_above(weights: Tensor, draws: Tensor, target: Tensor | None) -> tuple[Tensor, Tensor]:
    """The first entry at which the running sum is above the target (by default draw · total), and what of it that entry leaves."""
    cumulative = weights.cumsum(dim=1)
    total = cumulative[:, -1]
    target = draws * total if target is None else target
    # Strictly below the total, so that the first entry above it always exists and has weight.
    target = torch.minimum(target, torch.nextafter(total, torch.zeros_like(total)))
    index = torch.searchsorted(cumulative, target[:, None], right=True).squeeze(1)
    before = torch.where(index > 0, cumulative.gather(1, (index - 1).clamp(min=0)[:, None]).squeeze(1), 0.0)
    return index, target - before


def _nucleus(probabilities: Tensor, top_p: float) -> Tensor:
    """The probabilities with all outside the smallest set of total at least `top_p` set to 0 (the token that crosses it stays)."""
    ordered, index = probabilities.sort(dim=-1, descending=True)
    before = ordered.cumsum(dim=-1) - ordered
    return torch.zeros_like(probabilities).scatter(1, index, torch.where(before < top_p, ordered, 0.0))
