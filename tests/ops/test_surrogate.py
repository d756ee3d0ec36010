"""The clipped surrogate, with the arithmetic written out."""

from __future__ import annotations

import math

import pytest
import torch

from sharpen.ops import surrogate
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


def test_log_probability_by_hand() -> None:
    logp = torch.tensor([[-0.5, -2.0]], dtype=torch.float64)
    assert surrogate.log_probability(logp, torch.tensor([[2.0, -1.0]], dtype=torch.float64)).tolist() == [[1.0, -2.0]]


def test_a_sequence_has_one_ratio_and_each_token_its_share_of_the_gradient() -> None:
    logp = torch.tensor([[-1.0, -2.0, 0.0]], dtype=torch.float64, requires_grad=True)
    old = torch.tensor([[-1.2, -2.4, 0.0]], dtype=torch.float64)
    mask = torch.tensor([[True, True, False]])
    ratio = surrogate.sequence_ratio(logp, old, mask)
    s = math.exp((0.2 + 0.4) / 2)  # 1.349859
    assert ratio[0, :2].tolist() == pytest.approx([s, s])
    # the mean over the two tokens is s itself, whose gradient is s / 2 at each
    ratio[0, :2].mean().backward()
    assert logp.grad is not None
    assert logp.grad[0].tolist() == pytest.approx([s / 2, s / 2, 0.0])


def test_clipped_weight_keeps_every_gradient() -> None:
    logp = torch.tensor([[-1.0, -1.0]], dtype=torch.float64, requires_grad=True)
    old = logp.detach() - torch.tensor([[math.log(3.0), math.log(0.5)]], dtype=torch.float64)
    advantages = torch.tensor([[1.0, 1.0]], dtype=torch.float64)
    loss = surrogate.clipped_weight(logp, old, advantages, low=1.0, high=1.0)
    assert loss[0].tolist() == pytest.approx([2.0, 0.5])  # −min(3, 2) · −1, −0.5 · −1
    loss.sum().backward()
    assert logp.grad is not None
    assert logp.grad[0].tolist() == pytest.approx([-2.0, -0.5])


def test_truncated_importance_by_hand() -> None:
    old, engine = torch.tensor([[-1.0, -1.0, -1.0]]), torch.tensor([[-1.5, -2.0, -0.5]])
    assert surrogate.truncated_importance(old, engine, cap=2.0)[0].tolist() == pytest.approx([1.648721, 2.0, 0.606531], abs=1e-6)
