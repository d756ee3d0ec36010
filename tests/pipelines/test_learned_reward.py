"""A run by a learned reward: killed and resumed it is the run that was not; its reward model is counted, watched and let go."""

from __future__ import annotations

import filecmp
import json
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from sharpen.errors import SharpenError
from sharpen.models import reward_model
from sharpen.pipelines import train as pipeline
from sharpen.pipelines.train import train
from sharpen.recipe import load_recipe
from tiny import build_tiny

RECIPE = """
model = "{place}/policy"
seed = 5
output = "{place}/{name}"

[problems.train]
source = "arithmetic"
levels = [1]
count = 8

[rollout]
problems = 3
group_size = 4
max_new_tokens = 10

[[rewards.functions]]
function = "model"
parameters = {{ path = "outcome", dtype = "float32", device = "cpu" }}

[[rewards.functions]]
function = "accuracy"
weight = 0

[training]
steps = 4
learning_rate = 1e-3
token_budget = 128
dtype = "float32"
device = "cpu"

[checkpoint]
every = 2
"""
PROCESS = """
[method]
name = "grpo_process"

[rewards.steps]
function = "model"
splitter = "marked"
marker = "[%^|0-9]"
parameters = { path = "process", dtype = "float32", device = "cpu", keep = false }
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("learned_run")
    build_tiny(folder / "policy")
    for kind in ("outcome", "process"):
        model = reward_model.new(str(build_tiny(folder / "base", seed=1)), kind, dtype="float32", device="cpu")  # type: ignore[arg-type]
        with torch.no_grad():
            model.module.score.weight.copy_(torch.linspace(-1, 1, 32)[None])
        model.about["template"] = {"name": "chat"}
        model.save(folder / kind)
    return folder


def recipe(place: Path, name: str, more: str = "") -> Path:
    path = place / f"{name}.toml"
    path.write_text(RECIPE.format(place=place, name=name) + more)
    return path


def run(place: Path, name: str, moment: str, *options: str, more: str = "") -> int:
    command = [sys.executable, str(Path(__file__).with_name("run_and_die.py")), str(recipe(place, name, more)), moment, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


@pytest.mark.parametrize("more", ["", PROCESS], ids=["outcome", "process"])
def test_killed_and_resumed_it_is_the_same_run(place: Path, more: str) -> None:
    name = "process-run" if more else "outcome-run"
    whole, killed = place / name, place / f"{name}-killed"
    path = recipe(place, name, more)
    torch.set_num_threads(2)
    train(load_recipe(path), recipe_path=path)
    assert run(place, killed.name, "checkpoint:4", more=more) == -signal.SIGKILL
    assert run(place, killed.name, "never", "--resume", more=more) == 0
    files = ["model/model.safetensors", "events.jsonl", "completions/step-000004.parquet", "checkpoints/step-000004/training/state.json"]
    for file in files:
        assert filecmp.cmp(whole / file, killed / file, shallow=False), file
    # it did learn by the reward model
    assert (whole / "model/model.safetensors").read_bytes() != (place / "policy/model.safetensors").read_bytes()
    rows = pq.read_table(whole / "completions/step-000001.parquet").to_pylist()
    model = reward_model.load(str(place / "outcome"), dtype="float32", device="cpu")
    prompts = {row["problem_id"]: row for row in rows}
    assert len(prompts) == 3 and [row["reward"] for row in rows] == [row["reward/model"] for row in rows]
    assert len({row["reward"] for row in rows}) > 6
    assert all(row["reward/accuracy"] is not None for row in rows)
    model.close()


def test_the_model_without_being_kept_gives_the_same_run(place: Path) -> None:
    path = recipe(place, "fleeting")
    path.write_text(path.read_text().replace('device = "cpu" }', 'device = "cpu", keep = false }', 1))
    train(load_recipe(path), recipe_path=path)
    if not (place / "outcome-run").is_dir():
        other = recipe(place, "outcome-run")
        train(load_recipe(other), recipe_path=other)
    assert filecmp.cmp(place / "fleeting/model/model.safetensors", place / "outcome-run/model/model.safetensors", shallow=False)


def test_memory_counts_it_and_its_weights_are_watched(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = recipe(place, "counted")
    result = train(load_recipe(path), recipe_path=path)
    parameters = sum(p.numel() for p in reward_model.load(str(place / "outcome"), device="cpu").module.parameters())
    assert result.memory.rewards == 4 * parameters
    assert result.memory.scoring == 2 * 4096 * (7 * 32 + 3 * 64) * 4
    assert result.memory.peak >= result.memory.baseline + result.memory.rewards + result.memory.scoring
    state = json.loads((place / "counted/checkpoints/step-000004/training/state.json").read_text())
    assert list(state["resolved"]["reward_models"]) == ["model"]

    model = reward_model.load(str(place / "outcome"), dtype="float32", device="cpu")
    kept = (place / "outcome/model.safetensors").read_bytes()
    with torch.no_grad():
        model.module.score.weight.mul_(2)
    model.save(place / "outcome")
    with pytest.raises(SharpenError, match=r"the weights of a reward model .model. are not those the run began with"):
        train(load_recipe(path, ["training.steps=6"]), recipe_path=path, resume=True)
    (place / "outcome/model.safetensors").write_bytes(kept)
    monkeypatch.setattr(pipeline.memory, "available", lambda device: 0)
    with pytest.raises(SharpenError, match=r"rewards .* scoring .*\n.*set keep=false of a reward model"):
        other = recipe(place, "too-large")
        train(load_recipe(other), recipe_path=other)
    assert not (place / "too-large").exists()


def test_a_reward_model_that_is_not_there_stops_it_before_anything_is_made(place: Path) -> None:
    path = recipe(place, "missing")
    path.write_text(path.read_text().replace('path = "outcome"', 'path = "outcom"'))
    with pytest.raises(SharpenError, match="No model 'outcom'"):
        train(load_recipe(path), recipe_path=path)
    assert not (place / "missing").exists()
