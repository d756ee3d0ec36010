"""Parts of the reward that enter and leave: the events say what the total is the sum of, and the total is what was learnt from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from sharpen.errors import RecipeError
from sharpen.pipelines.train import train
from sharpen.recipe import load_recipe
from sharpen.tracking import completions
from sharpen.tracking.observer import Silent
from sharpen.training.learner import Learner
from tiny import build_tiny

RECIPE = """
model = "{place}/model"
output = "{place}/run"
seed = 4

[problems.train]
source = "arithmetic"
levels = [1, 2]
count = 12

[rollout]
problems = 3
group_size = 4
max_new_tokens = 8

[[rewards.functions]]
function = "rewards.py:letters"

[[rewards.functions]]
function = "rewards.py:digits"
weight = 0.5
from_step = 3
until_step = 4

[[rewards.functions]]
function = "repetition"
weight = 2.0
parameters = {{ n = 1 }}
until_step = 3

[training]
dtype = "float32"
steps = 5
learning_rate = 1e-3

[checkpoint]
every = 1
keep = 9
"""
REWARDS = """
def letters(completions, trainer_state, log_extra, log_metric, **_):
    assert trainer_state.max_steps == 5
    log_extra("step", [trainer_state.global_step] * len(completions))
    log_metric("longest", max(len(text) for text in completions))
    return [sum(c.isalpha() for c in text) / 8 for text in completions]

def digits(completions, **_):
    return [sum(c.isdigit() for c in text) / 8 for text in completions]
"""
WEIGHTS = {
    1: {"letters": 1.0, "repetition": 2.0},
    2: {"letters": 1.0, "repetition": 2.0},
    3: {"letters": 1.0, "repetition": 2.0, "digits": 0.5},
    4: {"letters": 1.0, "digits": 0.5},
    5: {"letters": 1.0},
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    build_tiny(tmp_path / "model")
    (tmp_path / "rewards.py").write_text(REWARDS)
    (tmp_path / "recipe.toml").write_text(RECIPE.format(place=tmp_path))
    return tmp_path


def events(place: Path, name: str) -> list[dict[str, Any]]:
    found = map(json.loads, (place / "run" / "events.jsonl").read_text().splitlines())
    return [event for event in found if event["event"] == name]


def test_the_total_that_is_logged_is_the_total_that_is_used(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used: dict[int, torch.Tensor] = {}
    prepare = Learner.prepare

    def watched(self: Learner, batch: Any) -> Any:
        used[len(used) + 1] = batch.rewards.clone()
        return prepare(self, batch)

    monkeypatch.setattr(Learner, "prepare", watched)
    train(load_recipe(place / "recipe.toml"), recipe_path=place / "recipe.toml")

    changes = {event["step"]: event["weights"] for event in events(place, "reward_weights")}
    assert changes == {1: WEIGHTS[1], 3: WEIGHTS[3], 4: WEIGHTS[4], 5: WEIGHTS[5]}  # only where the total is another sum than before
    weights: dict[str, float] = {}
    for event in events(place, "step"):
        step, metrics = event["step"], event["metrics"]
        weights = changes.get(step, weights)
        assert metrics["reward"] == pytest.approx(sum(weight * metrics[f"reward/{name}"] for name, weight in weights.items()), abs=1e-12)
        rows = completions.read(completions.path_of(place / "run" / "completions", step))
        totals = [sum(weight * row[f"reward/{name}"] for name, weight in weights.items()) for row in rows]
        assert [row["reward"] for row in rows] == pytest.approx(totals, abs=1e-12)
        assert used[step].flatten().tolist() == [row["reward"] for row in rows]
        assert all(row["reward/digits"] is not None for row in rows)  # recorded before it counts
        assert {row["log/step"] for row in rows} == {step - 1}
        assert metrics["log/longest"] == max(len(row["completion"]) for row in rows)
    assert len(used) == 5


def test_a_run_resumed_between_two_definitions_is_the_run_that_was_not(place: Path) -> None:
    recipe = load_recipe(place / "recipe.toml")
    train(recipe, recipe_path=place / "recipe.toml")
    whole = (place / "run" / "events.jsonl").read_bytes()
    for step in (4, 5):  # as if it had been killed before the fourth step was saved
        for path in (place / "run" / "checkpoints").glob(f"step-{step:06d}*"):
            for file in sorted(path.rglob("*"), reverse=True):
                file.unlink() if file.is_file() else file.rmdir()
            path.rmdir()
    train(recipe, recipe_path=place / "recipe.toml", resume=True)
    assert (place / "run" / "events.jsonl").read_bytes() == whole


def test_a_step_without_a_reward_is_refused(place: Path) -> None:
    with pytest.raises(RecipeError, match=r"rewards.functions: nothing counts in the reward of step 4"):
        load_recipe(place / "recipe.toml", ['rewards.functions=[{function="accuracy", until_step=3}]'])


def test_a_part_that_never_counts_is_told(place: Path) -> None:
    notices: list[str] = []

    class Watcher(Silent):
        def notice(self, text: str) -> None:
            notices.append(text)

    override = 'rewards.functions=[{function="accuracy"}, {function="boxed", from_step=1301}]'
    recipe = load_recipe(place / "recipe.toml", [override, "training.steps=1"])
    train(recipe, recipe_path=place / "recipe.toml", observer=Watcher())
    assert "rewards: 'boxed' counts from step 1301 on, and training has 1: it is only recorded" in notices
    assert [event["weights"] for event in events(place, "reward_weights")] == [{"accuracy": 1.0}]
