"""The clipped surrogate, with the arithmetic written out."""

from __future__ import annotations

import math

import pytest
import torch

from sharpen.ops.surrogate import clipped_token, is_clipped


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "slope", "clipped"),
    [
        (1.5, 1.0, -1.2, 0.0, True),  # min(1.5, 1.2) = 1.2
        (0.5, 1.0, -0.5, -0.5, False),  # min(0.5, 0.8) = 0.5
        (1.5, -1.0, 1.5, 1.5, False),  # min(−1.5, −1.2) = −1.5
        (0.5, -1.0, 0.8, 0.0, True),  # min(−0.5, −0.8) = −0.8
        (1.1, 2.0, -2.2, -2.2, False),  # min(2.2, 2.2)
        (1.5, 0.0, 0.0, 0.0, False),  # no advantage, so nothing was taken away
    ],
)
def test_value_gradient_and_clip(ratio: float, advantage: float, loss: float, slope: float, clipped: bool) -> None:
    old = torch.tensor([[-1.0]], dtype=torch.float64)
    logp = (old + math.log(ratio)).requires_grad_()
    adv = torch.tensor([[advantage]], dtype=torch.float64)
    got = clipped_token(logp, old, adv, low=0.2, high=0.2)
    got.sum().backward()
    assert got.item() == pytest.approx(loss, abs=1e-12)
    assert logp.grad is not None
    assert logp.grad.item() == pytest.approx(slope, abs=1e-12)  # dr/dlog π = r
    assert is_clipped(torch.tensor([[ratio]]), adv, low=0.2, high=0.2).item() is clipped


def test_the_bounds_are_apart() -> None:
    old = torch.zeros(1, 2, dtype=torch.float64)
    logp = torch.tensor([[math.log(1.25), math.log(0.75)]], dtype=torch.float64)
    got = clipped_token(logp, old, torch.tensor([[1.0, -1.0]], dtype=torch.float64), low=0.2, high=0.28)
    # 1.25 is within 1 + 0.28; 0.75 is below 1 − 0.2: min(−0.75, −0.8) = −0.8
    assert got[0].tolist() == pytest.approx([-1.25, 0.8])


def test_an_epsilon_of_ten_clips_nothing_below() -> None:
    ratio = torch.tensor([[0.001, 10.9, 11.1]])
    assert is_clipped(ratio, torch.tensor([[-1.0, 1.0, 1.0]]), low=10, high=10).tolist() == [[False, False, True]]
