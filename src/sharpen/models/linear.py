"""x · Wᵀ + b by the faster of the kernels that a CPU build of PyTorch has.

In float32 PyTorch multiplies by its BLAS library, which on many processors takes one and a half to three times as long as oneDNN, forward
and for the gradient of x. Sums are ordered otherwise, so results differ from PyTorch's own in the last bits.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


def has_onednn() -> bool:
    """Whether this build of PyTorch has the kernels."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def onednn(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Multiply: x [N, in] · weight [out, in]ᵀ + bias on a CPU, without gradient; `weight` may be prepacked."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Multiply: x [N, in] · weight [out, in]ᵀ + bias, with gradient."""
    if x.device.type == "cpu" and x.dtype == weight.dtype == torch.float32 and x.numel() and has_onednn():
        return _OneDnnLinear.apply(x, weight, bias)
    return functional.linear(x, weight, bias)


def through(module: Any, x: Tensor) -> Tensor:
    """`module(x)`; a plain linear layer by `linear`, any other (one with an adapter) by itself."""
    return linear(x, module.weight, module.bias) if type(module) is nn.Linear else module(x)


class _OneDnnLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return onednn(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        (x, weight), grad = ctx.saved_tensors, grads[0]
        return (
            onednn(grad.contiguous(), weight.t()) if ctx.needs_input_grad[0] else None,
            grad.t() @ x if ctx.needs_input_grad[1] else None,
            grad.sum(dim=0) if ctx.needs_input_grad[2] else None,
        )
