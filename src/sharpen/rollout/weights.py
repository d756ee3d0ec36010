"""The weights that a decode step multiplies by, laid out for few rows.

Queries, keys and values are one product; on a CPU every matrix is packed once for oneDNN's kernels, and the gate's activation and its
product with `up` are done inside them. Axes: R rows, C hidden size, H query heads, J key-value heads, D head size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from sharpen.models import decoder, linear, lora
from sharpen.models.decoder import Decoder

PACK_FOR = 64  # rows that the packed layout is chosen for


class Product:
    """x · Wᵀ + b.

    Args:
        modules: linear layers that read the same x; their outputs lie side by side.
    """

    def __init__(self, modules: Sequence[Any]) -> None:
        weights = [lora.effective_weight(module) for module in modules]
        biases = [getattr(module, "bias", None) for module in modules]
        weight = weights[0] if len(weights) == 1 else torch.cat(weights)
        self.bias = None if biases[0] is None else torch.cat([bias.detach() for bias in biases if bias is not None])
        self.packed = weight.device.type == "cpu" and weight.dtype in (torch.float32, torch.bfloat16) and linear.has_onednn()
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight, PACK_FOR) if self.packed else weight

    def __call__(self, x: Tensor) -> Tensor:
        """[R, in] → [R, out]."""
        return linear.onednn(x, self.weight, self.bias) if self.packed else functional.linear(x, self.weight, self.bias)

    def silu(self, x: Tensor) -> Tensor:
        """The activation silu of x · Wᵀ + b."""
        if self.packed:
            return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "swish", [], "")
        return functional.silu(self(x))

    def times(self, x: Tensor, other: Tensor) -> Tensor:
        """The product, entry by entry, of x · Wᵀ + b and `other`."""
        if self.packed:
            return torch.ops.mkldnn._linear_pointwise.binary(x, other, self.weight, self.bias, "mul")
        return self(x) * other


class Norm:
    """An RMS norm, in float32 at least."""

    def __init__(self, module: Any) -> None:
        self.weight, self.eps = decoder.norm_weight(module).detach(), decoder.norm_eps(module)

    def __call__(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """[R, C] → [R, C] in `dtype`."""
        return decoder.rms_norm(x, self.weight, self.eps, dtype)[0]


class LayerWeights:
    """One layer's."""

    def __init__(self, layer: decoder.Layer, heads: int, keys: int) -> None:
        attention, mlp = layer.attention, layer.mlp
        self.kind, self.window, self.head_size, self.activate = layer.kind, layer.window, layer.head_size, layer.activate
        self.qkv = Product([attention.q_proj, attention.k_proj, attention.v_proj])
        self.o, self.gate, self.up, self.down = (Product([m]) for m in (attention.o_proj, mlp.gate_proj, mlp.up_proj, mlp.down_proj))
        self.before_attention, self.before_mlp = Norm(layer.before_attention), Norm(layer.before_mlp)
        self.after_attention = None if layer.after_attention is None else Norm(layer.after_attention)
        self.after_mlp = None if layer.after_mlp is None else Norm(layer.after_mlp)
        self.head_norm: Tensor | None = None
        self.head_eps = 0.0
        if (q_norm := getattr(attention, "q_norm", None)) is not None:
            q, k = (decoder.norm_weight(m).detach() for m in (q_norm, attention.k_norm))
            self.head_norm, self.head_eps = torch.cat([q.expand(heads, -1), k.expand(keys, -1)]), decoder.norm_eps(q_norm)

    def feed(self, x: Tensor) -> Tensor:
        """The feed-forward network, [R, C] → [R, C]."""
        if self.activate is functional.silu:
            return self.down(self.up.times(x, self.gate.silu(x)))
        return self.down(self.activate(self.gate(x)) * self.up(x))


class Weights:
    """A model's, as they are now.

    Args:
        model: a Hugging Face causal language model.
        body: its decoder.
    """

    def __init__(self, model: Any, body: Decoder) -> None:
        config = body.config
        self.heads, self.keys = int(config.num_attention_heads), int(config.num_key_value_heads)
        self.layers = [LayerWeights(layer, self.heads, self.keys) for layer in body.layers]
        self.norm = Norm(body.body.norm)
        self.head = Product([model.get_output_embeddings()])
        # On the queries' heads the rotation carries the scale of attention, so that no score need be multiplied.
        scale = torch.ones(self.heads + self.keys, 1, dtype=body.wide, device=self.norm.weight.device)
        scale[: self.heads] = body.layers[0].scale
        self.head_scale = scale
