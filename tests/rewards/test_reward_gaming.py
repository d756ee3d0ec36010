"""The gap between a learned reward and the rule, and when it counts as open."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

from sharpen.records import Scores
from sharpen.rewards.gaming import GamingSettings, gap, opened, opened_at
from sharpen.rewards.settings import RewardSettings
from sharpen.tracking.events import EventLog, read
from sharpen.training.gaming import Watch

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


def test_only_steps_whose_reward_is_learned_are_looked_at() -> None:
    # of the gaps 0, 0, 0.9, 0.9 the windows are those two and these two, whichever steps they are of; 4 and 9 have none
    assert opened_at({3: 0.0, 5: 0.0, 6: 0.9, 10: 0.9}, GamingSettings(gap=0.1, window=2)) == 10
    assert opened_at({}, GamingSettings()) is None
    settings = RewardSettings.model_validate({"functions": [{"function": "accuracy"}, MODEL | {"from_step": 3, "until_step": 4}]})
    assert [settings.learned_at(step) for step in range(1, 6)] == [False, False, True, True, False]
    assert not RewardSettings.model_validate({"functions": [{"function": "accuracy"}, MODEL | {"weight": 0}]}).learned_at(1)


def scores(*logits: float) -> Scores:
    """One group of completions, all wrong."""
    part = torch.tensor([logits], dtype=torch.float64)
    return Scores(
        total=part, parts={"model": part}, correct=torch.zeros(1, len(logits), dtype=torch.bool), answers=((None,) * len(logits),)
    )


def test_a_watch_decides_by_the_steps_that_count_and_the_same_from_a_log(tmp_path: Path) -> None:
    fell: list[int] = []
    settings = GamingSettings(gap=0.2, window=1, then="rule")

    def watch() -> Watch:
        return Watch(outputs={"model": "logit"}, settings=settings, counts=lambda step: step > 2, fall_back=fell.append)

    # probabilities 0.9, 0.1 | 0.5, none, 0.75: steps 1 and 2 are before it counts, step 4 has no gap, so 0.75 is compared with 0.5
    rows = [(math.log(9),), (-math.log(9),), (0.0, 0.0), (math.nan,), (math.log(3),)]
    one = watch()
    with EventLog(tmp_path / "events.jsonl") as log:
        for step, row in enumerate(rows, 1):
            assert one.opened is None and one.weights(step, {"model": 1.0}) == {"model": 1.0}
            log.append("step", step=step, metrics=one.see(step, scores(*row)))
    assert one.gaps == pytest.approx({3: 0.5, 5: 0.75}) and one.opened == 5
    assert one.windows() == (pytest.approx([0.5]), pytest.approx([0.75]))
    assert one.weights(5, {"model": 1.0}) == {"model": 1.0} and one.weights(6, {"model": 1.0}) == {"accuracy": 1.0}
    assert fell == [6] and not one.stops
    found = [entry["metrics"] for entry in read(tmp_path / "events.jsonl")]
    assert [round(metrics["reward_gap"], 9) if metrics else None for metrics in found] == [0.9, 0.1, 0.5, None, 0.75]

    for step in (5, 4, 3, 0):  # resumed after the switch, in the middle of a window, and from the beginning
        log = EventLog(tmp_path / "events.jsonl")
        log.truncate_after(step)
        again = watch()
        again.resume(log)
        assert again.gaps == {place: gap for place, gap in one.gaps.items() if place <= step}
        assert again.opened == (5 if step == 5 else None)
    assert fell == [6, 6]
