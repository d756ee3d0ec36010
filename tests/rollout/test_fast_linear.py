"""The faster linear layers give PyTorch's own results, up to rounding."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from sharpen.rollout import fast_linear
from sharpen.rollout.fast_linear import FastLinear


@pytest.mark.skipif(not fast_linear.available(), reason="this build of PyTorch has no oneDNN")
@pytest.mark.parametrize("shape", [(3, 16), (2, 5, 16), (1, 1, 16)])
@pytest.mark.parametrize("with_bias", [True, False])
@torch.inference_mode()
def test_the_same_numbers(shape: tuple[int, ...], with_bias: bool) -> None:
    g = torch.Generator().manual_seed(0)
    x, weight = torch.randn(shape, generator=g), torch.randn(7, 16, generator=g)
    bias = torch.randn(7, generator=g) if with_bias else None
    expected = functional.linear(x, weight, bias)
    with FastLinear():
        got = functional.linear(x, weight, bias)
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)
    assert got.shape == expected.shape


@torch.inference_mode()
def test_other_types_and_empty_inputs_are_left_alone() -> None:
    x, weight = torch.randn(3, 4, dtype=torch.float64), torch.randn(2, 4, dtype=torch.float64)
    with FastLinear():
        assert torch.equal(functional.linear(x, weight), x @ weight.T)
        assert functional.linear(torch.zeros(0, 4), torch.zeros(2, 4)).shape == (0, 2)
