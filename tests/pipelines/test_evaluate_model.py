"""Evaluating a model: killed and resumed, twice, with other settings; and comparing what came out."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sharpen import cli
from sharpen.errors import RecipeError, RunError, SharpenError
from sharpen.evaluation.changes import Changes
from sharpen.pipelines.compare import compare_evaluations, powers
from sharpen.pipelines.evaluate import evaluate_model, source_from_text
from sharpen.tracking import completions
from sharpen.tracking.observer import Silent
from tiny import build_tiny

SKIPPED = ("timings.jsonl", ".lock")  # the lock file is empty, and stays


class Watching(Silent):
    def __init__(self) -> None:
        self.done, self.notices = 0, []

    def advance(self, count: int) -> None:
        self.done += count

    def notice(self, text: str) -> None:
        self.notices.append(text)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evaluate")
    build_tiny(folder / "model")
    build_tiny(folder / "other", seed=1)
    return folder


def command(output: str, moment: str) -> list[str]:
    return [sys.executable, str(Path(__file__).with_name("evaluate_and_die.py")), "model", output, moment]


def run(place: Path, output: str, moment: str) -> int:
    done = subprocess.run(command(output, moment), capture_output=True, text=True, timeout=300, check=False, cwd=place)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


def files(folder: Path) -> dict[str, bytes]:
    found = [path for path in folder.rglob("*") if path.is_file() and path.name not in SKIPPED]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


@pytest.fixture(scope="module")
def whole(place: Path) -> Path:
    assert run(place, "whole", "never") == 0
    return place / "whole"


def evaluate(place: Path, model: str, output: str | None, **changed):
    settings = {"samples": 8, "ks": [1, 2, 4, 8], "max_new_tokens": 12, "temperature": 0.7, "seed": 5, "max_rows": 2}
    return evaluate_model(
        str(place / model), source_from_text("arithmetic:1,2:6"), output=place / output if output else None, **(settings | changed)
    )


def test_killed_at_any_moment_and_resumed_gives_the_same_files(place: Path, whole: Path) -> None:
    for moment, parts in [("part:1", 1), ("written:2", 2), ("end", 3)]:
        assert run(place, "killed", moment) == -signal.SIGKILL
        assert len(list((place / "killed" / "parts").glob("part-*.parquet"))) == parts
        assert not (place / "killed" / "evaluation.json").exists()
    assert run(place, "killed", "never") == 0
    (place / "killed" / "parts").mkdir(exist_ok=True)  # as if killed after the figures were written
    assert run(place, "killed", "never") == 0
    assert set(files(whole)) == {"evaluation.json", "completions.parquet"}
    assert files(place / "killed") == files(whole)


def test_two_processes_do_not_evaluate_into_one_folder(place: Path, whole: Path) -> None:
    first = subprocess.Popen(command("shared", "wait:1"), stdout=subprocess.PIPE, text=True, cwd=place)
    try:
        assert first.stdout is not None
        assert first.stdout.readline() == "waiting\n"
        before = files(place / "shared")
        second = subprocess.run(command("shared", "never"), capture_output=True, text=True, timeout=300, check=False, cwd=place)
        assert second.returncode == 1
        assert f"output shared: another process ({first.pid} on " in second.stderr
        assert "evaluates into it.\n  → Wait for it, or choose another folder with --output." in second.stderr
        assert files(place / "shared") == before
    finally:
        first.kill()  # SIGKILL: it cannot tidy up
        first.communicate()
    assert run(place, "shared", "never") == 0
    assert files(place / "shared") == files(whole)


@pytest.mark.parametrize("name", ["completions", "evaluation"])
def test_a_full_disk_is_told_and_the_same_call_goes_on(place: Path, whole: Path, name: str) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full, the device that is always full")
    output = place / f"full-{name}"
    output.mkdir()
    (output / f"{name}.writing").symlink_to("/dev/full")
    with pytest.raises(
        RunError, match=rf"{name}\.\w+: .* cannot be written: No space left on device\. All completions are kept in .*parts"
    ):
        evaluate(place, "model", output.name)
    assert not (output / "evaluation.json").exists()
    watching = Watching()
    evaluate(place, "model", output.name, observer=watching)
    assert watching.notices == ["48 of 48 completions had been sampled before, and are taken over"]
    assert (output / "completions.parquet").read_bytes() == (whole / "completions.parquet").read_bytes()


def test_what_is_kept(whole: Path) -> None:
    kept = json.loads((whole / "evaluation.json").read_text())
    settings = kept["settings"]
    assert (settings["samples"], settings["seed"], settings["stream"]) == (8, 5, "evaluation")
    assert (settings["temperature"], settings["max_new_tokens"], settings["model"]) == (0.7, 12, "model")
    assert len(settings["weights"]) == len(settings["fingerprint"]) == 64
    assert list(kept["summary"]["pass_at_k"]) == ["1", "2", "4", "8"]
    assert set(kept["breakdown"]["level"]) == {"1", "2"}
    assert len(kept["results"]) == 6
    assert all(len(row["lengths"]) == 8 for row in kept["results"])
    assert len(completions.read(whole / "completions.parquet")) == 48
    assert "seconds" in json.loads((whole / "timings.jsonl").read_text())


def test_a_model_evaluated_twice_gives_the_same_file(place: Path, whole: Path) -> None:
    assert run(place, "twice", "never") == 0
    assert files(place / "twice") == files(whole)


def test_a_finished_evaluation_is_shown_again_and_others_are_left_as_they_are(place: Path) -> None:
    first = evaluate(place, "model", "shown")
    before, watching = files(place / "shown"), Watching()
    again = evaluate(place, "model", "shown", observer=watching)
    assert again.record == first.record
    assert watching.done == 0
    assert any("holds this evaluation already" in text for text in watching.notices)
    assert files(place / "shown") == before
    # other K are figures of the same samples
    fewer = evaluate(place, "model", "shown", ks=[1, 8])
    assert list(fewer.summary.pass_at_k) == [1, 8]
    assert fewer.summary.pass_at_k[8] == first.summary.pass_at_k[8]
    with pytest.raises(RunError, match=r"holds an evaluation with other settings.*: temperature \(0\.7 there, 1\.0 here\)\."):
        evaluate(place, "model", "shown", temperature=1.0)
    with pytest.raises(RunError, match=r"weights \("):
        evaluate(place, "other", "shown")


def test_without_an_output_the_folder_is_named_by_what_is_evaluated(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    first, other = evaluate(place, "model", None), evaluate(place, "other", None)
    assert first.folder.parent == other.folder.parent == Path("evaluations")
    assert first.folder.name.startswith(f"{place.name}-")  # of .../model the folder above is named
    assert first.folder != other.folder
    assert evaluate(place, "model", None).folder == first.folder
    assert evaluate(place, "model", None, seed=6).folder != first.folder


def test_comparing_two_evaluations(place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    evaluate(place, "model", "one")
    evaluate(place, "other", "two")
    found = compare_evaluations(place / "one", place / "two" / "evaluation.json")
    assert list(found.changes.comparison.change.pass_at_k) == [1, 2, 4, 8]
    assert found.changes.verdict is not None
    assert found.changes.verdict.word == "no clear change"  # random models solve nothing
    assert set(found.changes.breakdown["level"]) == {"1", "2"}
    assert found.changes.differences == ()

    monkeypatch.setattr("sys.argv", ["sharpen", "compare", str(place / "one"), str(place / "two"), "--output", str(place / "compared")])
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert not left.value.code
    told = " ".join(capsys.readouterr().out.split())
    for words in ("Verdict: no clear change", "extended: the interval of the change of Pass@8", "By level", "Of 6 problems", "Pass@8"):
        assert words in told
    assert sorted(p.name for p in (place / "compared").iterdir()) == ["comparison.json", "curves.csv", "curves.png"]
    kept = json.loads((place / "compared" / "comparison.json").read_text())
    assert Changes.from_dict(kept).to_dict() == found.changes.to_dict()
    assert kept["verdict"]["word"] == "no clear change"
    assert len(kept["verdict"]["rule"]) == 4
    assert len(kept["gap"]["curve"]) == 8
    assert len(kept["problems"]) == 6
    lines = (place / "compared" / "curves.csv").read_text().splitlines()
    assert lines[0] == "measure,k,model,value,low,high"
    assert len(lines) == 1 + 2 * 3 * 4
    assert (place / "compared" / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_comparisons_that_cannot_be_made(place: Path, tmp_path: Path) -> None:
    evaluate(place, "model", "one")
    with pytest.raises(RunError, match="nowhere: there is no evaluation"):
        compare_evaluations(place / "one", tmp_path / "nowhere")
    with pytest.raises(RunError, match="there is no run here that was evaluated before and after"):
        compare_evaluations(place / "one")
    with pytest.raises(RecipeError, match="from 1 to samples = 8"):
        compare_evaluations(place / "one", place / "one", ks=[16])
    with pytest.raises(SharpenError, match="margin 7"):
        compare_evaluations(place / "one", place / "one", margin=7)
    evaluate(place, "model", "fewer", limit=4)
    with pytest.raises(SharpenError, match=r"Only before 2: `.*`, `.*`; only after none"):
        compare_evaluations(place / "one", place / "fewer")
    (tmp_path / "begun" / "parts").mkdir(parents=True)
    with pytest.raises(RunError, match="was interrupted"):
        compare_evaluations(place / "one", tmp_path / "begun")
    hot = evaluate(place, "model", "hot", temperature=1.0)
    assert compare_evaluations(place / "one", hot.folder).changes.differences == ("temperature is 0.7 before and 1.0 after",)


def test_the_problems_must_be_the_same_ones(place: Path, tmp_path: Path) -> None:
    evaluate(place, "model", "one")
    shutil.copytree(place / "one", tmp_path / "changed")
    path = tmp_path / "changed" / "evaluation.json"
    kept = json.loads(path.read_text())
    name = kept["results"][1]["problem_id"]
    kept["results"][1]["digest"] = "0" * 16
    path.write_text(json.dumps(kept))
    with pytest.raises(SharpenError, match=f"1 problems have the same id .* `{name}`"):
        compare_evaluations(place / "one", tmp_path / "changed")


def test_powers_of_two_and_the_number_of_samples() -> None:
    assert powers(64) == [1, 2, 4, 8, 16, 32, 64]
    assert powers(24) == [1, 2, 4, 8, 16, 24]
    assert powers(1) == [1]
