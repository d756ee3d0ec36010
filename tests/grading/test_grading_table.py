"""Grading a file of answers."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sharpen import cli
from sharpen.errors import ProblemError, RunError
from sharpen.grading import GradingPool, Verdict
from sharpen.grading.table import Columns, grade_items, items
from sharpen.pipelines.grade_file import grade_file

ROWS = [
    {"gold": "56", "prediction": r"7 * 8 = \boxed{56}", "label": "right"},
    {"gold": "56", "prediction": "The answer is 54.", "label": "wrong"},
    {"gold": r"28\%", "prediction": "28", "label": "right"},
    {"gold": "", "prediction": "5", "label": "wrong"},
]


def write(path: Path, rows: list[dict[str, object]]) -> Path:
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    return path


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_every_format_and_a_confusion_table(tmp_path: Path, suffix: str) -> None:
    found = grade_file(write(tmp_path / f"answers{suffix}", ROWS), output=tmp_path / "out" / "verdicts.jsonl")
    assert dict(found.verdicts) == {"right": 1, "wrong": 2, "unscorable": 1}
    assert dict(found.confusion) == {("right", "right"): 1, ("wrong", "wrong"): 1, ("right", "wrong"): 1, ("wrong", "unscorable"): 1}
    assert found.agreement == 0.5
    lines = [json.loads(line) for line in (tmp_path / "out" / "verdicts.jsonl").read_text().splitlines()]
    assert [line["outcome"] for line in lines] == ["right", "wrong", "wrong", "unscorable"]
    assert lines[0]["extracted"] == "56" and lines[0]["label"] == "right" and lines[0]["row"].startswith(str(tmp_path))
    assert "empty" in lines[3]["reason"]
    assert [item.problem.answer for item, _ in found.differing] == [r"28\%", ""]
    assert list((tmp_path / "out").iterdir()) == [tmp_path / "out" / "verdicts.jsonl"]


def test_the_papers_tolerance(tmp_path: Path) -> None:
    assert grade_file(write(tmp_path / "a.jsonl", ROWS), mode="paper").agreement == 0.75


def test_columns_kinds_and_labels_of_any_name(tmp_path: Path) -> None:
    rows = [
        {"truth": "B", "said": "The answer is (B).", "ok": 1, "kind": "choice"},
        {"truth": 3, "said": None, "ok": False, "kind": None},
        {"truth": 0.5, "said": r"\frac12", "ok": "TRUE", "kind": "math"},
        {"truth": "7", "said": "8", "ok": "", "kind": ""},
    ]
    found = grade_file(write(tmp_path / "a.jsonl", rows), gold="truth", prediction="said", label="ok")
    assert dict(found.verdicts) == {"right": 2, "wrong": 2}
    assert dict(found.confusion) == {("right", "right"): 2, ("wrong", "wrong"): 1}  # the last row has no label
    assert found.agreement == 1.0
    all_choice = grade_file(write(tmp_path / "b.jsonl", [{"answer": "B", "completion": "B"}]), kind="choice")
    assert dict(all_choice.verdicts) == {"right": 1} and all_choice.agreement is None


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"gold": "5"}, r"a.jsonl:2: there is no column 'prediction' or 'completion'; the row has 'gold'"),
        ({"gold": None, "prediction": "5"}, r"a.jsonl:2: column 'gold' is missing, expected text or a number"),
        ({"gold": ["5"], "prediction": "5"}, r"a.jsonl:2: column 'gold' is \['5'\] \(list\)"),
        ({"gold": "5", "prediction": {"text": "5"}}, r"a.jsonl:2: column 'prediction' is .* \(dict\)"),
        ({"gold": "5", "prediction": "5", "label": "maybe"}, r"a.jsonl:2: column 'label' is 'maybe', expected right, true, 1"),
        ({"gold": "5", "prediction": "5", "kind": "maths"}, r"a.jsonl:2: kind 'maths': there is no such grader. Did you mean 'math'"),
    ],
)
def test_malformed_rows_are_told_with_file_and_line(tmp_path: Path, row: dict[str, object], message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        grade_file(write(tmp_path / "a.jsonl", [ROWS[0], row]), output=tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()


def test_files_that_cannot_be_graded(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(ROWS[0]) + "\n{gold: 5}\n")
    with pytest.raises(ProblemError, match=r"a.jsonl:2: not valid JSON"):
        grade_file(path)
    with pytest.raises(ProblemError, match=r"nowhere\.jsonl: no such file"):
        grade_file(tmp_path / "nowhere.jsonl")
    path.write_text("")
    with pytest.raises(ProblemError, match="there are no rows"):
        grade_file(path)
    (tmp_path / "a.txt").write_text("5 5")
    with pytest.raises(ProblemError, match=r"unknown format '\.txt'"):
        grade_file(tmp_path / "a.txt")
    with pytest.raises(RunError, match=r"--output .* cannot be written"):
        grade_file(write(path, ROWS), output=path / "below" / "a.jsonl")
    with pytest.raises(ProblemError, match="no column 'verdict'"):
        grade_file(path, label="verdict")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "maths"}, "--kind maths: there is no such grader. Did you mean 'math'"),
        ({"mode": "lenient"}, "--mode lenient"),
        ({"kind": "choice", "mode": "paper"}, "--mode paper: only mathematics has it"),
    ],
)
def test_graders_and_modes_that_there_are_not(options: dict[str, str], message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        Columns(**options)  # type: ignore[arg-type]


def test_the_mode_goes_with_the_row_and_a_parameter_that_will_not_do_is_unscorable() -> None:
    rows = [("a:1", {"gold": r"\sqrt{2}", "prediction": "1.4142"}), ("a:2", {"gold": "5", "prediction": "5.2", "kind": "numeric"})]
    rows.append(("a:3", {"gold": "5", "prediction": "5.2", "kind": "numeric", "grading": {"absolute": 0.5}}))
    rows.append(("a:4", {"gold": "5", "prediction": "5.2", "kind": "numeric", "grading": {"absolute": "much"}}))
    found: list[Verdict] = []
    grade_items(items(rows, Columns(mode="paper")), write=lambda item, verdict: found.append(verdict))
    assert [verdict.outcome for verdict in found] == ["right", "wrong", "right", "unscorable"]
    assert "absolute: expected a number, 0 or more, got 'much'" in found[3].reason
    rows.append(("a:5", {"gold": "5", "prediction": "5", "grading": "paper"}))
    rows.append(("a:6", {"gold": r"\sqrt{2}", "prediction": "1.4142", "grading": {"mode": "paper"}}))
    grade_items(items([rows[0], *rows[4:]], Columns()), write=lambda item, verdict: found.append(verdict))
    assert [verdict.outcome for verdict in found[4:]] == ["wrong", "unscorable", "right"]  # the row's own mode counts
    assert "expected a table of parameters, got 'paper'" in found[5].reason


def test_a_text_that_stops_a_grader_costs_its_own_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sharpen.grading import table

    rows = [
        {"gold": r"\sqrt{2}", "prediction": text}
        for text in (r"\boxed{\sqrt{2}}", r"\boxed{\operatorname{Re}(9^{9^{9^9}})}", r"\boxed{\sqrt{3}}")
    ]
    with GradingPool(workers=1, time_limit=0.5) as pool:
        monkeypatch.setattr(table, "shared", lambda: pool)
        grade_file(write(tmp_path / "a.jsonl", rows), output=tmp_path / "b.jsonl")
    found = [json.loads(line) for line in (tmp_path / "b.jsonl").read_text().splitlines()]
    assert [line["outcome"] for line in found] == ["right", "wrong", "wrong"]
    assert "takes longer than 0.5 s" in found[1]["reason"]


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "answers.jsonl", ROWS)

    def sharpen(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["sharpen", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            cli.main()
        told = capsys.readouterr()
        return int(left.value.code or 0), told.out, told.err

    code, out, _ = sharpen("grade", path, "--output", tmp_path / "verdicts.jsonl")
    assert code == 0
    assert "4 rows of answers.jsonl" in out and "50.00 % agree" in out and "answers.jsonl:3" in out
    assert len((tmp_path / "verdicts.jsonl").read_text().splitlines()) == 4
    code, _, err = sharpen("grade", path, "--gold", "truth")
    assert code == 2 and "answers.jsonl:1" in err and "--gold" in err and "Traceback" not in err
