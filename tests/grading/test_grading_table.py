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
        {"truth": "7", "said": "8", "ok": ""},
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
        ({"gold": "5", "prediction": "5", "kind": ["math"]}, r"a.jsonl:2: column 'kind' is \['math'\] \(list\), expected text"),
        ({"gold": "5", "prediction": "5", "kind": {"a": 1}}, r"a.jsonl:2: column 'kind' is .* \(dict\), expected text"),
        (
            {"gold": "5", "prediction": "5", "kind": ""},
            r"(?s)a.jsonl:2: column 'kind' is empty.*Give math, choice, .* or --kind for all rows",
        ),
        ({"gold": float("nan"), "prediction": "5"}, r"a.jsonl:2: column 'gold' is nan \(float\), expected text or a number"),
        ({"gold": "5", "prediction": float("inf")}, r"a.jsonl:2: column 'prediction' is inf \(float\)"),
        ({"gold": "5", "prediction": "\ud800"}, r"a.jsonl:2: field 'prediction': expected text, got \\ud800, which is half a character"),
        (
            {"gold": "5", "answer": "6", "prediction": "5"},
            r"(?s)a.jsonl:2: there are columns 'gold' and 'answer'.*--gold gold or --gold answer",
        ),
        (
            {"gold": "5", "completion": "6", "prediction": "5"},
            r"(?s)a.jsonl:2: there are columns 'prediction' and 'completion'.*--prediction prediction or --prediction completion",
        ),
        ({"gold": "5", "prediction": "5", "grading": "paper"}, "a.jsonl:2: column 'grading': expected a table of parameters, got 'paper'"),
        (
            {"gold": "5", "prediction": "5", "grading": {"moed": "paper"}},
            "a.jsonl:2: column 'grading': the kind 'math' has no parameter 'moed'. Did you mean 'mode'",
        ),
        (
            {"gold": "5", "prediction": "5", "kind": "numeric", "grading": {"absolute": "much"}},
            "a.jsonl:2: column 'grading': absolute: expected a number, 0 or more, got 'much'",
        ),
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
    ("name", "content", "message"),
    [
        (
            "a.jsonl",
            '{"gold": "5", "prediction": %s}' % ("9" * 5000),
            r"a.jsonl:1: field 'prediction': .* got one of 5000 digits; write it as text",
        ),
        (
            "a.jsonl",
            '{"gold": "5", "prediction": %s}' % ("[" * 100_000),
            r"a.jsonl:1: .* field 'prediction': lists and objects more than 100 deep",
        ),
        ("a.jsonl", '{"gold": "5", "gold": "6", "prediction": "5"}', r"a.jsonl:1: the key 'gold' comes twice"),
        ("a.csv", "gold,prediction,prediction\n5,5,6\n", r"a.csv:1: there are 2 columns 'prediction'"),
    ],
)
def test_what_would_be_read_in_one_of_two_ways_or_not_at_all(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ProblemError, match=message):
        grade_file(tmp_path / name, output=tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize("count", [4, 4000])  # rows: verdicts that fit into a buffer, and verdicts that do not
def test_a_full_disk_is_told_and_keeps_the_verdicts_of_before(tmp_path: Path, count: int) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full, the device that is always full")
    answers, output = write(tmp_path / "a.jsonl", ROWS[:1] * count), tmp_path / "verdicts.jsonl"
    output.write_text("of before")
    (tmp_path / "verdicts.jsonl.writing").symlink_to("/dev/full")
    with pytest.raises(RunError, match=r"verdicts\.jsonl: verdicts cannot be written: No space left on device\. .* as they were\."):
        grade_file(answers, output=output)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "verdicts.jsonl"]
    assert output.read_text() == "of before"
    grade_file(answers, output=output)
    assert len(output.read_text().splitlines()) == count


def test_of_two_usual_columns_the_named_one_counts(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [{"gold": "5", "answer": "6", "prediction": "6", "completion": "5"}])
    assert dict(grade_file(path, gold="gold", prediction="completion").verdicts) == {"right": 1}
    assert dict(grade_file(path, gold="gold", prediction="prediction").verdicts) == {"wrong": 1}


def test_labels_as_a_data_frame_writes_them(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"gold": "5", "prediction": "5", "label": label} for label in (1, 1.0, "1.0", 0, 0.0, "0.0")]
    found = grade_file(write(tmp_path / "a.jsonl", rows))
    assert dict(found.confusion) == {("right", "right"): 3, ("wrong", "right"): 3}
    with pytest.raises(ProblemError, match=r"a.jsonl:1: column 'label' is 0.5, expected right"):
        grade_file(write(tmp_path / "a.jsonl", [{**rows[0], "label": 0.5}]))


def test_long_numbers_and_names_of_files_in_no_encoding(tmp_path: Path) -> None:
    path = write(tmp_path / "\udcff.jsonl", [{"gold": 10**4000, "prediction": 10**4000, "kind": "exact"}])
    assert dict(grade_file(path, output=tmp_path / "out.jsonl").verdicts) == {"right": 1}
    assert json.loads((tmp_path / "out.jsonl").read_text())["row"] == f"{path}:1"


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


def test_the_mode_goes_with_the_row_and_so_do_its_parameters() -> None:
    rows = [("a:1", {"gold": r"\sqrt{2}", "prediction": "1.4142"}), ("a:2", {"gold": "5", "prediction": "5.2", "kind": "numeric"})]
    rows.append(("a:3", {"gold": "5", "prediction": "5.2", "kind": "numeric", "grading": {"absolute": 0.5}}))
    found: list[Verdict] = []
    grade_items(items(rows, Columns(mode="paper")), write=lambda item, verdict: found.append(verdict))
    assert [verdict.outcome for verdict in found] == ["right", "wrong", "right"]
    rows.append(("a:4", {"gold": r"\sqrt{2}", "prediction": "1.4142", "grading": {"mode": "paper"}}))
    grade_items(items([rows[0], *rows[3:]], Columns()), write=lambda item, verdict: found.append(verdict))
    assert [verdict.outcome for verdict in found[3:]] == ["wrong", "right"]  # the row's own mode counts


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


def test_an_output_that_would_destroy_something_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", [{"gold": "5", "prediction": "5"}])
    with pytest.raises(RunError, match="it is the file that is graded"):
        grade_file(file, output=tmp_path / "." / "a.jsonl")
    with pytest.raises(RunError, match=r"expected a \.jsonl file"):
        grade_file(file, output=tmp_path / "b.csv")
    assert json.loads(file.read_text()) == {"gold": "5", "prediction": "5"}
