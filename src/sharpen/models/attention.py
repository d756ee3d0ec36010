"""Attention over a stream of tokens in which the completions of a group share one prompt.

A group lies in the stream as `[prompt | o_1 | o_2 | ... | o_G]`. A completion's token sees the prompt and its own completion up to itself.
Its scores are one row: those of the prompt's keys, which all completions of the group read in one dense product, then those of its own
keys. One softmax goes over both. Scores and softmax are in float32 at least; the products with values and gradients in the model's type.

Queries are taken a block of positions at a time, so that the scores that exist at once stay few, and a block's keys end where it ends.
The backward pass computes the probabilities again.
Axes: N tokens of the stream, H query heads, J key-value heads, R = H / J, D head size, L prompt tokens, G completions, T tokens of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

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
    """Sequences that attend alike: a prompt, or the completions behind it, which see it as well.

    Args:
        where: they lie in the stream.
        lengths: tokens of each.
        shared: where the keys lie that all of them see, if any.
        heads: of queries.
        keys: heads of keys.
    """

    def __init__(self, where: slice, lengths: tuple[int, ...], shared: slice | None, heads: int, keys: int) -> None:
        self.where, self.lengths, self.shared = where, lengths, shared or slice(0)
        self.keys, self.repeats = keys, heads // keys
        self.even = len(set(lengths)) == 1

    @cached_property
    def order(self) -> tuple[Tensor, Tensor]:
        """The tokens one sequence a row, int64 [G, T] (short ones filled up, which nothing that counts sees), and which count, bool."""
        lengths = torch.tensor(self.lengths)
        column = torch.arange(int(lengths.max()))
        inside = column[None] < lengths[:, None]
        return torch.where(inside, (lengths.cumsum(0) - lengths)[:, None] + column[None], 0), inside

    def blocks(self) -> list[slice]:
        """The blocks of positions whose queries are taken together."""
        longest, seen = max(self.lengths), self.shared.stop - (self.shared.start or 0)
        size = max(16, BLOCK // (self.keys * self.repeats * len(self.lengths) * (seen + longest)))
        return [slice(start, min(longest, start + size)) for start in range(0, longest, size)]

    def queries(self, x: Tensor) -> Tensor:
        """[N, H, D] → [J, G, T, R, D]."""
        return self._rows(x).unflatten(2, (self.keys, self.repeats)).permute(2, 0, 1, 3, 4)

    def queries_back(self, x: Tensor) -> Tensor:
        return self._unrows(x.permute(1, 2, 0, 3, 4).flatten(2, 3))

    def own(self, x: Tensor) -> Tensor:
        """[N, J, D] → [J·G, T, D]."""
        return self._rows(x).permute(2, 0, 1, 3).flatten(0, 1)

    def add(self, x: Tensor, shared: Tensor, own: Tensor) -> None:
        """Add to x [N, J, D], in place, what its shared [J, L, D] and first own entries [J·G, E, D] got."""
        x[self.shared] += shared.transpose(0, 1)
        own = own.unflatten(0, (self.keys, -1)).permute(1, 2, 0, 3)
        if self.even:
            x[self.where].unflatten(0, (len(self.lengths), -1))[:, : own.shape[1]] += own
        else:
            inside = self.order[1][:, : own.shape[1]]
            x[self.where][self.order[0][:, : own.shape[1]][inside]] += own[inside]

    def read(self, x: Tensor) -> Tensor:
        """[N, J, D] → [J, L, D], of the shared keys."""
        return x[self.shared].transpose(0, 1)

    def blank(self, x: Tensor) -> Tensor:
        """[J, G, T, R, D] with 0 in the places that were filled up, which repeat a true one's."""
        return x if self.even else x.masked_fill(~self.order[1][:, :, None, None], 0.0)

    def _rows(self, x: Tensor) -> Tensor:
        x = x[self.where]
        return x.unflatten(0, (len(self.lengths), -1)) if self.even else x[self.order[0]]

    def _unrows(self, x: Tensor) -> Tensor:
        return x.flatten(0, 1) if self.even else x[self.order[1]]


def _parts(spans: Sequence[Span], heads: int, keys: int) -> Iterator[_Part]:
    for span in spans:
        yield _Part(span.prompt_slice, (span.prompt,), None, heads, keys)
        if sum(span.lengths):
            yield _Part(span.own_slice, span.lengths, span.prompt_slice, heads, keys)


