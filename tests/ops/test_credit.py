"""Credit of tokens, by hand."""

from __future__ import annotations

import pytest
import torch

from sharpen.ops import credit

NAN = float("nan")


def f64(rows: list[list[float]]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def mask(*lengths: int, width: int = 3) -> torch.Tensor:
    return torch.tensor([[t < n for t in range(width)] for n in lengths])


def test_a_completions_reward_stands_at_its_last_token() -> None:
    got = credit.at_last_token(torch.tensor([1.5, -2.0]), mask(3, 1))
    assert got.tolist() == [[0.0, 0.0, 1.5], [-2.0, 0.0, 0.0]]


def test_rewards_still_to_come() -> None:
    rewards = f64([[1.0, 2.0, 3.0], [1.0, NAN, NAN]])
    assert credit.to_go(rewards, mask(3, 1)).tolist() == [[6.0, 5.0, 3.0], [1.0, 0.0, 0.0]]
    # 1 + 2/2 + 3/4, 2 + 3/2, 3
    assert credit.to_go(rewards, mask(3, 1), gamma=0.5).tolist() == [[2.75, 3.5, 3.0], [1.0, 0.0, 0.0]]


def test_gae_by_hand() -> None:
    # δ = 0 + 0.6 − 0.5, 0 + 0.7 − 0.6, 1 + 0 − 0.7 = 0.1, 0.1, 0.3
    # λ = 0.5: 0.3; 0.1 + 0.5 · 0.3 = 0.25; 0.1 + 0.5 · 0.25 = 0.225. Returns add V: 0.725, 0.85, 1.0
    found, returns = credit.gae(f64([[0, 0, 1]]), f64([[0.5, 0.6, 0.7]]), mask(3), lam=0.5)
    assert found[0].tolist() == pytest.approx([0.225, 0.25, 0.3])
    assert returns[0].tolist() == pytest.approx([0.725, 0.85, 1.0])
    # γ = 0.9, λ = 0.5: δ = 0.54 − 0.5, 0.63 − 0.6, 0.3 = 0.04, 0.03, 0.3; 0.03 + 0.45 · 0.3 = 0.165; 0.04 + 0.45 · 0.165 = 0.11425
    found, _ = credit.gae(f64([[0, 0, 1]]), f64([[0.5, 0.6, 0.7]]), mask(3), gamma=0.9, lam=0.5)
    assert found[0].tolist() == pytest.approx([0.11425, 0.165, 0.3])


def test_gae_ends_with_the_completion_and_a_nan_beyond_it_stays_out() -> None:
    found, returns = credit.gae(f64([[0.0, 1.0, NAN]]), f64([[0.2, 0.4, NAN]]), mask(2))
    assert found[0].tolist() == pytest.approx([0.8, 0.6, 0.0])
    assert returns[0].tolist() == pytest.approx([1.0, 1.0, 0.0])


def test_batch_norm_by_hand() -> None:
    # 1, 2, 6: mean 3, deviation √((4 + 1 + 9)/2) = 2.645751
    got = credit.batch_norm(f64([[1.0, 2.0], [6.0, NAN]]), torch.tensor([[True, True], [True, False]]), eps=0.0)
    assert got.flatten().tolist() == pytest.approx([-2 / 2.645751, -1 / 2.645751, 3 / 2.645751, 0.0], abs=1e-6)
    equal = torch.full((2, 4), 0.1)
    assert credit.batch_norm(equal, torch.ones(2, 4, dtype=torch.bool)).abs().sum() == 0.0


def test_process_by_hand() -> None:
    """DeepSeekMath §4.1.3: all steps of the group, 1, 0 and 0.5: mean 0.5, deviation 0.5; ε = 0."""
    steps = f64([[NAN, 1.0, 0.0], [NAN, 0.5, NAN]])
    got = credit.process(steps, torch.zeros(2, dtype=torch.int64), mask(3, 2), eps=0.0)
    # first: steps end at tokens 1 (+1) and 2 (−1): tokens 0 and 1 have +1 − 1 = 0, token 2 has −1. Second: one step of 0, ending at token 1
    assert got.tolist() == [[0.0, 0.0, -1.0], [0.0, 0.0, 0.0]]


def test_process_normalises_each_group_by_itself() -> None:
    steps = f64([[1.0], [0.0], [5.0], [5.0]])
    got = credit.process(steps, torch.tensor([0, 0, 1, 1]), mask(1, 1, 1, 1, width=1), eps=0.0)
    # group 0: ±0.5 / 0.707107; group 1: all equal, exactly 0
    assert got.flatten().tolist() == pytest.approx([0.707107, -0.707107, 0.0, 0.0], abs=1e-6)


def test_shapes_are_checked() -> None:
    with pytest.raises(ValueError, match=r"rewards \(1, 3\), mask \(1, 2\)"):
        credit.to_go(torch.zeros(1, 3), mask(2, width=2))
