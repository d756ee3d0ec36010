"""Ctrl-C and SIGTERM save and leave; a second one leaves at once; the run goes on from there."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sharpen.tracking.events import read
from tiny import build_tiny

RECIPE = """
model = "{place}/model"
output = "{place}/run"

[problems.train]
source = "arithmetic"
levels = [1]

[rollout]
problems = 2
group_size = 2
max_new_tokens = 8

[[rewards.functions]]
function = "slow.py:slow"

[training]
steps = {steps}
learning_rate = 1e-3

[checkpoint]
every = 1000
"""
SLOW = """
import time

def slow(completions, **_):
    time.sleep({seconds})
    return [float(len(text)) for text in completions]
"""
STUCK = """
import time
from pathlib import Path

def slow(completions, **_):
    if len(completions) == 4:  # a step's, not those that the function is tried on before
        Path(__file__).with_name("entered").touch()
        time.sleep(600)
    return [0.0 for text in completions]
"""


def begin(place: Path, *options: str, steps: int = 500, seconds: float = 0.05, reward: str = SLOW) -> subprocess.Popen[str]:
    if not (place / "model").exists():
        build_tiny(place / "model")
    (place / "slow.py").write_text(reward.format(seconds=seconds))
    (place / "recipe.toml").write_text(RECIPE.format(place=place, steps=steps))
    command = [sys.executable, "-m", "sharpen.cli", "train", str(place / "recipe.toml"), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=place, start_new_session=True)


def steps_done(place: Path) -> list[int]:
    log = place / "run" / "events.jsonl"
    return [event["step"] for event in read(log) if event["event"] == "step"] if log.exists() else []


def wait_for(condition, process: subprocess.Popen[str], seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_saves_and_leaves(tmp_path: Path, number: signal.Signals) -> None:
    process = begin(tmp_path)
    wait_for(lambda: len(steps_done(tmp_path)) >= 2, process)
    process.send_signal(number)
    told, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + number, told
    assert "Traceback" not in told
    assert "Go on with --resume" in told
    done = steps_done(tmp_path)
    assert done == list(range(1, done[-1] + 1))
    assert [p.name for p in (tmp_path / "run" / "checkpoints").iterdir()] == [f"step-{done[-1]:06d}"]
    assert not (tmp_path / "run" / "model").exists()

    process = begin(tmp_path, "--resume", steps=done[-1] + 2, seconds=0)
    told, _ = process.communicate(timeout=90)
    assert process.returncode == 0, told
    assert f"resuming after step {done[-1]}" in told
    assert steps_done(tmp_path) == list(range(1, done[-1] + 3))
    assert (tmp_path / "run" / "model" / "model.safetensors").is_file()


def test_the_second_leaves_at_once(tmp_path: Path) -> None:
    process = begin(tmp_path, reward=STUCK)
    wait_for((tmp_path / "entered").exists, process)
    process.send_signal(signal.SIGINT)
    time.sleep(1)
    assert process.poll() is None  # it waits for its step to end
    process.send_signal(signal.SIGINT)
    told, _ = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGINT, told
    assert not steps_done(tmp_path)
