"""`sharpen search` on a small random model: files, determinism, and what cannot be searched with."""

from __future__ import annotations

import csv
import json
import sys
import types
from pathlib import Path

import pytest

from sharpen import cli
from sharpen.errors import ModelError, RecipeError, SharpenError
from sharpen.pipelines.evaluate import source_from_text
from sharpen.pipelines.search import SearchSettings, search_model
from tiny import build_tiny

SETTINGS = {"budget": 48, "points": 2, "max_new_tokens": 12, "max_step_tokens": 6, "rollouts": 1, "width": 2, "beams": 2}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(build_tiny(tmp_path_factory.mktemp("search") / "model"))


def search(model: str, **changed):
    return search_model(model, source_from_text("arithmetic:1:3"), SearchSettings(**(SETTINGS | changed)), dtype="float32")


def test_the_command_writes_figures_and_a_plot(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ["--budget", "48", "--points", "2", "--max-new-tokens", "12", "--max-step-tokens", "6", "--rollouts", "1", "--width", "2"]
    command = ["sharpen", "search", model, "--problems", "arithmetic:1:3", *given, "--beams", "2", "--oracle", "--dtype", "float32"]
    monkeypatch.setattr("sys.argv", [*command, "--output", str(tmp_path / "out")])
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert not left.value.code
    told = " ".join(capsys.readouterr().out.split())
    for words in (
        "majority vote",
        "tree search (oracle)",
        "agreement of 1 rollouts",
        "best-of-N (log p)",
        "by the ground truth",
    ):
        assert words in told
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["search.csv", "search.json", "search.png"]
    kept = json.loads((tmp_path / "out" / "search.json").read_text())
    assert kept["settings"]["led_by"] == "agreement of 1 rollouts"
    assert len(kept["rows"]) == 1 + 2 * 7
    assert all(len(row["scores"]) == len(row["spent"]) == 3 for row in kept["rows"])
    rows = list(csv.DictReader((tmp_path / "out" / "search.csv").open()))
    assert [row["strategy"] for row in rows] == [row["strategy"] for row in kept["rows"]]
    assert (tmp_path / "out" / "search.png").read_bytes().startswith(b"\x89PNG")
    # the same settings give the same figures
    again = search(model, oracle=True)
    assert [(list(row.scores), list(row.spent)) for row in again.rows] == [(row["scores"], row["spent"]) for row in kept["rows"]]


def test_a_step_function_leads(model: str) -> None:
    found = search(model, value="equations", points=1)
    assert found.baseline == "step function equations"
    assert "best-of-N" in [row.strategy for row in found.rows]


def test_a_reward_model_leads(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []

    class RewardModel:
        kind = "outcome"

        def __init__(self, tokenizer: str) -> None:
            self.tokenizer = tokenizer

        def score(self, prompts, completions):
            return [float(-len(tokens)) for tokens in completions]

        def close(self) -> None:
            closed.append(True)

    fake = types.ModuleType("sharpen.models.reward_model")
    fake.load = lambda name: RewardModel(name)
    fake.vocabulary_digest = lambda tokenizer: "other" if tokenizer == "theirs" else "same"
    monkeypatch.setitem(sys.modules, "sharpen.models.reward_model", fake)
    found = search(model, reward_model=Path("ours"), points=1)
    assert found.baseline == "outcome reward model ours"
    assert closed == [True]
    assert json.dumps(found.settings)
    with pytest.raises(ModelError, match="its tokens are not those of"):
        search(model, reward_model=Path("theirs"))


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"budget": 1, "points": 3}, "no 3 halvings"),
        ({"width": 0}, "width is 0"),
        ({"temperature": 0.0}, "temperature is 0"),
        ({"exploration": -1.0}, "exploration is -1"),
        ({"max_new_tokens": 10_000}, "max-new-tokens"),
    ],
)
def test_what_cannot_be_searched_with(model: str, changed: dict, match: str) -> None:
    with pytest.raises(RecipeError, match=match):
        search(model, **changed)


def test_an_unknown_step_function_and_a_separator_that_no_token_holds(model: str) -> None:
    with pytest.raises(SharpenError, match="unknown step function 'equation'"):
        search(model, value="equation")
    with pytest.raises(ModelError, match="no token"):
        search(model, separator="ab")
