"""The forward pass of Llama-, Qwen- and Gemma-style decoders over the modules of a Hugging Face model.

The weights stay where `transformers` keeps them; what is ours is the order of the work: a stream of tokens without padding, attention that
reads a prompt once for its group, and a residual stream and norms in float32 whatever the weights' type, in training as in sampling.
Axes: N tokens of the stream, C hidden size, H query heads, J key-value heads, D head size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from sharpen.models.attention import Span, attend
from sharpen.models.linear import through

FAMILIES = ("LlamaModel", "MistralModel", "Qwen2Model", "Qwen3Model", "Gemma3TextModel")
STATIC_ROPE = ("default", "linear", "llama3", "yarn")  # the others change with the length of what is read
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": functional.silu,
    "gelu_pytorch_tanh": lambda x: functional.gelu(x, approximate="tanh"),
}


def why_not(body: Any) -> str | None:
    """Why this decoder has no forward pass here, in a few words; None where it has."""
    name, config = type(body).__name__, getattr(body, "config", None)
    if name not in FAMILIES:
        return f"{name} is none of {', '.join(FAMILIES)}"
    if activation(config) not in ACTIVATIONS:
        return f"its activation is {activation(config)}"
    kinds = getattr(body.rotary_emb, "rope_type", "default")
    if odd := sorted(set(kinds.values() if isinstance(kinds, dict) else [kinds]) - set(STATIC_ROPE)):
        return f"its rotary positions are of kind {odd[0]}"
    if getattr(config, "use_bidirectional_attention", False) or getattr(config, "attn_logit_softcapping", None):
        return "its attention is not the plain causal one"
    return None


def activation(config: Any) -> str:
    """The name of the activation function of the feed-forward layers."""
    return str(getattr(config, "hidden_activation", None) or getattr(config, "hidden_act", ""))


def norm_weight(module: Any) -> Tensor:
    """What an RMS norm multiplies by, in float32 at least: Gemma's is kept less 1."""
    weight = module.weight.to(torch.promote_types(module.weight.dtype, torch.float32))
    return 1.0 + weight if type(module).__name__.startswith("Gemma") else weight


def norm_eps(module: Any) -> float:
    """What is added to the mean square."""
    return float(module.variance_epsilon if hasattr(module, "variance_epsilon") else module.eps)


