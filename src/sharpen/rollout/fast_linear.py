"""Linear layers of the decode step by the faster of the two kernels that a CPU build of PyTorch has.

In float32 PyTorch multiplies by its BLAS library, which is slow for few rows against a large matrix, the shape of every decode step: oneDNN
takes about 0.6 of the time for the language-model head at 64 rows (AVX2, two threads). Sums are ordered otherwise, so results differ from
PyTorch's own in the last bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode


def available() -> bool:
    """Whether this build of PyTorch has the kernel."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


class FastLinear(TorchFunctionMode):
    """While it is entered, `torch.nn.functional.linear` on float32 CPU tensors runs by oneDNN; without gradients only."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Take over the one function, and pass on all others."""
        if func is functional.linear and not kwargs and _fits(args[0]):
            return torch.ops.mkldnn._linear_pointwise(args[0], args[1], args[2] if len(args) > 2 else None, "none", [], "")
        return func(*args, **(kwargs or {}))


def _fits(x: Any) -> bool:
    return x.device.type == "cpu" and x.dtype == torch.float32 and x.numel() > 0
