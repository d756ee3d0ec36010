"""Each bad input gives one clear error, exit code 2, no traceback, and leaves earlier results as they were."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from sharpen import cli
from tiny import build_tiny

ROWS = [{"question": f"What is {a} + 1?", "answer": str(a + 1)} for a in range(2, 8)]
RECIPE = """
model = "{place}/model"
output = "{place}/new"

[problems.train]
source = "file"
path = "{place}/problems.jsonl"

[rollout]
problems = 2
group_size = 2
max_new_tokens = 4

[[rewards.functions]]
function = "accuracy"

[training]
steps = 1
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    build_tiny(tmp_path / "model")
    (tmp_path / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (tmp_path / "recipe.toml").write_text(RECIPE.format(place=tmp_path))
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "results.json").write_text("earlier results")
    return tmp_path


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    """The exit code and what was told on the error stream."""
    monkeypatch.setattr("sys.argv", ["sharpen", *map(str, arguments)])
    with pytest.raises(SystemExit) as left:
        cli.main()
    return int(left.value.code or 0), capsys.readouterr().err


def bad_gold(place: Path) -> list[str]:
    rows = [*ROWS, {"question": "What?", "answer": "\\frac{1}{"}]
    (place / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return []


def malformed(place: Path) -> list[str]:
    (place / "problems.jsonl").write_text(json.dumps(ROWS[0]) + '\n{"question": "What is 2 + 2?", "answer": \n')
    return []


def lacking(place: Path) -> list[str]:
    (place / "problems.jsonl").write_text(json.dumps(ROWS[0]) + '\n{"question": "What is 2 + 2?", "anwser": "4"}\n')
    return []


def read_only(place: Path) -> list[str]:
    folder = place / "read-only"
    folder.mkdir()
    folder.chmod(0o555)
    if os.access(folder, os.W_OK):  # the superuser may write everywhere, but nobody can make a folder below a file
        folder = place / "problems.jsonl"
    return [f"output={folder}/run"]


def miscounting(place: Path) -> list[str]:
    (place / "reward.py").write_text("def short(completions, **_):\n    return [1.0]\n")
    return ['rewards.functions=[{function="reward.py:short"}]']


CASES = {
    "missing file": (lambda p: [f"problems.train.path={p}/nowhere.jsonl"], ["nowhere.jsonl", "no such file"]),
    "malformed line": (malformed, ["problems.jsonl:2", "not valid JSON"]),
    "missing field": (lacking, ["problems.jsonl:2", "'answer'", "anwser"]),
    "unparsable gold": (bad_gold, ["problems", "\\frac{1}{", "ground truth"]),
    "unknown key": (lambda p: ["training.learnign_rate=1e-5"], ["training.learnign_rate", "Did you mean 'learning_rate'?"]),
    "G = 1": (lambda p: ["rollout.group_size=1"], ["rollout.group_size", "at least 2", "got 1"]),
    "T = 0": (lambda p: ["rollout.temperature=0"], ["rollout.temperature", "above 0", "got 0"]),
    "beyond the context": (lambda p: ["rollout.max_new_tokens=4096"], ["rollout.max_new_tokens", "4096", "256"]),
    "read-only output": (read_only, ["output", "cannot be written"]),
    "miscounting reward": (miscounting, ["short", "expected 2", "1"]),
    "no such recipe": (lambda p: None, ["nothing.toml", "no such file"]),
    "not a value": (lambda p: ["training.steps"], ["training.steps", "section.field=value"]),
    "taken output": (lambda p: [f"output={p}/old"], ["old", "--resume"]),
    "top-p in training": (lambda p: ["rollout.top_p=0.9"], ["rollout.top_p", "0.9"]),
    "no such model": (lambda p: [f"model={p}/mode"], ["mode"]),
    "reward file missing": (lambda p: ['rewards.functions=[{function="no.py:f"}]'], ["no.py"]),
    "K above the samples": (lambda p: ["evaluation.samples=4", "evaluation.ks=[1,8]"], ["evaluation", "8"]),
    "no such tracker": (lambda p: ['tracking.trackers=["tensorbord"]'], ["tensorbord", "tensorboard"]),
}


@pytest.mark.parametrize("name", CASES)
def test_train(name: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    prepare, expected = CASES[name]
    overrides = prepare(place)
    recipe = place / ("recipe.toml" if overrides is not None else "nothing.toml")
    monkeypatch.chdir(place)
    code, told = run(monkeypatch, capsys, "train", recipe, *(overrides or []))
    assert code == 2, told
    assert told.count("Error:") == 1, told
    assert "Traceback" not in told, told
    for word in expected:
        assert word in told, f"{word!r} is not in: {told}"
    assert (place / "old" / "results.json").read_text() == "earlier results"
    assert sorted(p.name for p in (place / "old").iterdir()) == ["results.json"]
    assert not (place / "new").exists()


def test_the_recipe_itself_is_good(place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(place)
    code, told = run(monkeypatch, capsys, "train", place / "recipe.toml")
    assert code == 0, told
    assert (place / "new" / "model" / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["eval", "{place}/model", "--problems", "{place}/nowhere.jsonl"], "nowhere.jsonl"),
        (["eval", "{place}/model", "--problems", "arithmetic:99"], "99"),
        (["eval", "{place}/model", "--problems", "{place}/problems.jsonl", "--samples", "2", "--k", "4"], "K"),
        (["eval", "{place}/model", "--problems", "{place}/problems.jsonl", "--k", "many"], "many"),
        (["eval", "{place}/model", "--problems", "{place}/problems.jsonl", "--max-new-tokens", "9999"], "9999"),
        (["sample", "{place}/nothing"], "nothing"),
        (["sample", "{place}/model", "--template", "chatty"], "chatty"),
        (["inspect", "{place}/old"], "old"),
        (["methods", "grop"], "grpo"),
    ],
)
def test_other_commands(
    arguments: list[str], expected: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)  # a folder that no option names would lie there
    code, told = run(monkeypatch, capsys, *(argument.format(place=place) for argument in arguments))
    assert code == 2, told
    assert "Traceback" not in told, told
    assert expected in told, told
