"""Sampling with the trained model itself, in this process: no copy of the weights, and no gap between engine and trainer but rounding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from sharpen.rollout import fast_linear, sampler
from sharpen.rollout.engine import Sampled, Sampling
from sharpen.rollout.fast_linear import FastLinear
from sharpen.rollout.kv_cache import FixedCache

COMPACT_BELOW = 0.8  # finished rows leave when no more than this share is still being sampled


@dataclass
class _Row:
    """A completion being sampled: where it belongs, and what it has so far."""

    prompt: int
    seed: int
    index: int
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    stopped: bool = False


class TorchEngine:
    """Samples with a Hugging Face causal language model.

    Args:
        module: the model; the weights it has when `sample` is called are the ones that sample.
        stop_ids: a completion ends at the first of these.
        max_rows: completions decoded at once; more wait for the next batch.
    """

    def __init__(self, module: Any, stop_ids: Sequence[int], *, max_rows: int = 128) -> None:
        self.module = module
        self.stop_ids = frozenset(stop_ids)
        self.max_rows = max_rows
        self.fast_linear = next(module.parameters()).device.type == "cpu" and fast_linear.available()

    @torch.inference_mode()
    def sample(
        self,
        prompts: Sequence[tuple[int, ...]],
        seeds: Sequence[Sequence[int]],
        sampling: Sampling,
        on_progress: Callable[[int], None] | None = None,
    ) -> list[list[Sampled]]:
        """See `sharpen.rollout.engine.Engine.sample`."""
        out: list[list[Sampled]] = [[] for _ in prompts]
        was_training = self.module.training
        self.module.eval()
        try:
            for rows in self._batches(seeds):
                with FastLinear() if self.fast_linear else nullcontext():
                    self._decode(prompts, rows, sampling, on_progress or (lambda count: None))
                for row in rows:
                    out[row.prompt].append(Sampled(tuple(row.tokens), tuple(row.logprobs), "stop" if row.stopped else "length"))
        finally:
            self.module.train(was_training)
        return out

    def _batches(self, seeds: Sequence[Sequence[int]]) -> Iterator[list[_Row]]:
        """Rows in the order of prompts and seeds, at most `max_rows` at a time, whole groups together where they fit."""
        batch: list[_Row] = []
        for prompt, group in enumerate(seeds):
            rows = [_Row(prompt, seed, index) for index, seed in enumerate(group)]
            if batch and len(batch) + len(rows) > self.max_rows:
                yield batch
                batch = []
            while len(rows) > self.max_rows:
                yield rows[: self.max_rows]
                rows = rows[self.max_rows :]
            batch += rows
        if batch:
            yield batch

    def _decode(self, prompts: Sequence[tuple[int, ...]], rows: list[_Row], sampling: Sampling, on_progress: Callable[[int], None]) -> None:
        device = next(self.module.parameters()).device
        logits, cache, mask, lengths = self._prefill(prompts, rows, sampling.max_new_tokens, device)
        draws = sampler.uniforms([row.seed for row in rows], sampling.max_new_tokens)
        active = list(range(len(rows)))  # the batch's row i holds rows[active[i]]
        waiting = len(rows)  # completions not yet told of
        for step in range(sampling.max_new_tokens):
            tokens, logprobs = sampler.choose(logits, draws[active, step].to(device), sampling)
            self._record([rows[i] for i in active], tokens.tolist(), logprobs.tolist())
            keep = [i for i, row in enumerate(active) if not rows[row].stopped]
            last = not keep or step + 1 == sampling.max_new_tokens
            if (ended := waiting if last else waiting - len(keep)) > 0:
                on_progress(ended)
                waiting -= ended
            if last:
                return
            if len(keep) <= COMPACT_BELOW * len(active):
                chosen = torch.tensor(keep, device=device)
                cache = cache.take(chosen, room=sampling.max_new_tokens - step)
                active, tokens, lengths, mask = [active[i] for i in keep], tokens[chosen], lengths[chosen], mask[chosen]
            mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
            logits = self._forward(tokens[:, None], (lengths + step)[:, None], mask[:, None, None], cache)

    def _record(self, rows: list[_Row], tokens: list[int], logprobs: list[float]) -> None:
        for row, token, logprob in zip(rows, tokens, logprobs, strict=True):
            if not row.stopped:
                row.tokens.append(token)
                row.logprobs.append(logprob)
                row.stopped = token in self.stop_ids

    def _prefill(
        self, prompts: Sequence[tuple[int, ...]], rows: list[_Row], room: int, device: torch.device
    ) -> tuple[Tensor, FixedCache, Tensor, Tensor]:
        """Read each prompt once, left-padded, and spread it over its group: next-token logits, cache, key mask and prompt lengths a row."""
        wanted = list(dict.fromkeys(row.prompt for row in rows))
        width = max(len(prompts[p]) for p in wanted)
        padding = torch.tensor([width - len(prompts[p]) for p in wanted])
        tokens = torch.tensor([[0] * (width - len(prompts[p])) + list(prompts[p]) for p in wanted])
        order = torch.arange(width)
        keys = order[None, :] >= padding[:, None]
        mask = (keys[:, None, :] & (order[:, None] >= order[None, :])) | torch.eye(width, dtype=torch.bool)
        positions = (order[None, :] - padding[:, None]).clamp(min=0)
        cache = FixedCache(int(self.module.config.num_hidden_layers), width)
        logits = self._forward(tokens.to(device), positions.to(device), mask[:, None].to(device), cache)
        spread = torch.tensor([wanted.index(row.prompt) for row in rows], device=device)
        return logits[spread], cache.take(spread, room=room), keys.to(device)[spread], (width - padding).to(device)[spread]

    def _forward(self, tokens: Tensor, positions: Tensor, mask: Tensor, cache: FixedCache) -> Tensor:
        """Next-token logits [B, V]; `mask` is bool [B, 1, queries, keys]."""
        attention = None if bool(mask.all()) and tokens.shape[1] == 1 else mask
        out = self.module(input_ids=tokens, position_ids=positions, attention_mask=attention, cache=cache, use_cache=True, logits_to_keep=1)
        return out.logits[:, -1]