class Decoder:
    """A decoder as one function of a stream of tokens.

    Args:
        body: a Hugging Face decoder without its head, of one of `FAMILIES`; its modules are used in place.
    """

    def __init__(self, body: Any) -> None:
        if reason := why_not(body):
            raise ValueError(f"no forward pass for this decoder: {reason}")
        self.body, self.config = body, body.config
        self.dtype: torch.dtype = body.embed_tokens.weight.dtype
        self.wide = torch.promote_types(self.dtype, torch.float32)
        self.layers = [Layer(layer, self.config) for layer in body.layers]

    def embed(self, tokens: Tensor) -> Tensor:
        """[N] ids → [N, C], the start of the residual stream."""
        return self.body.embed_tokens(tokens).to(self.wide)

    def rotations(self, positions: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
        """By kind of layer, cos and sin [N, 1, D]; sin has the sign of `rotate`."""
        kinds = sorted({layer.kind for layer in self.layers})
        probe = positions.new_zeros(1, dtype=self.wide)
        by_kind = isinstance(getattr(self.body.rotary_emb, "rope_type", ""), dict)
        out = {}
        for kind in kinds:
            cos, sin = self.body.rotary_emb(probe, positions[None], *([kind] if by_kind else []))
            half = sin.shape[-1] // 2
            out[kind] = cos[0][:, None], torch.cat((-sin[0][:, :half], sin[0][:, half:]), dim=-1)[:, None]
        return out

    def hidden(
        self,
        tokens: Tensor,
        positions: Tensor,
        spans: Sequence[Span],
        *,
        recompute: bool = False,
        keep: Callable[[Tensor, Tensor], None] | None = None,
    ) -> Tensor:
        """The hidden states that the head reads.

        Args:
            tokens: int64 [N].
            positions: int64 [N].
            spans: the groups that the stream is made of.
            recompute: keep only the residual stream between layers for the backward pass, and compute the rest again there.
            keep: is given each layer's keys and values, [N, J, D] each, in order.

        Returns:
            [N, C], normed, in the type of the weights.
        """
        x, rotations = self.embed(tokens), self.rotations(positions)
        for layer in self.layers:
            if recompute and torch.is_grad_enabled():
                x = checkpoint(layer.forward, x, rotations[layer.kind], spans, keep, use_reentrant=False, preserve_rng_state=False)
            else:
                x = layer.forward(x, rotations[layer.kind], spans, keep)
        return norm(self.body.norm, x, self.dtype)


class Layer:
    """One layer: attention and a feed-forward network, each added to the residual stream."""

    def __init__(self, module: Any, config: Any) -> None:
        self.attention, self.mlp = module.self_attn, module.mlp
        self.gemma = hasattr(module, "pre_feedforward_layernorm")
        self.before_attention = module.input_layernorm
        self.after_attention = module.post_attention_layernorm if self.gemma else None
        self.before_mlp = module.pre_feedforward_layernorm if self.gemma else module.post_attention_layernorm
        self.after_mlp = module.post_feedforward_layernorm if self.gemma else None
        self.head_size = int(self.attention.head_dim)
        self.scale = float(self.attention.scaling)
        # Mistral's is in its config, for all layers; Llama's config may name one, which transformers makes no use of.
        of_all = config.sliding_window if type(self.attention).__name__ == "MistralAttention" else None
        self.window: int | None = getattr(self.attention, "sliding_window", of_all)
        kinds = getattr(config, "layer_types", None)
        self.kind: str = kinds[self.attention.layer_idx] if kinds else "full_attention"
        self.activate = ACTIVATIONS[activation(config)]

    def forward(
        self, x: Tensor, rotation: tuple[Tensor, Tensor], spans: Sequence[Span], keep: Callable[[Tensor, Tensor], None] | None
    ) -> Tensor:
        """The residual stream [N, C] after this layer."""
        dtype = self.before_attention.weight.dtype
        h = norm(self.before_attention, x, dtype)
        q, k, v = (through(getattr(self.attention, f"{p}_proj"), h).unflatten(1, (-1, self.head_size)) for p in "qkv")
        q, k = rotate(self._head_norm("q", q), rotation).to(dtype), rotate(self._head_norm("k", k), rotation).to(dtype)
        if keep is not None:
            keep(k, v)
        mixed = through(self.attention.o_proj, attend(q, k, v, spans, scale=self.scale, window=self.window).flatten(1))
        x = x + (mixed if self.after_attention is None else norm(self.after_attention, mixed, x.dtype))
        h = norm(self.before_mlp, x, dtype)
        fed = through(self.mlp.down_proj, gated(through(self.mlp.gate_proj, h), through(self.mlp.up_proj, h), self.activate))
        return x + (fed if self.after_mlp is None else norm(self.after_mlp, fed, x.dtype))

    def _head_norm(self, which: str, x: Tensor) -> Tensor:
        module = getattr(self.attention, f"{which}_norm", None)
        wide = torch.promote_types(x.dtype, torch.float32)
        return x.to(wide) if module is None else norm(module, x, wide)


def rotate(x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Turn x [N, H, D] to its positions: the first half of a head turns with the second (arXiv:2104.09864, eq. 34)."""
    cos, sin = rotation
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, dims=-1), sin)


def norm(module: Any, x: Tensor, dtype: torch.dtype) -> Tensor:
    """Compute x / √(mean x² + ε) · weight over the last axis, computed in float32 at least, in `dtype`."""
    return _RmsNorm.apply(x, norm_weight(module), norm_eps(module), dtype)


def rms_norm(x: Tensor, weight: Tensor, eps: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """What `norm` computes, without gradient, and 1 / √(mean x² + ε); on a CPU a third of the time of PyTorch's own."""
    wide = x.to(weight.dtype)
    scale = torch.linalg.vecdot(wide, wide).div_(x.shape[-1]).add_(eps).rsqrt_()[..., None]
    return (wide * scale).mul_(weight).to(dtype), scale


def gated(gate: Tensor, up: Tensor, activate: Callable[[Tensor], Tensor]) -> Tensor:
    """activate(gate) · up; of the activation only its arguments are kept for the backward pass."""
    return _Silu.apply(gate, up) if activate is functional.silu else activate(gate) * up


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
        out, scale = rms_norm(x, weight, eps, dtype)
        ctx.save_for_backward(x, weight, scale)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        x, weight, scale = ctx.saved_tensors
        grad, normed = grads[0].to(weight.dtype), x * scale
        inner = grad * weight
        d_x = None
        if ctx.needs_input_grad[0]:
            mean = torch.linalg.vecdot(inner, normed)[..., None] / x.shape[-1]
            d_x = torch.addcmul(inner, normed, mean, value=-1).mul_(scale).to(x.dtype)
        d_weight = (grad * normed).flatten(0, -2).sum(dim=0) if ctx.needs_input_grad[1] else None
        return d_x, d_weight, None, None


class _Silu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        ctx.save_for_backward(gate, up)
        return functional.silu(gate).mul_(up)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None]:
        gate, up = ctx.saved_tensors
        d_gate = torch.ops.aten.silu_backward(grads[0] * up, gate)
        return d_gate, functional.silu(gate).mul_(grads[0])
