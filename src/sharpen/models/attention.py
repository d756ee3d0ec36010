"""Attention over a stream of tokens in which the completions of a group share one prompt.

A group lies in the stream as `[prompt | o_1 | o_2 | ... | o_G]`. A completion's token sees the prompt and its own completion up to itself,
so its attention is two parts, each a dense product: over the prompt's keys, which all completions of the group read at once, and over its
own. They are merged by their log-sum-exps, exactly:

    out = out_prompt · exp(lse_prompt - lse) + out_own · exp(lse_own - lse),    lse = log(exp(lse_prompt) + exp(lse_own))

The backward pass of each part takes the merged output and log-sum-exp, as the softmax is over both (arXiv:2205.14135, §3.1).
Axes: N tokens of the stream, H query heads, J key-value heads, R = H / J, D head size, L prompt tokens, G completions, T tokens of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional


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

    @property
    def even(self) -> bool:
        """Whether all completions are of one length."""
        return len(set(self.lengths)) == 1

    @cached_property
    def order(self) -> tuple[Tensor, Tensor]:
        """The completions' tokens one a row, int64 [G, T] (short ones filled up, which nothing that counts sees), and where each went."""
        lengths = torch.tensor(self.lengths)
        width = int(lengths.max())
        column = torch.arange(width)
        starts = lengths.cumsum(0) - lengths
        inside = column[None] < lengths[:, None]
        index = torch.where(inside, starts[:, None] + column[None], 0)
        return index, inside.flatten().nonzero().squeeze(1)

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


class _Part(NamedTuple):
    """One dense product: q [B, R', M, D] and k, v [B, R', S, D]; a stride of 0 repeats keys over heads."""

    q: Tensor
    k: Tensor
    v: Tensor
    causal: bool

    def forward(self, scale: float) -> tuple[Tensor, Tensor]:
        """Output [B, R', M, D] and log-sum-exp [B, R', M]."""
        return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(self.q, self.k, self.v, 0.0, self.causal, scale=scale)

    def backward(self, grad: Tensor, out: Tensor, lse: Tensor, scale: float) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of q, k and v, as they are laid out here."""
        kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
        tensors = [grad, self.q, self.k, self.v, out]
        if self.causal and _slow_in_bfloat16(grad):
            tensors = [x.float() for x in tensors]
        return kernel(*tensors, lse, 0.0, self.causal, scale=scale)


def _slow_in_bfloat16(x: Tensor) -> bool:
    """Whether float32 takes half the time: small causal blocks on a processor without matrix tiles."""
    return x.dtype == torch.bfloat16 and not torch.cpu._is_amx_tile_supported()


class _Axes:
    """How a group's slices are laid out for each of its three products, and back."""

    def __init__(self, span: Span, heads: int, keys: int) -> None:
        self.span, self.keys, self.repeats = span, keys, heads // keys

    def prompt_q(self, x: Tensor) -> Tensor:
        """[L, H, ...] → [J, R, L, ...], a view."""
        return x.unflatten(1, (self.keys, self.repeats)).movedim(0, 2)

    def prompt_q_back(self, x: Tensor) -> Tensor:
        return x.movedim(2, 0).flatten(1, 2)

    def prompt_k(self, x: Tensor) -> Tensor:
        """[L, J, D] → [J, R, L, D], a view."""
        return x.transpose(0, 1)[:, None].expand(-1, self.repeats, -1, -1)

    def cross_q(self, x: Tensor) -> Tensor:
        """[M, H, ...] → [1, J, M·R, ...]: the heads of one key head are so many queries more."""
        return x.unflatten(1, (self.keys, self.repeats)).transpose(0, 1).flatten(1, 2)[None]

    def cross_q_back(self, x: Tensor) -> Tensor:
        return x[0].unflatten(1, (-1, self.repeats)).transpose(0, 1).flatten(1, 2)

    def own_q(self, x: Tensor) -> Tensor:
        """[M, H, ...] → [G·J, R, T, ...]."""
        return self._rows(x).unflatten(2, (self.keys, self.repeats)).movedim(1, 3).flatten(0, 1)

    def own_q_back(self, x: Tensor) -> Tensor:
        return self._unrows(x.unflatten(0, (-1, self.keys)).movedim(3, 1).flatten(2, 3))

    def own_k(self, x: Tensor) -> Tensor:
        """[M, J, D] → [G·J, R, T, D]."""
        return self._rows(x).transpose(1, 2).flatten(0, 1)[:, None].expand(-1, self.repeats, -1, -1)

    def own_k_back(self, x: Tensor) -> Tensor:
        return self._unrows(x.unflatten(0, (-1, self.keys)).transpose(1, 2))

    def _rows(self, x: Tensor) -> Tensor:
        return x.unflatten(0, (len(self.span.lengths), -1)) if self.span.even else x[self.span.order[0]]

    def _unrows(self, x: Tensor) -> Tensor:
        return x.flatten(0, 1) if self.span.even else x.flatten(0, 1)[self.span.order[1]]


