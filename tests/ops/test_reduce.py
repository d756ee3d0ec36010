"""Reductions, with the arithmetic written out, and their indifference to the cut."""

from __future__ import annotations

import pytest
import torch

from sharpen.ops.reduce import Reduction, token_weights, weighted_sum

MASK = torch.tensor([[1, 1, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1]]).bool()
LOSSES = torch.tensor([[1, 1, 9, 9, 9, 9], [2, 2, 2, 2, 2, 2]], dtype=torch.float64)


@pytest.mark.parametrize(
    ("reduction", "expected"),
    [
        ("token-mean", 1.75),  # (2 · 1 + 6 · 2) / 8
        ("seq-mean-token-mean", 1.5),  # (1 + 2) / 2
        ("seq-mean-token-sum-norm", 0.875),  # (2/8 + 12/8) / 2
        ("sequence-sum", 7.0),  # (2 + 12) / 2
    ],
)
def test_values_and_every_split(reduction: Reduction, expected: float) -> None:
    weights = token_weights(MASK, reduction, constant_length=8, dtype=torch.float64)
    assert weighted_sum(LOSSES, weights, MASK).item() == pytest.approx(expected)
    split = sum(weighted_sum(LOSSES[i : i + 1], weights[i : i + 1], MASK[i : i + 1]).item() for i in range(2))
    assert split == pytest.approx(expected)


def test_a_masked_sequence_is_in_neither_numerator_nor_denominator() -> None:
    mask = torch.tensor([[1, 1], [0, 0]]).bool()
    losses = torch.tensor([[1.0, 3.0], [50.0, 50.0]])
    assert weighted_sum(losses, token_weights(mask, "seq-mean-token-mean"), mask).item() == pytest.approx(2.0)


def test_nothing_counts() -> None:
    mask = torch.zeros(2, 3, dtype=torch.bool)
    for reduction in ("token-mean", "seq-mean-token-mean", "sequence-sum"):
        assert torch.equal(token_weights(mask, reduction), torch.zeros(2, 3))


def test_a_nan_at_a_masked_position_stays_out() -> None:
    losses = torch.tensor([[1.0, float("nan")]])
    mask = torch.tensor([[True, False]])
    assert weighted_sum(losses, token_weights(mask, "token-mean"), mask).item() == 1.0


def test_faults() -> None:
    with pytest.raises(ValueError, match="constant_length of at least 1, got None"):
        token_weights(MASK, "seq-mean-token-sum-norm")
    with pytest.raises(ValueError, match="got 'mean'"):
        token_weights(MASK, "mean")  # type: ignore[arg-type]
