"""Each speed benchmark from end to end, on a random model of two layers and the smallest sizes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmark_scripts import BENCHMARKS
from tiny import build_tiny


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """The tiny model, told that it has positions enough for a story of one character a token."""
    folder = build_tiny(tmp_path_factory.mktemp("model"))
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 1024}), encoding="utf-8")
    return folder


def run(script: str, model: Path, folder: Path, *options: str) -> tuple[dict[str, Any], str]:
    """What the script wrote as JSON, and what it printed."""
    written = folder / "figures.json"
    sizes = ["--problems", "2", "--group", "2", "--new", "4", "--runs", "1", "--threads", "1", "--dtype", "float32"]
    command = [sys.executable, str(BENCHMARKS / script), "--model", str(model), "--json", str(written), *sizes, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    text = written.read_text(encoding="utf-8")
    assert str(model) not in text
    record = json.loads(text)
    assert record["environment"]["threads"] == 1
    return record, done.stdout


@pytest.mark.slow
def test_rollout(model, tmp_path) -> None:
    record, printed = run("rollout.py", model, tmp_path)
    assert "vLLM is left out" in printed
    [found] = record["results"]
    assert found["setting"] == "2x2x4"
    ours, theirs = found["seconds"]["sharpen"], found["seconds"]["transformers"]
    assert found["ratios"]["transformers"] == {
        "median": theirs[0] / ours[0],
        "low": theirs[0] / ours[0],
        "high": theirs[0] / ours[0],
        "pairs": 1,
    }
    assert found["tokens_per_second"]["sharpen"] == pytest.approx(2 * 2 * 4 / ours[0])
    assert 0 < found["roofline"]["step_seconds"] < found["step_seconds"]
    assert found["share"] == pytest.approx(found["roofline"]["step_seconds"] / (ours[0] / 4))


@pytest.mark.slow
def test_train_step_does_the_same_work_on_both_sides(model, tmp_path) -> None:
    record, _ = run("train_step.py", model, tmp_path, "--updates", "1", "--micro-batch", "2")
    runs = record["results"]["runs"]
    assert runs["sharpen"][0]["grad_norm"] == pytest.approx(runs["padded"][0]["grad_norm"], rel=1e-4)
    assert min(record["results"]["peak_bytes"].values()) > 0
    assert record["results"]["roofline"]["seconds"] > 0


@pytest.mark.slow
def test_grpo_step_without_trl(model, tmp_path) -> None:
    record, printed = run("grpo_step.py", model, tmp_path, "--steps", "1")
    assert "TRL is left out" in printed
    assert list(record["results"]["seconds"]) == ["sharpen"]
    [found] = record["results"]["runs"]["sharpen"]
    assert found["seconds"][0] == pytest.approx(sum(times[0] for times in found["parts"].values()))


@pytest.mark.slow
def test_scaling(model, tmp_path) -> None:
    sizes = ["--axes", "group", "new", "--group-sizes", "2", "4", "--new-sizes", "4", "8"]
    record, _ = run("scaling.py", model, tmp_path, *sizes)
    assert [(one["kind"], one["axis"]) for one in record["results"]] == [
        ("rollout", "group"),
        ("rollout", "new"),
        ("update", "group"),
        ("update", "new"),
    ]
    for one in record["results"]:
        assert [p["completion_tokens"] for p in one["points"]] == [16, 32]
        assert all(0 < p["attention_share"] < 1 for p in one["points"])
        assert isinstance(one["exponent"], float)


@pytest.mark.slow
def test_step_labels(model, tmp_path, data_dir) -> None:
    written = tmp_path / "figures.json"
    options = ["--people", "--data", str(data_dir), "--model", str(model), "--solutions", "2", "--rollouts", "2", "--new", "4"]
    command = [sys.executable, str(BENCHMARKS / "step_labels.py"), *options, "--json", str(written)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    record = json.loads(written.read_text(encoding="utf-8"))
    found = record["results"]["MR-GSM8K"]
    assert (found["quality"]["rule, equations"]["solutions"], found["completed"]["quality"]["hard, n = 2"]["solutions"]) == (590, 2)
    # everything is wrong once: so many solutions have a first mistake at their first step
    assert found["quality"]["every step wrong"]["recall"]["value"] == 1.0
    assert found["completed"]["cost"]["rollouts"] == 2 * found["completed"]["cost"]["steps"]
