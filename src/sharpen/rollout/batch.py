"""The rows of a decode step: their keys and values, and attention over them.

A prompt's keys and values are held once for all its completions. Each row holds those of its own completion. Scores over both lie side by
side under one softmax. Axes: R rows, P prompts, L prompt tokens, T tokens of a completion so far, H query heads, J key-value heads, D head
size, M = H / J.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

ROOM = 64  # tokens a row has room for at first, and is given more of when they are used up


class Prompts:
    """Keys and values of prompts: a pair of [P, J, L, D] a layer, filled up on the right.

    Args:
        layers: a pair of [N, J, D] a layer, over the prompts' tokens one after another.
        lengths: of the prompts.
    """

    def __init__(self, layers: Sequence[tuple[Tensor, Tensor]], lengths: Sequence[int]) -> None:
        width = max(lengths)
        index, start = torch.zeros(len(lengths), width, dtype=torch.int64), 0
        for row, n in enumerate(lengths):
            index[row, :n] = torch.arange(start, start + n)
            start += n
        index = index.to(layers[0][0].device)
        self.layers = [(k[index].transpose(1, 2).contiguous(), v[index].transpose(1, 2).contiguous()) for k, v in layers]
        self.lengths = torch.tensor(lengths, device=index.device)

    def replace(self, keep: Tensor, more: Prompts) -> None:
        """Keep these of the prompts, int64 [P'], and put others after them."""
        width = max(int(self.lengths[keep].max()) if len(keep) else 0, int(more.lengths.max()))
        self.layers = [
            (_stack(a[keep], b, width), _stack(c[keep], d, width)) for (a, c), (b, d) in zip(self.layers, more.layers, strict=True)
        ]
        self.lengths = torch.cat([self.lengths[keep], more.lengths])


def _stack(a: Tensor, b: Tensor, width: int) -> Tensor:
    out = a.new_zeros(len(a) + len(b), a.shape[1], width, a.shape[3])
    out[: len(a), :, : min(width, a.shape[2])] = a[:, :, :width]
    out[len(a) :, :, : b.shape[2]] = b
    return out


class Rows:
    """Rows being decoded.

    A row may continue a beginning of its prompt: it does not look at what of the prompt comes after.

    Args:
        prompts: their prompts.
        prompt_of: int64 [R], each row's.
    """

    def __init__(self, prompts: Prompts, prompt_of: Tensor) -> None:
        self.prompts, self.prompt_of = prompts, prompt_of
        self.begun = prompts.lengths[prompt_of]  # tokens of the prompt that each row continues
        self.lengths = torch.zeros_like(prompt_of)  # tokens of each completion whose keys are held
        shape = (len(prompt_of), prompts.layers[0][0].shape[1], ROOM, prompts.layers[0][0].shape[3])
        self.layers = [(k.new_zeros(shape), k.new_zeros(shape)) for k, _ in prompts.layers]
        self.arrange()

    @property
    def room(self) -> int:
        """Tokens that a row has room for. Attention is over all of it, masked, so that nothing is copied and shapes seldom change."""
        return self.layers[0][0].shape[2]

    def arrange(self) -> None:
        """Lay the rows out by prompt, [P · G], for products with the prompts' keys; none is moved where they lie so already."""
        counts = torch.bincount(self.prompt_of, minlength=len(self.prompts.lengths))
        self.group = int(counts.max())
        order = torch.argsort(self.prompt_of, stable=True)
        starts = counts.cumsum(0) - counts
        place = self.prompt_of[order] * self.group + torch.arange(len(order), device=order.device) - starts[self.prompt_of[order]]
        self.place = torch.empty_like(order).scatter_(0, order, place)  # row → its place in the grid
        self.grid = torch.zeros(len(counts) * self.group, dtype=torch.int64, device=order.device).scatter_(0, place, order)
        self.in_order = torch.equal(self.place, torch.arange(len(self.grid), device=order.device))

    def restart(self, row: int, prompt: int, begun: int) -> None:
        """Give a row to a new completion of this prompt's first `begun` tokens; `arrange` when all are given."""
        self.prompt_of[row], self.begun[row], self.lengths[row] = prompt, begun, 0

    def keep(self, rows: Tensor) -> None:
        """Drop all but these rows, int64 [R']."""
        self.layers = [(k[rows], v[rows]) for k, v in self.layers]
        self.prompt_of, self.begun, self.lengths = self.prompt_of[rows], self.begun[rows], self.lengths[rows]
        self.arrange()

    def begin(self, windows: Sequence[int | None]) -> None:
        """Make room for one token more a row, and the masks of this step."""
        self.longest = int(self.lengths.max()) + 1
        self.even = bool((self.lengths == self.lengths[0]).all())
        if self.longest > self.room:
            self.layers = [(functional.pad(k, (0, 0, 0, ROOM)), functional.pad(v, (0, 0, 0, ROOM))) for k, v in self.layers]
        self.masks = {window: self._mask(window) for window in windows}

    def _mask(self, window: int | None) -> Tensor | None:
        """[R, 1, 1, L + room], 0 where a row may look and -inf elsewhere; None where it may look everywhere."""
        prompt_length, own = self.begun[:, None], self.lengths[:, None]
        device = own.device
        prompt, place = torch.arange(self.prompts.layers[0][0].shape[2], device=device), torch.arange(self.room, device=device)
        seen = torch.cat([prompt[None] < prompt_length, place[None] <= own], dim=1)
        if window is not None:
            back = torch.cat([prompt_length + own - prompt[None], own - place[None]], dim=1)
            seen &= back < window
        if bool(seen.all()):
            return None
        return torch.where(seen, 0.0, -torch.inf).to(self.layers[0][0].dtype)[:, None, None]

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, window: int | None) -> Tensor:
        """Write this token's keys and values, and attend to all there are.

        Args:
            layer: its index.
            q: [R, H, D], scaled.
            k: [R, J, D].
            v: [R, J, D].
            window: of the layer.

        Returns:
            [R, H · D].
        """
        keys, values = self.layers[layer]
        if self.even:
            keys[:, :, self.longest - 1], values[:, :, self.longest - 1] = k, v
        else:
            rows = torch.arange(len(k), device=k.device)
            keys[rows, :, self.lengths], values[rows, :, self.lengths] = k, v
        prompt_keys, prompt_values = self.prompts.layers[layer]
        width = prompt_keys.shape[2]
        q = q.view(len(q), keys.shape[1], -1, q.shape[-1])
        scores = q.new_empty(*q.shape[:3], width + self.room)
        of_prompts = self._to_rows(self._to_grid(q) @ prompt_keys.transpose(2, 3))
        scores.view(*of_prompts.shape[:4], -1)[..., :width] = of_prompts
        scores[..., width:] = _against_keys(q, keys)
        if (mask := self.masks[window]) is not None:
            scores += mask
        shares = scores.softmax(dim=-1)
        out = shares[..., width:] @ values
        of_prompts = self._to_rows(self._to_grid(shares[..., :width]) @ prompt_values)
        out.view(of_prompts.shape).add_(of_prompts)
        return out.flatten(1)

    def _to_grid(self, x: Tensor) -> Tensor:
        """[R, J, M, ...] → [P, J, G · M, ...]."""
        x = x if self.in_order else x[self.grid]
        return x.unflatten(0, (-1, self.group)).transpose(1, 2).flatten(2, 3)

    def _to_rows(self, x: Tensor) -> Tensor:
        """The opposite, as [P, G, J, M, ...]; a view where the rows are in order, else [R, 1, J, M, ...]."""
        x = x.unflatten(2, (self.group, -1)).transpose(1, 2)
        return x if self.in_order else x.flatten(0, 1)[self.place][:, None]


def _against_keys(q: Tensor, keys: Tensor) -> Tensor:
    """Scores q · kᵀ, [R, J, M, T]; a CPU's bfloat16 kernel is twice as fast the other way about."""
    if q.dtype == torch.bfloat16 and q.device.type == "cpu":
        return (keys @ q.transpose(2, 3)).transpose(2, 3)
    return q @ keys.transpose(2, 3)
