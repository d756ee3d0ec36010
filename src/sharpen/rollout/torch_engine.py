"""Sampling with the trained model itself, in this process: fast for few rows at a time, and with no gap to the trainer but rounding.

Each prompt is read once. Its completions are rows of a decode step, and a row that has finished is given to the next completion that waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from sharpen.models import decoder
from sharpen.models.attention import Span
from sharpen.models.decoder import Decoder, rotate
from sharpen.models.policy import plain_head
from sharpen.rollout import sampler
from sharpen.rollout.batch import Prompts, Rows
from sharpen.rollout.engine import Sampled, Sampling
from sharpen.rollout.generate import Generate
from sharpen.rollout.weights import LayerWeights, Weights

COMPACT_BELOW = 0.8  # with none waiting, finished rows leave when no more than this share is still being sampled


@dataclass(eq=False)
class _Completion:
    """A completion being sampled: where it belongs, its random numbers, and what it has so far."""

    prompt: int
    index: int
    draws: Tensor
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    stopped: bool = False


class TorchEngine:
    """Samples with a Hugging Face causal language model.

    A model that `sharpen.models.decoder` has no forward pass for is sampled by its own `generate`.

    Args:
        module: the model; the weights it has when `sample` is called are the ones that sample.
        stop_ids: a completion ends at the first of these.
        max_rows: completions decoded at once; more wait for a row.
        share_prefixes: a prompt that another one of the call begins with is not read by itself: its completions look at the beginning of
            the longer one's keys and values. It changes what is read, and the last bits of log-probabilities.
        notice: is told when the model is sampled by `generate`.

    Attributes:
        tokens_read: of prompts, in all calls so far.
    """

    def __init__(
        self,
        module: Any,
        stop_ids: Sequence[int],
        *,
        max_rows: int = 128,
        share_prefixes: bool = False,
        notice: Callable[[str], None] | None = None,
    ) -> None:
        self.module, self.stop_ids, self.max_rows, self.share_prefixes = module, frozenset(stop_ids), max_rows, share_prefixes
        self.tokens_read = 0
        body = module.get_decoder() if hasattr(module, "get_decoder") else module
        reason = decoder.why_not(body) or ("its head is not a plain one" if plain_head(module) is None else None)
        self.decoder = Decoder(body) if reason is None else None
        if reason is not None and notice is not None:
            notice(f"{type(module).__name__} is sampled by the `generate` of transformers, which is slower: {reason}.")

    @torch.inference_mode()
    def sample(
        self,
        prompts: Sequence[tuple[int, ...]],
        seeds: Sequence[Sequence[int]],
        sampling: Sampling,
        on_progress: Callable[[int], None] | None = None,
    ) -> list[list[Sampled]]:
        """See `sharpen.rollout.engine.Engine.sample`."""
        tell = on_progress or (lambda count: None)
        if self.decoder is None:
            self.tokens_read += sum(len(prompt) * len(group) for prompt, group in zip(prompts, seeds, strict=True))
            return Generate(self.module, self.stop_ids, self.max_rows).sample(prompts, seeds, sampling, tell)
        # Laid out anew for each call, for nothing tells reliably that an optimiser has changed the weights (fused ones leave a tensor's
        # version as it was); and dropped after it, so that training has the memory.
        weights = Weights(self.module, self.decoder)
        waiting = [
            _Completion(p, i, sampler.uniforms([seed], sampling.max_new_tokens)[0])
            for p, group in enumerate(seeds)
            for i, seed in enumerate(group)
        ]
        homes = shared_homes(prompts) if self.share_prefixes else list(range(len(prompts)))
        work = _Work(self.decoder, weights, prompts, homes, sampling, self.stop_ids, tell)
        work.run(waiting, self.max_rows)
        self.tokens_read += work.tokens_read
        out: list[list[Sampled]] = [[] for _ in prompts]
        for one in waiting:
            out[one.prompt].append(Sampled(tuple(one.tokens), tuple(one.logprobs), "stop" if one.stopped else "length"))
        return out


def shared_homes(prompts: Sequence[tuple[int, ...]]) -> list[int]:
    """For each prompt the one whose keys and values it uses, itself or one that begins with it: `[(1,), (2,), (1, 3)]` gives 2, 1, 2."""
    homes = list(range(len(prompts)))
    after: int | None = None
    # In order, a prompt that others begin with stands right before them.
    for p in sorted(homes, key=lambda p: prompts[p], reverse=True):
        if after is not None and prompts[homes[after]][: len(prompts[p])] == prompts[p]:
            homes[p] = homes[after]
        after = p
    return homes


class _Work:
    """One call of `sample`. A prompt's home is the prompt whose keys and values its completions use."""

    def __init__(
        self,
        body: Decoder,
        weights: Weights,
        prompts: Sequence[tuple[int, ...]],
        homes: Sequence[int],
        sampling: Sampling,
        stop_ids: frozenset[int],
        tell: Callable[[int], None],
    ) -> None:
        self.body, self.weights, self.prompts, self.homes = body, weights, prompts, homes
        self.guests: dict[int, list[int]] = {}
        for p, home in enumerate(homes):
            self.guests.setdefault(home, []).append(p)
        self.tokens_read = 0
        self.sampling, self.stop_ids, self.tell = sampling, stop_ids, tell
        self.device = weights.norm.weight.device
        self.windows = list(dict.fromkeys(layer.window for layer in weights.layers))
        self.first: dict[int, Tensor] = {}  # prompt → the logits after it
        self.lanes: list[int] = []  # the homes whose keys are held
        self.row: list[_Completion | None] = []  # None: a row whose completion has finished

    def run(self, completions: list[_Completion], max_rows: int) -> None:
        """Sample them all."""
        queue = iter(completions)
        self.row = [None] * min(max_rows, len(completions))
        rows = self._admit(queue, None)
        while rows is not None and any(self.row):
            logits = self._step(rows)
            self._choose(logits, list(range(len(self.row))))
            rows = self._admit(queue, rows)

    def _admit(self, queue: Iterator[_Completion], rows: Rows | None) -> Rows | None:
        """Give free rows to completions that wait; drop free rows when none waits."""
        free = [i for i, one in enumerate(self.row) if one is None]
        fresh: list[int] = []
        while free and (batch := [one for _, one in zip(free, queue, strict=False)]):
            wanted = dict.fromkeys(self.homes[one.prompt] for one in batch)
            new = [home for home in wanted if home not in self.lanes]
            if new or rows is None:
                rows = self._read(new, set(wanted), rows)
            for i, one in zip(free, batch, strict=False):
                self.row[i] = one
                rows.restart(i, self.lanes.index(self.homes[one.prompt]), len(self.prompts[one.prompt]))
            fresh = free[: len(batch)]
            self._choose(torch.stack([self.first[one.prompt] for one in batch]), fresh)
            free = [i for i, one in enumerate(self.row) if one is None]
        if rows is None:
            return None
        if fresh:
            rows.arrange()
        alive = [i for i, one in enumerate(self.row) if one is not None]
        if alive and len(alive) <= COMPACT_BELOW * len(self.row):
            rows.keep(torch.tensor(alive, device=self.device))
            self.row = [self.row[i] for i in alive]
        return rows

    def _read(self, new: list[int], wanted: set[int], rows: Rows | None) -> Rows:
        """Read prompts, hold their keys and values and next-token logits, and forget those that no row has any more nor is about to get."""
        lengths = [len(self.prompts[p]) for p in new]
        starts = [sum(lengths[:i]) for i in range(len(new))]
        tokens = torch.tensor([token for p in new for token in self.prompts[p]], device=self.device)
        positions = torch.cat([torch.arange(n) for n in lengths]).to(self.device)
        kept: list[tuple[Tensor, Tensor]] = []
        spans = [Span(start, n) for start, n in zip(starts, lengths, strict=True)]
        hidden = self.body.hidden(tokens, positions, spans, keep=lambda k, v: kept.append((k, v)))
        guests = [(p, start + len(self.prompts[p]) - 1) for home, start in zip(new, starts, strict=True) for p in self.guests[home]]
        logits = self.weights.head(hidden[torch.tensor([last for _, last in guests], device=self.device)])
        self.tokens_read += len(tokens)
        more = Prompts(kept, lengths)
        used = wanted | {self.homes[one.prompt] for one in self.row if one is not None}
        keep = [lane for lane, home in enumerate(self.lanes) if home in used]
        self.first = {p: row for p, row in self.first.items() if self.homes[p] in used}
        self.first |= {p: row for (p, _), row in zip(guests, logits, strict=True)}
        old_lanes = self.lanes
        self.lanes = [self.lanes[lane] for lane in keep] + new
        if rows is None:
            return Rows(more, torch.zeros(len(self.row), dtype=torch.int64, device=self.device))
        rows.prompts.replace(torch.tensor(keep, dtype=torch.int64, device=self.device), more)
        moved = torch.tensor([self.lanes.index(home) if home in used else 0 for home in old_lanes], device=self.device)
        rows.prompt_of = moved[rows.prompt_of]
        return rows

    def _choose(self, logits: Tensor, where: list[int]) -> None:
        """Choose the next token of these rows, and let those go that have ended."""
        alive = [(i, one) for i, row in enumerate(where) if (one := self.row[row]) is not None]
        draws = torch.stack([one.draws[len(one.tokens)] for _, one in alive]).to(self.device)
        if len(alive) < len(where):
            logits = logits[torch.tensor([i for i, _ in alive], device=self.device)]
        tokens, logprobs = sampler.choose(logits, draws, self.sampling)
        ended = 0
        for (i, one), token, logprob in zip(alive, tokens.tolist(), logprobs.tolist(), strict=True):
            one.tokens.append(token)
            one.logprobs.append(logprob)
            one.stopped = token in self.stop_ids
            if one.stopped or len(one.tokens) == self.sampling.max_new_tokens:
                self.row[where[i]] = None
                ended += 1
        if ended:
            self.tell(ended)

    def _step(self, rows: Rows) -> Tensor:
        """Feed each row its last token: next-token logits [R, V]."""
        rows.begin(self.windows)
        tokens = torch.tensor([one.tokens[-1] if one is not None else 0 for one in self.row], device=self.device)
        rotations = {
            kind: (cos * self.weights.head_scale, sin * self.weights.head_scale)
            for kind, (cos, sin) in self.body.rotations(rows.begun + rows.lengths).items()
        }
        x = self.body.embed(tokens)
        for i, layer in enumerate(self.weights.layers):
            x = self._layer(i, layer, x, rotations[layer.kind], rows)
        rows.lengths = rows.lengths + 1
        return self.weights.head(self.weights.norm(x, self.body.dtype))

    def _layer(self, i: int, layer: LayerWeights, x: Tensor, rotation: tuple[Tensor, Tensor], rows: Rows) -> Tensor:
        dtype, turned = self.body.dtype, self.weights.heads + self.weights.keys
        qkv = layer.qkv(layer.before_attention(x, dtype)).unflatten(1, (-1, layer.head_size))
        qk = qkv[:, :turned].to(x.dtype)
        if layer.head_norm is not None:
            qk, _ = decoder.rms_norm(qk, layer.head_norm, layer.head_eps, x.dtype)
        qk = rotate(qk, rotation).to(dtype)
        mixed = layer.o(rows.attend(i, qk[:, : self.weights.heads], qk[:, self.weights.heads :], qkv[:, turned:], layer.window))
        x = x + (mixed if layer.after_attention is None else layer.after_attention(mixed, x.dtype))
        fed = layer.feed(layer.before_mlp(x, dtype))
        return x + (fed if layer.after_mlp is None else layer.after_mlp(fed, x.dtype))
