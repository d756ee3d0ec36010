"""Advantages, with the arithmetic written out. Axes: P problems, G completions a group."""

from __future__ import annotations

import math

import pytest
import torch

from sharpen.ops import advantages
from sharpen.ops.advantages import group_mean, group_norm, zero_variance

NAN = float("nan")


def f64(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def test_group_norm_with_the_samples_deviation() -> None:
    # mean 0.25; squares 0.5625 + 3 · 0.0625 = 0.75; variance 0.75 / 3 = 0.25; deviation 0.5
    got = group_norm(f64([1, 0, 0, 0]), ddof=1, eps=1e-4)
    torch.testing.assert_close(got, f64([0.75 / 0.5001, -0.25 / 0.5001, -0.25 / 0.5001, -0.25 / 0.5001]))
    assert got[0, 0].item() == pytest.approx(1.4997, abs=5e-5)
    assert got[0, 1].item() == pytest.approx(-0.4999, abs=5e-5)


def test_group_norm_with_the_populations_deviation() -> None:
    # variance 0.75 / 4 = 0.1875; deviation 0.4330
    got = group_norm(f64([1, 0, 0, 0]), ddof=0, eps=1e-4)
    assert got[0, 0].item() == pytest.approx(0.75 / (math.sqrt(0.1875) + 1e-4), rel=1e-12)
    assert got[0, 0].item() == pytest.approx(1.7317, abs=5e-5)
    assert got[0, 1].item() == pytest.approx(-0.5772, abs=5e-5)


def test_a_group_of_one_is_refused() -> None:
    with pytest.raises(ValueError, match=r"at least 2 completions, got rewards of shape \(3, 1\)"):
        group_norm(torch.zeros(3, 1))
    with pytest.raises(ValueError, match="2 dimensions"):
        group_mean(torch.zeros(3))
    with pytest.raises(ValueError, match="ddof 0 or 1, got 2"):
        group_norm(torch.zeros(3, 2), ddof=2)


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, -3.3])
def test_equal_rewards_have_advantage_exactly_zero(value: float) -> None:
    rewards = torch.full((1, 8), value, dtype=torch.float32)
    assert torch.equal(group_norm(rewards, eps=0.0), torch.zeros(1, 8))
    assert torch.equal(group_mean(rewards), torch.zeros(1, 8))
    assert zero_variance(rewards).tolist() == [True]


def test_nearly_equal_rewards_keep_their_difference() -> None:
    # mean 1.000005; deviation √(2 · (5e-6)²) = 7.0711e-6; 5e-6 / (7.0711e-6 + 1e-6) = 0.6195
    got = group_norm(f64([1.0, 1.00001]), ddof=1, eps=1e-6)
    assert got[0].tolist() == pytest.approx([-0.6195, 0.6195], abs=1e-4)


def test_a_loop_and_the_vectorised_path_agree() -> None:
    rewards = torch.rand(5, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 1e-3 + 1
    for row, got in zip(rewards.tolist(), group_norm(rewards, ddof=1, eps=1e-6).tolist(), strict=True):
        mean = sum(row) / 7
        deviation = math.sqrt(sum((r - mean) ** 2 for r in row) / 6)
        assert got == pytest.approx([(r - mean) / (deviation + 1e-6) for r in row], abs=1e-5)


def test_an_unscorable_reward_is_left_out() -> None:
    # of 1, 0, 1: mean 2/3; squares 1/9 + 4/9 + 1/9 = 2/3; variance 1/3; deviation 0.57735
    got = group_norm(f64([1, 0, NAN, 1]), ddof=1, eps=1e-4)
    assert got[0].tolist() == pytest.approx([0.5773, -1.1545, 0.0, 0.5773], abs=5e-5)
    assert group_mean(f64([1, 0, NAN, 1]))[0].tolist() == pytest.approx([1 / 3, -2 / 3, 0, 1 / 3])


def test_fewer_than_two_scorable_rewards_teach_nothing() -> None:
    rewards = f64([1, NAN, NAN], [NAN, NAN, NAN], [1, 0, NAN])
    got = group_norm(rewards, eps=0.0)
    assert torch.equal(got[:2], torch.zeros(2, 3, dtype=torch.float64))
    assert got[2].tolist() == pytest.approx([math.sqrt(0.5), -math.sqrt(0.5), 0.0])
    assert zero_variance(rewards).tolist() == [True, True, False]


def test_leave_one_out() -> None:
    """r_i − mean(r) = (G − 1)/G · (r_i − mean of the others)."""
    row = [0.3, 1.0, 0.0, 0.7, 0.2]
    got = group_mean(f64(row))[0].tolist()
    others = [(sum(row) - r) / 4 for r in row]
    assert got == pytest.approx([4 / 5 * (r - other) for r, other in zip(row, others, strict=True)])


def test_advantages_carry_no_gradient() -> None:
    rewards = torch.tensor([[1.0, 0.0]], requires_grad=True)
    assert not group_norm(rewards).requires_grad


def test_leave_one_out_by_hand() -> None:
    got = advantages.leave_one_out(torch.tensor([[1.0, 0.0, 0.0, 0.0]], dtype=torch.float64))
    assert got[0].tolist() == pytest.approx([1.0, -1 / 3, -1 / 3, -1 / 3])
    # without the unscorable one: 1 − 0.5, 1 − 0.5, 0 − 1
    got = advantages.leave_one_out(torch.tensor([[1.0, float("nan"), 1.0, 0.0]], dtype=torch.float64))
    assert got[0].tolist() == pytest.approx([0.5, 0.0, 0.5, -1.0])


def test_acceptance() -> None:
    rewards = torch.tensor([[1.0, 0.99, 1.2, float("nan")]])
    assert advantages.accept(rewards).tolist() == [[1.0, 0.0, 1.0, 0.0]]
    assert advantages.accept(rewards, threshold=0.9).tolist() == [[1.0, 1.0, 1.0, 0.0]]
