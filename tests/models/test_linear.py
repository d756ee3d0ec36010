"""Our linear layer gives PyTorch's own results and gradients, up to rounding."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from sharpen.models.linear import has_onednn, linear, through


@pytest.mark.skipif(not has_onednn(), reason="this build of PyTorch has no oneDNN")
@pytest.mark.parametrize("rows", [1, 3, 70])
@pytest.mark.parametrize("with_bias", [True, False])
def test_the_same_numbers_and_gradients(rows: int, with_bias: bool) -> None:
    g = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(n, 16, generator=g, requires_grad=True) for n in (rows, 7))
    bias = torch.randn(7, generator=g, requires_grad=True) if with_bias else None
    factors = torch.randn(rows, 7, generator=g)
    inputs = [tensor for tensor in (x, weight, bias) if tensor is not None]
    got, expected = linear(x, weight, bias), functional.linear(x, weight, bias)
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)
    assert type(got.grad_fn).__name__ == "_OneDnnLinearBackward"
    ours, theirs = (torch.autograd.grad((out * factors).sum(), inputs) for out in (got, expected))
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


def test_other_types_and_empty_inputs_are_left_alone() -> None:
    x, weight = torch.randn(3, 4, dtype=torch.float64), torch.randn(2, 4, dtype=torch.float64)
    assert torch.equal(linear(x, weight), functional.linear(x, weight))
    assert linear(torch.zeros(0, 4), torch.zeros(2, 4)).shape == (0, 2)


def test_a_layer_that_is_not_plain_computes_by_itself() -> None:
    assert torch.equal(through(torch.nn.ReLU(), torch.tensor([-1.0, 2.0])), torch.tensor([0.0, 2.0]))
