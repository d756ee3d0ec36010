"""A key-value cache of fixed size that is written in place. Axes: B rows, H key-value heads, S slots, D head size."""

from __future__ import annotations

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin


class _Layer(CacheLayerMixin):
    """One layer's keys and values, [B, H, S, D], of which the first `length` slots are filled."""

    is_sliding = False

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity, self.length = capacity, 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        rows, heads, _, _ = key_states.shape
        self.keys = key_states.new_empty(rows, heads, self.capacity, key_states.shape[-1])
        self.values = value_states.new_empty(rows, heads, self.capacity, value_states.shape[-1])
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        end = self.length + key_states.shape[2]
        self.keys[:, :, self.length : end] = key_states
        self.values[:, :, self.length : end] = value_states
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        return self.length

    def get_max_length(self) -> int:
        return self.capacity

    def take(self, rows: Tensor, *, room: int) -> _Layer:
        """A layer of these rows (repeats allowed) with `room` free slots after what is filled."""
        out = _Layer(self.length + room)
        out.lazy_initialization(self.keys[:1].expand(len(rows), -1, -1, -1), self.values[:1].expand(len(rows), -1, -1, -1))
        for new, old in ((out.keys, self.keys), (out.values, self.values)):
            torch.index_select(old[:, :, : self.length], 0, rows, out=new[:, :, : self.length])
        out.length = self.length
        return out


class FixedCache(Cache):
    """A cache for a model of this many layers, with room for `capacity` tokens a row."""

    def __init__(self, layers: int, capacity: int) -> None:
        super().__init__(layers=[_Layer(capacity) for _ in range(layers)])

    def take(self, rows: Tensor, *, room: int) -> FixedCache:
        """A cache of these rows, int64 [B'], with `room` free slots: repeats spread a prompt over its group, gaps drop finished rows."""
        out = FixedCache(0, 0)
        out.layers = [layer.take(rows, room=room) for layer in self.layers]
        return out
