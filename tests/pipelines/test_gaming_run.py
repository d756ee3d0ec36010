"""A run whose learned reward is gamed: it is told, it stops or falls back to the rule, and a killed one does the same."""

from __future__ import annotations

import filecmp
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch

from sharpen.errors import RecipeError
from sharpen.models import reward_model
from sharpen.pipelines.train import train
from sharpen.recipe import load_recipe
from sharpen.reports.html import Maker
from sharpen.reports.plots import plots
from sharpen.reports.run_view import look
from sharpen.rewards.gaming import GamingSettings, opened
from sharpen.tracking import events
from tiny import build_tiny

# A random model writes characters at random: about half of its completions have one that the pattern finds.
RECIPE = """
model = "{place}/policy"
seed = 5
output = "{place}/{name}"

[problems.train]
source = "file"
path = "problems.jsonl"
kind = "regex"
answer_extraction = "none"

[problems.held_out]
source = "file"
path = "held_out.jsonl"
kind = "regex"
answer_extraction = "none"

[rollout]
problems = 3
group_size = 4
max_new_tokens = 6

[[rewards.functions]]
function = "model"
parameters = {{ path = "outcome", dtype = "float32", device = "cpu" }}

[[rewards.functions]]
function = "accuracy"
weight = 0

[rewards.gaming]
gap = 1e-3
window = 1
then = "{then}"

[training]
steps = 6
learning_rate = 1e-3
token_budget = 128
dtype = "float32"
device = "cpu"

[checkpoint]
every = 1

[evaluation]
samples = 2
ks = [1]
require_stop = false
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gaming")
    build_tiny(folder / "policy")
    for name, numbers in (("problems", range(8)), ("held_out", range(8, 11))):
        rows = [{"question": f"Say {i}", "answer": "(?s).*[a-m%8>^].*"} for i in numbers]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    model = reward_model.new(str(build_tiny(folder / "base", seed=1)), "outcome", dtype="float32", device="cpu")
    with torch.no_grad():
        model.module.score.weight.copy_(torch.linspace(-1, 1, 32)[None])
    model.about["template"] = {"name": "chat"}
    model.save(folder / "outcome")
    model.about["reward_model"] = "preference"
    model.save(folder / "preference")
    return folder


def recipe(place: Path, name: str, then: str) -> Path:
    path = place / f"{name}.toml"
    path.write_text(RECIPE.format(place=place, name=name, then=then))
    return path


def run(place: Path, then: str) -> list[dict[str, Any]]:
    """The events of a run, which is made once."""
    folder, path = place / then, recipe(place, then, then)
    torch.set_num_threads(2)
    if not folder.exists():
        train(load_recipe(path), recipe_path=path)
    return list(events.read(folder / "events.jsonl"))


def steps(found: list[dict[str, Any]]) -> list[dict[str, float]]:
    return [entry["metrics"] for entry in found if entry["event"] == "step"]


def first_open(found: list[dict[str, Any]]) -> int:
    step = opened([one["reward_gap"] for one in steps(found)], GamingSettings(gap=1e-3, window=1))
    assert step is not None and 2 <= step <= 4, "the made-up run does not do what these tests need"
    return step


def test_a_warning_changes_nothing_and_the_gap_is_that_of_the_completions(place: Path) -> None:
    found = run(place, "warn")
    assert len(steps(found)) == 6
    [told] = [entry for entry in found if entry["event"] == "gaming"]
    assert told["step"] == first_open(found) and told["then"] == "warn"
    for number, metrics in enumerate(steps(found), 1):
        rows = pq.read_table(place / f"warn/completions/step-{number:06d}.parquet").to_pylist()
        said = [float(torch.tensor(row["reward/model"], dtype=torch.float64).sigmoid()) for row in rows]
        by_hand = sum(value - row["correct"] for value, row in zip(said, rows, strict=True)) / 12
        assert metrics["reward_gap"] == pytest.approx(by_hand, abs=1e-6)
    assert [entry["weights"] for entry in found if entry["event"] == "reward_weights"] == [{"model": 1.0}]


def test_stopping_ends_the_run_in_good_order(place: Path) -> None:
    found, last = run(place, "stop"), first_open(run(place, "warn"))
    assert steps(found) == steps(run(place, "warn"))[:last]
    assert (place / f"stop/checkpoints/step-{last:06d}").is_dir() and (place / "stop/model/model.safetensors").is_file()
    assert json.loads((place / "stop/evaluation/after.json").read_text())["step"] == last
    before = (place / "stop/events.jsonl").read_bytes()
    path = recipe(place, "stop", "stop")
    train(load_recipe(path), recipe_path=path, resume=True)  # there is nothing to go on with
    assert (place / "stop/events.jsonl").read_bytes() == before


def test_falling_back_goes_on_by_the_rule_alone(place: Path) -> None:
    found, at = run(place, "rule"), first_open(run(place, "warn"))
    assert len(steps(found)) == 6 and steps(found)[:at] == steps(run(place, "warn"))[:at]
    weights = [(entry["step"], entry["weights"]) for entry in found if entry["event"] == "reward_weights"]
    assert weights == [(1, {"model": 1.0}), (at + 1, {"accuracy": 1.0})]
    for number in (at, at + 1):
        rows = pq.read_table(place / f"rule/completions/step-{number:06d}.parquet").to_pylist()
        part = "model" if number == at else "accuracy"
        assert [row["reward"] for row in rows] == [row[f"reward/{part}"] for row in rows]
        assert all(row["reward/model"] is not None for row in rows)  # still recorded
    assert all("reward_gap" in one for one in steps(found))


@pytest.mark.parametrize("after", [0, 1], ids=["at the switch", "after it"])
def test_killed_and_resumed_it_is_the_same_run(place: Path, after: int) -> None:
    at = first_open(run(place, "warn")) + after
    run(place, "rule")
    name = f"killed-{after}"
    command = [sys.executable, str(Path(__file__).with_name("run_and_die.py")), str(recipe(place, name, "rule"))]
    killed = subprocess.run([*command, f"checkpoint:{at}"], capture_output=True, text=True, timeout=600, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    resumed = subprocess.run([*command, "never", "--resume"], capture_output=True, text=True, timeout=600, check=False)
    assert resumed.returncode == 0, resumed.stderr
    for file in ("model/model.safetensors", "events.jsonl", "completions/step-000006.parquet", "evaluation/comparison.json"):
        assert filecmp.cmp(place / "rule" / file, place / name / file, shallow=False), file


def test_the_report_plots_both(place: Path) -> None:
    run(place, "warn")
    [plot] = [one for one in plots([look(place / "warn")], ["warn"]) if one.key == "learned_reward"]
    said, mark, right, gap = plot.lines
    at = first_open(run(place, "warn"))
    assert (mark.marks, mark.x, mark.y, mark.label) == (True, [at], [said.y[at - 1]], f"gap open after step {at}: warned")
    assert gap.y == pytest.approx([100 * metrics["reward_gap"] for metrics in steps(run(place, "warn"))])
    for place_, metrics in enumerate(steps(run(place, "warn"))):
        assert right.y[place_] == pytest.approx(100 * metrics["pass_rate"])
        assert said.y[place_] - right.y[place_] == pytest.approx(100 * metrics["reward_gap"])


def test_a_report_tells_a_stopped_run_from_an_interrupted_one(place: Path) -> None:
    run(place, "stop")
    view, last = look(place / "stop"), first_open(run(place, "warn"))
    assert view.gamed == (last, "stop") and view.done == last
    told = " ".join(view.missing)
    assert f"Training ended after step {last} of 6, for the gap" in told and "--resume" not in told
    assert view.diagnosis is not None and f"Training ended after step {last} of 6, as rewards.gaming asks." in view.diagnosis.notes
    assert "reward gamed: learned" in [finding.rule for finding in view.diagnosis.findings]
    assert f"stopped after step {last} of 6: the reward was gamed" in Maker(place / "stop").make().html


def test_completions_from_before_training_cannot_be_watched(place: Path) -> None:
    path = recipe(place, "stored", "rule")
    with pytest.raises(RecipeError, match=r"rewards\.gaming: 'rft' learns from completions that were there before training"):
        train(load_recipe(path, ['method={name="rft"}']), recipe_path=path)
    assert not (place / "stored").exists()


def test_a_model_of_preferences_has_no_gap(place: Path) -> None:
    path = recipe(place, "preference-run", "warn")
    path.write_text(path.read_text().replace('path = "outcome"', 'path = "preference"'))
    with pytest.raises(RecipeError, match=r"rewards\.gaming: 'model' is a model of preferences"):
        train(load_recipe(path), recipe_path=path)
    assert not (place / "preference-run").exists()
