"""The losses of reward models, by hand, and their gradients against differences."""

from __future__ import annotations

import pytest
import torch

from sharpen.ops import reward_losses


def f64(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def test_binary_cross_entropy_by_hand() -> None:
    # z = 0: −log 0.5 = 0.693147 whatever the label. z = 2, y = 1: log(1 + e^−2) = 0.126928; y = 0: 2 more, 2.126928.
    # z = −1, y = 0.25: 0.25 · log(1 + e) + 0.75 · log(1 + e^−1) = 0.25 · 1.313262 + 0.75 · 0.313262 = 0.563262
    logits, labels = f64(0.0, 2.0, 2.0, -1.0), torch.tensor([1.0, 1.0, 0.0, 0.25], dtype=torch.float64)
    losses = reward_losses.binary(logits, labels)
    assert losses.tolist() == pytest.approx([0.693147, 0.126928, 2.126928, 0.563262], abs=1e-6)
    losses.sum().backward()
    # σ(z) − y: 0.5 − 1, 0.880797 − 1, 0.880797, 0.268941 − 0.25
    assert logits.grad is not None
    assert logits.grad.tolist() == pytest.approx([-0.5, -0.119203, 0.880797, 0.018941], abs=1e-6)


def test_bradley_terry_by_hand() -> None:
    # margins 0, 1.5 and −2: log 2, log(1 + e^−1.5) = log 1.223130 = 0.201413, log(1 + e^2) = log 8.389056 = 2.126928
    chosen, rejected = f64(3.0, 1.0, -1.0), f64(3.0, -0.5, 1.0)
    losses = reward_losses.bradley_terry(chosen, rejected)
    assert losses.tolist() == pytest.approx([0.693147, 0.201413, 2.126928], abs=1e-6)
    losses.sum().backward()
    # −σ(−margin): 0.5, σ(−1.5) = 0.182426, σ(2) = 0.880797; the opposite for the rejected one
    assert chosen.grad is not None and rejected.grad is not None
    assert chosen.grad.tolist() == pytest.approx([-0.5, -0.182426, -0.880797], abs=1e-6)
    assert rejected.grad.tolist() == pytest.approx([0.5, 0.182426, 0.880797], abs=1e-6)


def test_gradients_in_float64() -> None:
    generator = torch.Generator().manual_seed(1)
    logits, others = (torch.randn(7, generator=generator, dtype=torch.float64, requires_grad=True) for _ in range(2))
    labels = torch.rand(7, generator=generator, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda z: reward_losses.binary(z, labels), (logits,))
    assert torch.autograd.gradcheck(reward_losses.bradley_terry, (logits, others))


def test_large_logits_stay_finite() -> None:
    assert reward_losses.binary(f64(800.0, -800.0), f64(0.0, 1.0).detach()).tolist() == [800.0, 800.0]
    assert reward_losses.bradley_terry(f64(-800.0, 800.0), f64(0.0, 0.0)).tolist() == [800.0, 0.0]


def test_shapes_are_checked() -> None:
    with pytest.raises(ValueError, match=r"logits \(2,\), labels \(1,\)"):
        reward_losses.binary(f64(0.0, 1.0), f64(1.0))
    with pytest.raises(ValueError, match=r"chosen \(2,\), rejected \(1,\)"):
        reward_losses.bradley_terry(f64(0.0, 1.0), f64(1.0))
