"""Attention over a stream of tokens in which the completions of a group share one prompt.

A group lies in the stream as `[prompt | o_1 | o_2 | ... | o_G]`. A completion's token sees the prompt and its own completion up to itself.
Its scores are one row, those of the prompt's keys and then those of its own, under one softmax. Scores and softmax are in float32 at least;
the products with values and gradients in the model's type.

Completions, and positions of long ones, are taken a block at a time, so that the scores that exist at once stay few; a block's keys end
where it ends. The backward pass computes the probabilities again.
Axes: N tokens of the stream, H query heads, J key-value heads, R = H / J, D head size, L prompt tokens, G completions at a time, T tokens
of the longest, B positions of a block, E entries that it sees.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

BLOCK = 2**20  # scores that exist at once: 4 MiB, which a processor's cache holds


@dataclass(frozen=True)
class Span:
    """Where a group lies in the stream.

    Attributes:
        start: of its prompt.
        prompt: the prompt's tokens.
        lengths: tokens of each completion, in order after the prompt.
    """

    start: int
    prompt: int
    lengths: tuple[int, ...] = ()

    @property
    def prompt_slice(self) -> slice:
        """Where the prompt is."""
        return slice(self.start, self.start + self.prompt)

    @property
    def own_slice(self) -> slice:
        """Where the completions are."""
        return slice(self.start + self.prompt, self.stop)

    @property
    def stop(self) -> int:
        """Where the group ends."""
        return self.start + self.prompt + sum(self.lengths)

    def visible(self, window: int | None) -> Tensor:
        """Bool [n, n] over the group's tokens: which keys each may see."""
        segment = torch.cat([torch.full((n,), i) for i, n in enumerate((self.prompt, *self.lengths))])
        position = torch.cat([torch.arange(self.prompt)] + [self.prompt + torch.arange(n) for n in self.lengths])
        index = torch.arange(len(segment))
        seen = ((segment[None] == segment[:, None]) | (segment[None] == 0)) & (index[None] <= index[:, None])
        return seen if window is None else seen & (position[:, None] - position[None] < window)


def attend(q: Tensor, k: Tensor, v: Tensor, spans: Sequence[Span], *, scale: float, window: int | None = None) -> Tensor:
    """Attention of every token to its prompt and its own completion.

    Args:
        q: [N, H, D].
        k: [N, J, D].
        v: [N, J, D].
        spans: the groups, which together are the stream.
        scale: of q · k.
        window: a token sees keys less than so many positions back; None sees all.

    Returns:
        [N, H, D], with gradient to q, k and v.
    """
    if window is not None and all(span.prompt + max(span.lengths, default=0) <= window for span in spans):
        window = None
    if window is None and q.device.type == "cpu":
        return _SharedPrompt.apply(q, k, v, tuple(spans), scale)
    return torch.cat([_masked(q, k, v, span, window, scale) for span in spans])


def _masked(q: Tensor, k: Tensor, v: Tensor, span: Span, window: int | None, scale: float) -> Tensor:
    """One group under a mask over all its tokens."""
    q, k, v = (x[span.start : span.stop].transpose(0, 1)[None] for x in (q, k, v))
    mask = span.visible(window).to(q.device)
    out = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=True)
    return out[0].transpose(0, 1)


class _Part:
    """Sequences that attend alike: a prompt, or some of the completions behind it, which see it as well.

    Its keys and values are looked up in a table for each sequence and head: the shared ones, then the sequence's own.

    Args:
        where: they lie in the stream.
        lengths: tokens of each; T is the longest.
        shared: where the keys lie that all of them see; L of them.
        keys: heads of keys.
    """

    def __init__(self, where: slice, lengths: tuple[int, ...], shared: slice, keys: int) -> None:
        self.where, self.lengths, self.shared, self.keys = where, lengths, shared, keys
        self.longest, self.seen = max(lengths), shared.stop - shared.start
        self.even = len(set(lengths)) == 1

    @cached_property
    def order(self) -> tuple[Tensor, Tensor]:
        """The tokens one sequence a row, int64 [G, T] (short ones filled up, which nothing that counts sees), and which count, bool."""
        lengths = torch.tensor(self.lengths)
        column = torch.arange(self.longest)
        inside = column[None] < lengths[:, None]
        return torch.where(inside, (lengths.cumsum(0) - lengths)[:, None] + column[None], 0), inside

    def queries(self, x: Tensor) -> Tensor:
        """[N, H, D] → [G·J, T·R, D]."""
        return self._rows(x).unflatten(2, (self.keys, -1)).transpose(1, 2).flatten(0, 1).flatten(1, 2)

    def queries_back(self, x: Tensor) -> Tensor:
        """The opposite, [n, H, D]."""
        return self._unrows(x.unflatten(0, (-1, self.keys)).unflatten(2, (self.longest, -1)).transpose(1, 2).flatten(2, 3))

    def table(self, x: Tensor) -> Tensor:
        """[N, J, D] → [G·J, L + T, D]."""
        shared = x[self.shared].transpose(0, 1).expand(len(self.lengths), -1, -1, -1)
        return torch.cat([shared, self._rows(x).transpose(1, 2)], dim=2).flatten(0, 1)

    def add_table(self, x: Tensor, table: Tensor) -> None:
        """Add to x [N, J, D], in place, what the entries of a table got."""
        table = table.unflatten(0, (-1, self.keys)).transpose(1, 2)
        x[self.shared] += table[:, : self.seen].sum(dim=0)
        x[self.where] += self._unrows(table[:, self.seen :])

    def blank(self, x: Tensor) -> Tensor:
        """[G·J, T·R, D] with 0 in the places that were filled up, which repeat a true one's."""
        if self.even:
            return x
        by_place = x.unflatten(1, (self.longest, -1)).unflatten(0, (-1, self.keys))
        return by_place.masked_fill_(~self.order[1][:, None, :, None, None], 0.0).flatten(0, 1).flatten(1, 2)

    def _rows(self, x: Tensor) -> Tensor:
        x = x[self.where]
        return x.unflatten(0, (len(self.lengths), -1)) if self.even else x[self.order[0]]

    def _unrows(self, x: Tensor) -> Tensor:
        return x.flatten(0, 1) if self.even else x[self.order[1]]


