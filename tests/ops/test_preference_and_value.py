"""DPO's loss, its pairs, and the value model's loss, by hand."""

from __future__ import annotations

import math

import pytest
import torch

from sharpen.ops import preference
from sharpen.ops.reduce import token_weights
from sharpen.ops.value import squared_error

NAN = float("nan")


def f64(rows: list[list[float]]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def test_dpo_by_hand() -> None:
    # log-ratios sum to 0.5 and −0.5; β = 0.1: h = 0.1; −log σ(0.1) = log(1 + e^−0.1) = 0.644397
    logp, ref = f64([[-1.0, -1.0], [-1.0, 0.0]]), f64([[-1.2, -1.3], [-0.5, 0.0]])
    pair = torch.tensor([0, 0])
    assert preference.margins(logp, ref, pair, beta=0.1).tolist() == pytest.approx([0.1])
    got = preference.pairwise(logp, ref, pair, beta=0.1)
    assert got.flatten().tolist() == pytest.approx([0.644397, 0.0, 0.0, 0.0], abs=1e-6)
    # β σ(−0.1) = 0.1 · 0.475021
    assert preference.pairwise_coefficient(logp, ref, pair, beta=0.1).flatten().tolist() == pytest.approx([0.0475021, -0.0475021], abs=1e-7)


def test_the_mean_over_pairs() -> None:
    weights = token_weights(torch.tensor([[True, True], [True, False], [True, True], [True, True]]), "pair-mean")
    assert weights.tolist() == [[0.5, 0.5], [0.5, 0.0], [0.5, 0.5], [0.5, 0.5]]


def test_neighbours_must_be_pairs() -> None:
    with pytest.raises(ValueError, match=r"expected pairs of neighbours, got pair \[0, 1\]"):
        preference.pairwise(f64([[0.0], [0.0]]), f64([[0.0], [0.0]]), torch.tensor([0, 1]), beta=0.1)


@pytest.mark.parametrize(
    ("rewards", "pairs"),
    [
        ([0.0, 1.0, 1.0, 0.0], [(1, 3), (2, 0)]),
        ([0.5, 1.0, 0.0], [(1, 2)]),
        ([1.0, 1.0, 1.0, 0.0], [(0, 3)]),
        ([0.1] * 8, []),
        ([NAN, 1.0, 0.0], [(1, 2)]),
        ([NAN, 1.0], []),
    ],
)
def test_pairs_of_a_group(rewards: list[float], pairs: list[tuple[int, int]]) -> None:
    assert preference.pairs(torch.tensor(rewards)) == pairs


def test_value_loss_by_hand() -> None:
    values, returns, old = f64([[1.0, 0.6]]).requires_grad_(), f64([[2.0, 2.0]]), f64([[0.5, 0.5]])
    # V = 1.0 is kept at 0.7: max((1 − 2)², (0.7 − 2)²)/2 = 0.845, without a gradient; 0.6 is within 0.2: (0.6 − 2)²/2 = 0.98, gradient −1.4
    loss = squared_error(values, returns, old, clip=0.2)
    assert loss[0].tolist() == pytest.approx([0.845, 0.98])
    loss.sum().backward()
    assert values.grad is not None
    assert values.grad[0].tolist() == pytest.approx([0.0, -1.4])
    assert squared_error(values.detach(), returns, old, clip=None)[0].tolist() == pytest.approx([0.5, 0.98])


@pytest.mark.parametrize(
    ("reduction", "expected"), [("token-mean", 1.75), ("seq-mean-token-mean", 1.5), ("seq-mean-token-sum-norm", 0.875)]
)
def test_value_losses_reduce_as_policy_losses_do(reduction, expected: float) -> None:  # type: ignore[no-untyped-def]
    """Per-token losses [1, 1] and [2] × 6, whatever the cut into micro-batches (a peer's value loss grew with their number)."""
    errors = [[math.sqrt(2)] * 2 + [NAN] * 4, [2.0] * 6]
    mask = torch.tensor([[True] * 2 + [False] * 4, [True] * 6])
    weights = token_weights(mask, reduction, constant_length=8, dtype=torch.float64)
    zeros = torch.zeros(2, 6, dtype=torch.float64)
    losses = squared_error(torch.where(mask, f64(errors), 0.0), zeros, zeros, clip=None)
    assert (weights * losses).sum().item() == pytest.approx(expected)
    assert sum((weights[i] * losses[i]).sum().item() for i in range(2)) == pytest.approx(expected)