class _Table:
    """The keys or the values that a part's queries look up: those that all its sequences share, [J, L, D], and their own, [J·G, T, D].

    Rows of a block are [J, G·B·R, D]; what belongs to rows and entries comes in two parts, over the shared entries [J, G·B·R, L] and over a
    sequence's first E own ones [J·G, B·R, E].
    """

    def __init__(self, part: _Part, x: Tensor) -> None:
        self.shared, self.own = part.read(x), part.own(x)

    def products(self, rows: Tensor, entries: int, into: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """Of rows with entries, written into two tensors where they are given."""
        shared, own = into or (None, None)
        own = torch.bmm(self._by_sequence(rows), self.own[:, :entries].mT, out=own)
        return torch.bmm(rows, self.shared.mT, out=shared), own

    def sums(self, shared: Tensor, own: Tensor) -> Tensor:
        """Of entries by weights, to rows."""
        out = torch.bmm(own, self.own[:, : own.shape[2]])
        return out.view(len(shared), -1, out.shape[2]).add_(torch.bmm(shared, self.shared))

    def gathered(self, shared: Tensor, own: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """What each entry gets of the rows by its weights."""
        return torch.bmm(rows.mT, shared).mT, torch.bmm(self._by_sequence(rows).mT, own).mT

    def _by_sequence(self, x: Tensor) -> Tensor:
        return x.reshape(len(self.own), -1, x.shape[2])  # a copy where each head has keys of its own and one block is all


class _SharedPrompt(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, spans: tuple[Span, ...], scale: float) -> Tensor:
        out, scaled = torch.empty_like(q), k.to(torch.promote_types(k.dtype, torch.float32)) * scale
        for part in _parts(spans, q.shape[1], k.shape[1]):
            keys, values, queries = _Table(part, scaled), _Table(part, v), part.queries(q)
            mixed = torch.empty_like(queries, memory_format=torch.contiguous_format)
            for block in part.blocks():
                weights = _softmax(queries[:, :, block].flatten(1, 3), keys, block)
                mixed[:, :, block] = values.sums(*weights).view_as(mixed[:, :, block])
            out[part.where] = part.queries_back(mixed)
        ctx.save_for_backward(q, k, v)
        ctx.spans, ctx.scale = spans, scale
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v = ctx.saved_tensors
        wide = torch.promote_types(k.dtype, torch.float32)
        scaled = k.to(wide) * ctx.scale
        d_q, d_k, d_v = torch.empty_like(q), torch.zeros_like(scaled), torch.zeros_like(scaled)
        for part in _parts(ctx.spans, q.shape[1], k.shape[1]):
            scored, keys, values = _Table(part, scaled), _Table(part, k), _Table(part, v)
            queries, grad = part.queries(q), part.blank(part.queries(grads[0]))
            mixed = torch.empty_like(queries, memory_format=torch.contiguous_format)
            for block in part.blocks():
                rows, d_rows = (x[:, :, block].flatten(1, 3) for x in (queries, grad))
                weights = _softmax(rows, scored, block)
                d_scores = _softmax_backward(values.products(d_rows, block.stop), weights)
                mixed[:, :, block] = keys.sums(*d_scores).view_as(mixed[:, :, block])
                part.add(d_k, *keys.gathered(*d_scores, rows))
                part.add(d_v, *values.gathered(*weights, d_rows))
            d_q[part.where] = part.queries_back(mixed.mul_(ctx.scale))
        return d_q, d_k.mul_(ctx.scale).to(k.dtype), d_v.to(v.dtype), None, None


def _softmax(rows: Tensor, keys: _Table, block: slice) -> tuple[Tensor, Tensor]:
    """Of the scores of a block's queries, over the shared keys and a sequence's own up to the query's position, as one.

    Args:
        rows: [J, G·B·R, D], the queries.
        keys: in float32 at least, scaled.
        block: the queries' positions in their sequences.

    Returns:
        As a table's products are laid out, in the type of the queries.
    """
    shared, new = keys.shared.shape[1], block.stop - block.start
    scores = keys.own.new_empty(*rows.shape[:2], shared + block.stop)
    each = scores.view(len(keys.own), -1, scores.shape[2])
    keys.products(rows.to(scores.dtype), block.stop, (scores[:, :, :shared], each[:, :, shared:]))
    later = torch.ones(new, new, dtype=torch.bool, device=rows.device).triu_(1)
    each.unflatten(1, (new, -1))[..., shared + block.start :].masked_fill_(later[:, None], -torch.inf)
    each = each.softmax(dim=-1)
    read = each.view(scores.shape)[:, :, :shared]
    own = each[:, :, shared:]
    return read.to(rows.dtype, memory_format=torch.contiguous_format), own.to(rows.dtype, memory_format=torch.contiguous_format)


def _softmax_backward(grads: tuple[Tensor, Tensor], weights: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """The gradient of the scores, of that of both parts of the softmax and of its values; in float32 at least between."""
    weighted = [grad.to(torch.promote_types(grad.dtype, torch.float32)) * w for grad, w in zip(grads, weights, strict=True)]
    sums = [x.sum(dim=-1) for x in weighted]
    total = sums[0].flatten() + sums[1].flatten()
    read, own = (x.addcmul_(w, total.view(len(x), -1, 1), value=-1).to(w.dtype) for x, w in zip(weighted, weights, strict=True))
    return read, own
