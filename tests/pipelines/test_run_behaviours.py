"""Behaviours of a made-up run, from its folder to the table, the CSV and the plot."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from rich.console import Console

from made_up_run import GROUPS, SIZE, MadeUp
from sharpen.errors import RewardError, RunError
from sharpen.evaluation.behaviours import Behaviours
from sharpen.pipelines.behaviours import behaviours
from sharpen.reports.behaviours import behaviour_tables, blocks, mean, write
from sharpen.tracking import completions


def shown(found: Behaviours) -> str:
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    for part in behaviour_tables(found, title="made up"):
        console.print(part)
    return console.export_text()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    settings = {"rewards": {"functions": [{"function": "accuracy"}, {"function": "boxed"}]}}
    return MadeUp(steps=6, held_out={0: 0.3, 6: 0.7}, settings=settings).write(tmp_path_factory.mktemp("made-up") / "run")


def test_every_step_and_the_model_before(run: Path, tmp_path: Path) -> None:
    found = behaviours(run)
    assert found.steps() == [1, 2, 3, 4, 5, 6]
    assert found.steps("held-out") == [0, 6]
    for step in (1, 6):
        rows = completions.read(completions.path_of(run / "completions", step))
        wrong = [row["length"] for row in rows if not row["correct"]]
        assert found.series("length", "wrong")[step] == (pytest.approx(sum(wrong) / len(wrong)), len(wrong))
        rates = [row["correct"] for row in rows if row["level"] == "2"]
        assert found.series("accuracy", "level 2")[step] == (pytest.approx(sum(rates) / len(rates)), GROUPS * SIZE // 2)
    assert found.series("reflective_words", "right")[6][0] == 2.0
    assert found.series("reflective_words", "wrong")[6][0] == 0.0
    assert found.series("reflective_words", "right", "held-out")[0][0] == 2.0
    assert found.series("entropy")[1][0] == pytest.approx(0.8, rel=0.02)
    assert found.series("format_errors")[1] == (1.0, GROUPS * SIZE)  # no box anywhere
    assert found.notes == ("Other language: other than English, for the recipe names none; choose one by --language.",)
    text = shown(found)
    for words in ("held-out, before", "steps 5–6", "of wrong ones", "reflective words", "Right by level", "note: Other language"):
        assert words in text
    table, picture = write(found, tmp_path / "out")
    rows = list(csv.DictReader(table.open(encoding="utf-8")))
    assert len(rows) == len(found.figures)
    (one,) = [row for row in rows if (row["place"], row["step"], row["measure"], row["of"]) == ("training", "1", "length", "wrong")]
    assert float(one["value"]) == found.series("length", "wrong")[1][0]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_what_was_sampled_is_told(run: Path) -> None:
    whole, part = behaviours(run), behaviours(run, limit=10, language="en")
    assert part.series("length") == whole.series("length")
    assert part.series("reflective_words")[1][1] == 10
    (note,) = part.notes
    assert note.startswith("Text was read of 80 of 512 completions, 10 a step or evaluation")


def test_what_is_missing_is_told(tmp_path: Path) -> None:
    run = MadeUp(steps=6, held_out={}, metrics=lambda step: {"replaced_groups": 2.0}).write(tmp_path / "run")
    for step in (2, 3, 5):
        completions.path_of(run / "completions", step).unlink()
    found = behaviours(run, language="en")
    assert found.steps() == [1, 4, 6]
    assert found.notes == (
        "The completions of 3 of 6 steps are not there: 2 to 3, 5.",
        "12 groups without variance were sampled anew (rollout.refills) and are in no figure.",
        "There is no evaluation of the model before training; give one by --base.",
    )


def test_an_evaluation_alone_and_as_the_base(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "evaluation"
    folder.mkdir()
    for name in ("json", "parquet"):
        target = folder / ("evaluation.json" if name == "json" else "completions.parquet")
        target.write_bytes((run / "evaluation" / f"step-000006.{name}").read_bytes())
    alone = behaviours(folder, language="en")
    assert (alone.steps(), alone.steps("held-out")) == ([], [0])
    assert "held-out, before" in shown(alone)
    assert write(alone, tmp_path / "out")[1].is_file()
    based = behaviours(run, base=folder, language="en")
    assert based.steps("held-out") == [0]
    assert based.series("length", "all", "held-out") == alone.series("length", "all", "held-out")


def test_what_cannot_be_read(run: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="neither a run"):
        behaviours(tmp_path)
    with pytest.raises(RunError, match="neither a run"):
        behaviours(run, base=tmp_path)
    with pytest.raises(RewardError, match="unknown target 'xx'"):
        behaviours(run, language="xx")


def test_blocks_and_their_means() -> None:
    assert blocks([1, 2, 3, 4, 5, 6, 7], 3) == [[1, 2], [3, 4], [5, 6, 7]]
    assert blocks([3], 5) == [[3]]
    assert blocks([]) == []
    assert mean({1: (0.5, 10), 2: (0.1, 90)}, [1, 2, 3]) == pytest.approx(0.14)
    assert mean({}, [1]) is None
