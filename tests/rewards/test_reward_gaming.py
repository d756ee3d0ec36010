"""The gap between a learned reward and the rule, and when it counts as open."""

from __future__ import annotations

import math

import pytest
import torch
from pydantic import ValidationError

from sharpen.rewards.gaming import GamingSettings, gap, opened
from sharpen.rewards.settings import RewardSettings

MODEL = {"function": "model", "parameters": {"path": "x"}}


def test_the_gap_by_hand() -> None:
    # probabilities 0.9, 0.5, 0.2, 0.4 of right, wrong, wrong, right ones: (−0.1 + 0.5 + 0.2 − 0.6) / 4 = 0
    values, correct = torch.tensor([[0.9, 0.5], [0.2, 0.4]]), torch.tensor([[True, False], [False, True]])
    assert gap(values, correct, "probability") == pytest.approx(0.0, abs=1e-7)
    assert gap(values, torch.zeros(2, 2, dtype=torch.bool), "probability") == pytest.approx(0.5)
    # logit 0 is 0.5, logit ln 3 is 0.75: (0.5 + 0.75 − 1) / 2
    assert gap(torch.tensor([0.0, math.log(3)]), torch.tensor([False, True]), "logit") == pytest.approx(0.125)
    # what the model gave no value leaves both means
    assert gap(torch.tensor([math.nan, 0.7]), torch.tensor([True, False]), "probability") == pytest.approx(0.7)
    assert gap(torch.tensor([math.nan]), torch.tensor([True]), "logit") is None


def test_when_it_opens_by_hand() -> None:
    settings = GamingSettings(gap=0.1, window=2)
    # first window 0.0; windows of steps 3-4: 0.05, 4-5: 0.1 (not above), 5-6: 0.15
    gaps = [-0.1, 0.1, 0.0, 0.1, 0.1, 0.2]
    assert [opened(gaps[:n], settings) for n in range(7)] == [None, None, None, None, None, None, 6]
    assert opened([*gaps, 0.0, 0.0], settings) == 6  # it stays open
    # a model that is off from the start opens nothing, and one that improves neither
    assert opened([0.4] * 20, settings) is None
    assert opened([0.4, 0.4, 0.1, 0.0, -0.3], settings) is None
    # the two windows have no step in common: of three steps nothing can be said
    assert opened([0.0, 0.0, 0.9], settings) is None
    assert opened([0.0, 0.0, 0.9, 0.9], settings) == 4
    # a step without a gap is in no window that counts
    assert opened([0.0, 0.0, math.nan, 0.9, 0.9], settings) == 5


@pytest.mark.parametrize(
    ("functions", "more", "message"),
    [
        ([{"function": "accuracy"}], {}, "expected a function 'model' with a weight"),
        ([{"function": "accuracy"}, MODEL | {"weight": 0}], {}, "expected a function 'model' with a weight"),
        ([MODEL], {"gaming": {"then": "rule"}}, "needs the function 'accuracy' among rewards.functions; add it with weight 0"),
        (
            [MODEL, {"function": "accuracy", "weight": 0}],
            {"gaming": {"then": "rule"}, "steps": MODEL},
            "expected no 'model' in rewards.steps",
        ),
        ([MODEL], {"gaming": {"gap": 0}}, "greater than 0"),
        ([MODEL], {"gaming": {"windw": 3}}, "Extra inputs"),
    ],
)
def test_settings_that_cannot_be(functions, more, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        RewardSettings.model_validate({"functions": functions, "gaming": {}} | more)
