"""The figures of a reward model by hand, and their intervals."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sharpen.evaluation import reward_quality
from sharpen.evaluation.reward_quality import Quality, of_labels, of_pairs


def logit(p: float) -> float:
    return math.log(p / (1 - p))


# problem a: right 0.9, wrong 0.6, wrong 0.2; problem b: right 0.4, right 0.7, wrong 0.7
PROBLEMS = ["a", "a", "a", "b", "b", "b"]
P = [0.9, 0.6, 0.2, 0.4, 0.7, 0.7]
LABELS = [1.0, 0.0, 0.0, 1.0, 1.0, 0.0]


def test_the_figures_by_hand() -> None:
    found = of_labels(PROBLEMS, [logit(p) for p in P], LABELS, bins=5)
    assert (found.examples, found.problems, found.positive, found.majority) == (6, 2, 0.5, 0.5)
    # right at 0.5: 0.9 yes, 0.6 no, 0.2 yes, 0.4 no, 0.7 yes, 0.7 no
    assert found.accuracy.value == pytest.approx(3 / 6)
    # right 0.9, 0.4, 0.7 against wrong 0.6, 0.2, 0.7: 3 + 1 + (1 + 1 + half) = 6.5 of 9
    assert found.auc.value == pytest.approx(6.5 / 9)
    # a: 2 of 2; b: 0.4 loses, 0.7 ties: half of 2
    assert found.within.value == pytest.approx(2.5 / 4)
    # a: 0.9 is right; b: of the two 0.7 one is right
    assert found.chosen.value == pytest.approx((1 + 0.5) / 2)
    assert math.isnan(of_labels(PROBLEMS, [logit(p) for p in P], LABELS, kind="steps").chosen.value)
    # 0.01 + 0.36 + 0.04 + 0.36 + 0.09 + 0.49 = 1.35
    assert found.brier.value == pytest.approx(1.35 / 6)
    # bins of a fifth: [0.2, 0.4): 0.2 → 0; [0.4, 0.6): 0.4 → 1; [0.6, 0.8): 0.6, 0.7, 0.7 → 1 of 3; [0.8, 1]: 0.9 → 1
    # (0.2 + 0.6 + |2.0 − 1| + 0.1) / 6 = 1.9 / 6
    assert found.calibration_error.value == pytest.approx(1.9 / 6)
    assert [one.count for one in found.reliability] == [0, 1, 1, 3, 1]
    third = found.reliability[3]
    assert (third.low, third.high, third.probability, third.right) == pytest.approx((0.6, 0.8, 2 / 3, 1 / 3))
    assert math.isnan(found.reliability[0].right)


def test_frequent_right_ones_can_win_most_pairs_and_still_not_be_chosen() -> None:
    # of 6 of a problem 4 are right, all alike: they are ahead of one wrong one and behind the other: 4 of 8 pairs, and never chosen
    found = of_labels(["a"] * 6, [1.0, 1.0, 1.0, 1.0, 0.0, 2.0], [1.0, 1.0, 1.0, 1.0, 0.0, 0.0])
    assert (found.within.value, found.chosen.value) == (0.5, 0.0)


def test_older_figures_without_one_of_them_are_read() -> None:
    found = of_labels(PROBLEMS, [logit(p) for p in P], LABELS)
    older = {name: value for name, value in found.to_dict().items() if name != "chosen"}
    again = Quality.from_dict(older)
    assert math.isnan(again.chosen.value) and again.within == found.within


def test_pairs_by_hand() -> None:
    # margins log 3, −log 3 and 0: σ(|m|) = 0.75, 0.75, 0.5; the preferred one is ahead, behind, level
    found = of_pairs(["a", "b", "c"], [math.log(3), -math.log(3), 0.0], bins=4)
    assert found.accuracy.value == pytest.approx(1.5 / 3)
    # (0.25² + 0.75² + 0) / 3
    assert found.brier.value == pytest.approx(0.625 / 3)
    # bins [0.5, 0.75): 0.5 → 0.5; [0.75, 1]: 0.75, 0.75 → 0.5 each: |1.5 − 1| / 3
    assert found.calibration_error.value == pytest.approx(0.5 / 3)
    assert math.isnan(found.auc.value) and math.isnan(found.chosen.value) and math.isnan(found.positive)


def test_what_cannot_be_measured_is_nan() -> None:
    found = of_labels(["a", "b"], [1.0, 2.0], [1.0, 1.0])
    assert math.isnan(found.auc.value) and math.isnan(found.within.value)
    assert found.accuracy.value == 1.0
    assert found.to_dict()["auc"] == {"value": None, "low": None, "high": None}
    assert Quality.from_dict(found.to_dict()).to_dict() == found.to_dict()


def made_up(n: int, seed: int, skill: float) -> tuple[list[str], list[float], list[float]]:
    """n problems of 8 completions, calibrated: a completion is right with the probability that its logit says."""
    draw = np.random.default_rng(seed)
    level = draw.normal(0, 1, size=(n, 1))
    z = level + draw.normal(0, skill, size=(n, 8))
    y = draw.random((n, 8)) < 1 / (1 + np.exp(-z))
    return [f"p{i}" for i in range(n) for _ in range(8)], z.ravel().tolist(), y.ravel().astype(float).tolist()


def test_a_calibrated_model_has_a_small_error_and_intervals_hold_the_truth() -> None:
    truth = of_labels(*made_up(4000, 99, 1.5))
    assert truth.calibration_error.value < 0.015
    inside = {"accuracy": 0, "auc": 0, "within": 0, "brier": 0}
    for seed in range(40):
        found = of_labels(*made_up(40, seed, 1.5), seed=seed)
        for name in inside:
            one = getattr(found, name)
            inside[name] += one.low <= getattr(truth, name).value <= one.high
    # 38 of 40 are expected; 33 or fewer happen by chance once in a hundred times
    assert min(inside.values()) >= 34, inside


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = of_labels(*made_up(20, 1, 1.0))
    monkeypatch.setattr(reward_quality, "_AT_ONCE", 7 * 160)
    assert of_labels(*made_up(20, 1, 1.0)) == whole


def test_an_overconfident_model_is_seen() -> None:
    problems, z, y = made_up(200, 5, 1.0)
    honest, loud = of_labels(problems, z, y), of_labels(problems, [4 * value for value in z], y)
    assert loud.accuracy == honest.accuracy and loud.auc.value == honest.auc.value
    assert loud.calibration_error.low > honest.calibration_error.high