class _SharedPrompt(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, spans: tuple[Span, ...], scale: float) -> Tensor:
        out = torch.empty_like(q)
        lse = q.new_empty(q.shape[:2], dtype=torch.promote_types(q.dtype, torch.float32))
        for span in spans:
            axes, own = _Axes(span, q.shape[1], k.shape[1]), span.own_slice
            first, first_lse = _prompt(axes, q, k, v).forward(scale)
            out[span.prompt_slice], lse[span.prompt_slice] = axes.prompt_q_back(first), axes.prompt_q_back(first_lse)
            if own.start == own.stop:
                continue
            read, read_lse = (axes.cross_q_back(x) for x in _cross(axes, q, k, v).forward(scale))
            wrote, wrote_lse = (axes.own_q_back(x) for x in _own(axes, q, k, v).forward(scale))
            both = torch.logaddexp(read_lse, wrote_lse)
            out[own] = read * (read_lse - both).exp()[..., None] + wrote * (wrote_lse - both).exp()[..., None]
            lse[own] = both
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.spans, ctx.scale = spans, scale
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, lse = ctx.saved_tensors
        grad = grads[0].contiguous()
        d_q, d_k, d_v = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        for span in ctx.spans:
            axes, own, prompt = _Axes(span, q.shape[1], k.shape[1]), span.own_slice, span.prompt_slice
            a = axes.prompt_q
            found = _prompt(axes, q, k, v).backward(a(grad[prompt]), a(out[prompt]), a(lse[prompt]), ctx.scale)
            d_q[prompt] = axes.prompt_q_back(found[0])
            d_k[prompt], d_v[prompt] = (x.sum(dim=1).transpose(0, 1) for x in found[1:])
            if own.start == own.stop:
                continue
            a = axes.cross_q
            found = _cross(axes, q, k, v).backward(a(grad[own]), a(out[own]), a(lse[own]), ctx.scale)
            d_q[own] = axes.cross_q_back(found[0])
            d_k[prompt] += found[1][0].transpose(0, 1)
            d_v[prompt] += found[2][0].transpose(0, 1)
            a = axes.own_q
            found = _own(axes, q, k, v).backward(_blank(span, a(grad[own])), a(out[own]), a(lse[own]), ctx.scale)
            d_q[own] += axes.own_q_back(found[0])
            d_k[own], d_v[own] = (axes.own_k_back(x.sum(dim=1)) for x in found[1:])
        return d_q, d_k, d_v, None, None


def _prompt(axes: _Axes, q: Tensor, k: Tensor, v: Tensor) -> _Part:
    where = axes.span.prompt_slice
    return _Part(axes.prompt_q(q[where]), axes.prompt_k(k[where]), axes.prompt_k(v[where]), True)


def _cross(axes: _Axes, q: Tensor, k: Tensor, v: Tensor) -> _Part:
    own, prompt = axes.span.own_slice, axes.span.prompt_slice
    return _Part(axes.cross_q(q[own]), k[prompt].transpose(0, 1)[None], v[prompt].transpose(0, 1)[None], False)


def _own(axes: _Axes, q: Tensor, k: Tensor, v: Tensor) -> _Part:
    own = axes.span.own_slice
    return _Part(axes.own_q(q[own]), axes.own_k(k[own]), axes.own_k(v[own]), True)


def _blank(span: Span, grad: Tensor) -> Tensor:
    """The gradient [G·J, R, T, D] with that of the filled-up places, which repeat a true one's, set to 0."""
    if span.even:
        return grad
    beyond = torch.arange(grad.shape[2])[None] >= torch.tensor(span.lengths)[:, None]
    return grad.unflatten(0, (len(span.lengths), -1)).masked_fill(beyond[:, None, None, :, None], 0.0).flatten(0, 1)
