"""A run that is killed at any moment and resumed is the run that was not killed, bit for bit."""

from __future__ import annotations

import filecmp
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sharpen.errors import SharpenError
from sharpen.folders import alone
from sharpen.pipelines.train import train
from sharpen.recipe import load_recipe
from tiny import build_tiny

REWARD = """
def digits(completions, **_):
    return [sum(c.isdigit() for c in text) / max(1, len(text)) for text in completions]
"""
RECIPE = """
model = "{model}"
seed = 5
output = "{output}"

[problems.train]
source = "arithmetic"
levels = [1, 2]
count = 10

[problems.held_out]
source = "arithmetic"
levels = [1]
split = "held_out"
count = 3

[rollout]
problems = 4
group_size = 4
max_new_tokens = [[1, 12], [4, 16]]
refills = 1

[[rewards.functions]]
function = "reward.py:digits"

[training]
steps = 6
num_iterations = 2
minibatches = 2
learning_rate = 1e-3
warmup = 2
schedule = "cosine"
reference_sync = 2
token_budget = 128

[checkpoint]
every = 2
keep = 2

[evaluation]
samples = 2
ks = [1, 2]
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("resume")
    build_tiny(folder / "model")
    (folder / "reward.py").write_text(REWARD)
    return folder


def recipe(place: Path, name: str) -> Path:
    path = place / f"{name}.toml"
    path.write_text(RECIPE.format(model=place / "model", output=place / name))
    return path


def run(place: Path, name: str, moment: str, *options: str) -> int:
    command = [sys.executable, str(Path(__file__).with_name("run_and_die.py")), str(recipe(place, name)), moment, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


def files(folder: Path) -> list[str]:
    # recipe.toml names its own folder, timings and starts differ, and manifests are compared through the files they name
    skipped = ("recipe.toml", "timings.jsonl", "environment.json", ".lock")
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file() and p.name not in skipped)


@pytest.fixture(scope="module")
def whole(place: Path) -> Path:
    assert run(place, "whole", "never") == 0
    return place / "whole"


def test_killed_in_a_step_in_a_checkpoint_and_in_an_evaluation(place: Path, whole: Path) -> None:
    assert run(place, "killed", "update:3") == -signal.SIGKILL
    killed = place / "killed"
    assert sorted(p.name for p in (killed / "checkpoints").iterdir()) == ["step-000002"]
    assert run(place, "killed", "checkpoint:4", "--resume") == -signal.SIGKILL
    assert sorted(p.name for p in (killed / "checkpoints").iterdir()) == [".writing-step-000004", "step-000002"]
    assert run(place, "killed", "evaluation:before", "--resume") == -signal.SIGKILL
    assert (killed / "evaluation" / "after.json").is_file()
    assert not (killed / "evaluation" / "before.json").exists()
    assert run(place, "killed", "never", "--resume") == 0

    assert files(killed) == files(whole)
    for name in files(whole):
        assert filecmp.cmp(whole / name, killed / name, shallow=False), name
    names = set(files(whole))
    assert {"checkpoints/step-000006/model.safetensors", "checkpoints/step-000006/training/optimiser.safetensors"} <= names
    assert {"checkpoints/step-000006/training/reference.safetensors", "completions/step-000003.parquet", "events.jsonl"} <= names
    steps = [json.loads(line) for line in (killed / "events.jsonl").read_text().splitlines()]
    assert [event["step"] for event in steps if event["event"] == "step"] == [1, 2, 3, 4, 5, 6]
    # it did learn: this would also hold if nothing were ever updated, were it not for these
    assert steps[-1]["metrics"]["updates"] == 24
    assert (whole / "checkpoints/step-000004/model.safetensors").read_bytes() != (whole / "model/model.safetensors").read_bytes()


def test_killed_before_the_first_checkpoint(place: Path, whole: Path) -> None:
    assert run(place, "early", "update:1") == -signal.SIGKILL
    assert run(place, "early", "never", "--resume") == 0
    assert filecmp.cmp(whole / "model/model.safetensors", place / "early/model/model.safetensors", shallow=False)
    assert filecmp.cmp(whole / "events.jsonl", place / "early/events.jsonl", shallow=False)


class Notices:
    def __init__(self) -> None:
        self.texts: list[str] = []

    def phase(self, name: str, total: int) -> None: ...
    def advance(self, count: int) -> None: ...
    def step(self, *_: object) -> None: ...
    def notice(self, text: str) -> None:
        self.texts.append(text)


def test_a_checkpoint_cut_short_gives_way_to_the_one_before(place: Path, whole: Path) -> None:
    path = recipe(place, "cut")
    train(load_recipe(path), recipe_path=path)
    newest = place / "cut/checkpoints/step-000006/training/optimiser.safetensors"
    newest.write_bytes(newest.read_bytes()[:1000])
    notices = Notices()
    train(load_recipe(path), recipe_path=path, resume=True, observer=notices)
    assert any("step-000006 is damaged (training/optimiser.safetensors has changed)" in text for text in notices.texts)
    assert any("resuming after step 4" in text for text in notices.texts)
    assert filecmp.cmp(whole / "model/model.safetensors", place / "cut/model/model.safetensors", shallow=False)
    assert filecmp.cmp(whole / "events.jsonl", place / "cut/events.jsonl", shallow=False)


def test_what_may_not_change_on_resume(place: Path, whole: Path) -> None:
    path = recipe(place, "whole")
    with pytest.raises(SharpenError, match=r"differ from those the run began with: rollout\.group_size, training\.learning_rate"):
        train(load_recipe(path, ["rollout.group_size=3", "training.learning_rate=0.5"]), recipe_path=path, resume=True)
    with pytest.raises(SharpenError, match="there is something already"):
        train(load_recipe(path), recipe_path=path)
    with pytest.raises(SharpenError, match="no run to resume"):
        train(load_recipe(path, [f"output={place / 'nowhere'}"]), recipe_path=path, resume=True)
    assert not (place / "nowhere").exists()


def test_a_finished_run_resumes_to_the_same_result(place: Path, whole: Path) -> None:
    before = {name: (whole / name).read_bytes() for name in files(whole)}
    path = recipe(place, "whole")
    result = train(load_recipe(path), recipe_path=path, resume=True)
    assert result.comparison is not None
    assert {name: (whole / name).read_bytes() for name in files(whole)} == before


def test_a_run_is_trained_by_one_process_at_a_time(place: Path, whole: Path) -> None:
    path, before = recipe(place, "whole"), {name: (whole / name).read_bytes() for name in [*files(whole), "recipe.toml"]}
    with alone(whole, "trains there", fix=""), pytest.raises(SharpenError, match=r"whole: another process \(\d+ on .+\) trains there\."):
        train(load_recipe(path, ["training.steps=7"]), recipe_path=path, resume=True)
    assert {name: (whole / name).read_bytes() for name in [*files(whole), "recipe.toml"]} == before
