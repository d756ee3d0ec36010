"""KL estimators, with the arithmetic written out."""

from __future__ import annotations

import math

import pytest
import torch

from sharpen.ops.kl import Estimator, derivative, estimate

LOGP = torch.tensor([-1.0], dtype=torch.float64)
REF = torch.tensor([-1.5], dtype=torch.float64)


@pytest.mark.parametrize(
    ("estimator", "value", "slope"),
    [
        ("k1", 0.5, 1.0),  # δ = −1.0 + 1.5 = 0.5
        ("k2", 0.125, 0.5),  # 0.5² / 2
        ("k3", 0.106531, 0.393469),  # e^−0.5 + 0.5 − 1 = 0.606531 − 0.5; 1 − 0.606531
    ],
)
def test_values_and_derivatives(estimator: Estimator, value: float, slope: float) -> None:
    logp = LOGP.clone().requires_grad_()
    got = estimate(logp, REF, estimator)
    got.sum().backward()
    assert got.item() == pytest.approx(value, abs=1e-6)
    assert logp.grad is not None
    assert logp.grad.item() == pytest.approx(slope, abs=1e-6)
    assert derivative(LOGP, REF, estimator).item() == pytest.approx(slope, abs=1e-6)


def test_k3_is_never_negative() -> None:
    delta = torch.linspace(-5, 5, 101, dtype=torch.float64)
    assert bool((estimate(delta, torch.zeros_like(delta), "k3") >= 0).all())


def enumerable() -> tuple[torch.Tensor, torch.Tensor]:
    """A policy over four tokens by its logits (with gradient), and a reference's log-probabilities."""
    logits = torch.tensor([0.3, -1.0, 0.5, 0.1], dtype=torch.float64, requires_grad=True)
    return logits, torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64).log()


def test_k3_unbiased() -> None:
    """E[π_ref/π_θ − log(π_ref/π_θ) − 1] = KL(π_θ ‖ π_ref) for tokens drawn from π_θ."""
    logits, ref = enumerable()
    logp = logits.log_softmax(0).detach()
    kl = float((logp.exp() * (logp - ref)).sum())
    for estimator in ("k1", "k3"):
        assert float((logp.exp() * estimate(logp, ref, estimator)).sum()) == pytest.approx(kl, rel=1e-12)


def test_k3_gradient() -> None:
    """On-policy: E∇k1 = 0, E∇k2 = ∇KL(π_θ ‖ π_ref), E∇k3 = ∇KL(π_ref ‖ π_θ)."""

    def expected(estimator: Estimator) -> torch.Tensor:
        logits, ref = enumerable()
        logp = logits.log_softmax(0)
        (logp.detach().exp() * estimate(logp, ref, estimator)).sum().backward()
        assert logits.grad is not None
        return logits.grad

    def true(reverse: bool) -> torch.Tensor:
        logits, ref = enumerable()
        logp = logits.log_softmax(0)
        kl = (ref.exp() * (ref - logp)).sum() if reverse else (logp.exp() * (logp - ref)).sum()
        kl.backward()
        assert logits.grad is not None
        return logits.grad

    torch.testing.assert_close(expected("k1"), torch.zeros(4, dtype=torch.float64), atol=1e-15, rtol=0)
    torch.testing.assert_close(expected("k2"), true(reverse=False), atol=1e-14, rtol=1e-12)
    torch.testing.assert_close(expected("k3"), true(reverse=True), atol=1e-14, rtol=1e-12)


def test_shapes_are_checked() -> None:
    with pytest.raises(ValueError, match=r"logprobs \(1,\), ref_logprobs \(2,\)"):
        estimate(LOGP, torch.zeros(2), "k3")
    with pytest.raises(ValueError, match="k1, k2 or k3, got 'k4'"):
        estimate(LOGP, REF, "k4")  # type: ignore[arg-type]


def test_k3_is_accurate_near_zero() -> None:
    delta = torch.tensor([1e-5], dtype=torch.float32)
    # δ²/2 − δ³/6 = 5e-11
    assert math.isclose(float(estimate(delta.double(), torch.zeros(1, dtype=torch.float64), "k3")), 5e-11, rel_tol=1e-4)
