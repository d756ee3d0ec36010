"""One token a row from logits, by inverse distribution function. Axes: B rows, V vocabulary."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from sharpen.rollout.engine import Sampling


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
    logits = logits.float()
    if sampling.temperature == 0:
        tokens = logits.argmax(dim=-1)
        return tokens, _logprob(logits, tokens)
    if sampling.temperature != 1:
        logits = logits / sampling.temperature
    probabilities = torch.softmax(logits, dim=-1)
    weights = probabilities if sampling.top_p >= 1 else _nucleus(probabilities, sampling.top_p)
    cumulative = weights.cumsum(dim=-1)
    total = cumulative[:, -1:]
    # Strictly below the total, so that the first entry above it always exists and has weight.
    target = torch.minimum(draws[:, None] * total, torch.nextafter(total, torch.zeros_like(total)))
    tokens = torch.searchsorted(cumulative, target, right=True).squeeze(1)
    return tokens, _logprob(logits, tokens)


def _logprob(logits: Tensor, tokens: Tensor) -> Tensor:
    return logits.gather(1, tokens[:, None]).squeeze(1) - logits.logsumexp(dim=-1)


def _nucleus(probabilities: Tensor, top_p: float) -> Tensor:
    """The probabilities with all outside the smallest set of total at least `top_p` set to 0 (the token that crosses it stays)."""
    ordered, index = probabilities.sort(dim=-1, descending=True)
    before = ordered.cumsum(dim=-1) - ordered
    return torch.zeros_like(probabilities).scatter(1, index, torch.where(before < top_p, ordered, 0.0))