class _Block(NamedTuple):
    """Positions of a part whose queries are taken together: their rows, the entries they see, and which of them lie later."""

    rows: slice
    entries: slice
    later: Tensor


def _parts(spans: Sequence[Span], heads: int, keys: int) -> Iterator[_Part]:
    """Prompts, and completions so many at a time that their scores are a block, where one is not more by itself."""
    for span in spans:
        yield _Part(span.prompt_slice, (span.prompt,), slice(0, 0), keys)
        longest = max(span.lengths, default=0)
        count = max(1, BLOCK // max(1, heads * longest * (span.prompt + longest)))
        start = span.own_slice.start
        for i in range(0, len(span.lengths), count):
            lengths = span.lengths[i : i + count]
            if sum(lengths):
                yield _Part(slice(start, start + sum(lengths)), lengths, span.prompt_slice, keys)
            start += sum(lengths)


def _blocks(part: _Part, repeats: int, wide: torch.dtype) -> Iterator[_Block]:
    size = max(16, BLOCK // (len(part.lengths) * part.keys * repeats * (part.seen + part.longest)))
    for start in range(0, part.longest, size):
        stop = min(part.longest, start + size)
        later = torch.full((stop - start, stop - start), -torch.inf, dtype=wide).triu_(1)
        yield _Block(slice(start * repeats, stop * repeats), slice(0, part.seen + stop), later.repeat_interleave(repeats, dim=0))


class _SharedPrompt(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, spans: tuple[Span, ...], scale: float) -> Tensor:
        out, wide = torch.empty_like(q), torch.promote_types(k.dtype, torch.float32)
        scaled, repeats = k.to(wide) * scale, q.shape[1] // k.shape[1]
        for part in _parts(spans, q.shape[1], k.shape[1]):
            keys, values, queries = part.table(scaled), part.table(v), part.queries(q)
            mixed = torch.empty_like(queries)
            for block in _blocks(part, repeats, wide):
                weights = _softmax(queries[:, block.rows].to(wide), keys[:, block.entries], block.later)
                mixed[:, block.rows] = torch.bmm(weights.to(v.dtype), values[:, block.entries])
            out[part.where] = part.queries_back(mixed)
        ctx.save_for_backward(q, k, v)
        ctx.spans, ctx.scale = spans, scale
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v = ctx.saved_tensors
        wide = torch.promote_types(k.dtype, torch.float32)
        scaled, repeats = k.to(wide) * ctx.scale, q.shape[1] // k.shape[1]
        d_q, d_k, d_v = torch.empty_like(q), torch.zeros_like(scaled), torch.zeros_like(scaled)
        for part in _parts(ctx.spans, q.shape[1], k.shape[1]):
            scored, keys, values = part.table(scaled), part.table(k), part.table(v)
            queries, grad = part.queries(q), part.blank(part.queries(grads[0]))
            d_queries, d_keys, d_values = torch.empty_like(queries), torch.zeros_like(scored), torch.zeros_like(scored)
            for rows, entries, later in _blocks(part, repeats, wide):
                weights = _softmax(queries[:, rows].to(wide), scored[:, entries], later)
                d_weights = torch.bmm(grad[:, rows], values[:, entries].mT).to(wide)
                d_scores = torch._softmax_backward_data(d_weights, weights, -1, wide).to(q.dtype)
                d_queries[:, rows] = torch.bmm(d_scores, keys[:, entries])
                d_keys[:, entries] += torch.bmm(d_scores.mT, queries[:, rows])
                d_values[:, entries] += torch.bmm(weights.to(v.dtype).mT, grad[:, rows])
            d_q[part.where] = part.queries_back(d_queries.mul_(ctx.scale))
            part.add_table(d_k, d_keys)
            part.add_table(d_v, d_values)
        return d_q, d_k.mul_(ctx.scale).to(k.dtype), d_v.to(v.dtype), None, None


def _softmax(queries: Tensor, keys: Tensor, later: Tensor) -> Tensor:
    """Of the scores of a block's queries, over the entries up to the query's position; in float32 at least.

    Args:
        queries: [G·J, B·R, D].
        keys: [G·J, E, D], scaled.
        later: [B·R, B], what is added to the scores of the last entries.
    """
    scores = torch.bmm(queries, keys.mT)
    scores[:, :, -later.shape[1] :] += later
    return scores.softmax(dim=-1)
