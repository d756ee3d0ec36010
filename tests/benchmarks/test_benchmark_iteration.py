"""The arithmetic of the iteration benchmark, on figures of two made-up seeds."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from benchmark_scripts import script


@pytest.fixture(scope="module")
def iteration() -> ModuleType:
    return script("iteration")


def seed_of(gains: list[float], accuracies: list[tuple[float | None, float]]) -> dict[str, Any]:
    """The part of a `rounds.json` that is read: each round's gain, and each reward model's accuracy before and after its fit."""

    def judged(value: float | None) -> dict[str, Any] | None:
        return None if value is None else {"accuracy": {"value": value}, "within": {"value": value / 2}}

    rounds = [{"held_out": {"change": {"pass_at_k": {"1": {"value": gain}}}}} for gain in gains]
    models = [{"the_one_before_on_them": judged(before), "on_fresh_samples": judged(after)} for before, after in accuracies]
    return {"rounds": rounds, "reward_models": models}


FOUND = [seed_of([0.1, 0.02], [(None, 0.7), (0.6, 0.8)]), seed_of([0.3, -0.02], [(None, 0.8), (0.5, 0.8)])]


def test_gains_are_by_round_and_seed(iteration: ModuleType) -> None:
    assert iteration.gains(FOUND) == [[0.1, 0.3], [0.02, -0.02]]


def test_a_mean_is_told_in_points_with_its_interval(iteration: ModuleType) -> None:
    # Mean 20 points; deviation √2 · 10; half the interval: t(0.975, 1) = 12.706 × 14.14 / √2 = 127.1.
    assert iteration.told([0.1, 0.3]) == "+20.0 ± 127.1"


def test_reward_models_stand_beside_the_one_before_on_the_same_samples(iteration: ModuleType) -> None:
    rows = iteration.reward_rows(FOUND)
    assert rows[0][:2] == ["0", "–"]
    assert rows[0][2].startswith("0.750 ±")
    assert rows[1][1].startswith("0.550 ±")
    assert rows[1][2] == "0.800 ± 0.000"
    assert rows[1][3].startswith("0.275 ±")


@pytest.mark.parametrize(
    ("differences", "word"),
    [([0.1, 0.11, 0.09], "holds"), ([-0.1, -0.11, -0.09], "contradicted"), ([0.1, -0.1, 0.0], "inconclusive"), ([0.1], "inconclusive")],
)
def test_the_word(iteration: ModuleType, differences: list[float], word: str) -> None:
    assert iteration.word_of(differences) == word
