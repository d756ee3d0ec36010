from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from sharpen.errors import MissingPackageError, ProblemError
from sharpen.problems import FileSource, HubSource, Source, fingerprint, load_problems
from sharpen.records import Problem

ROWS: list[dict[str, Any]] = [
    {"question": "What is 7 * 8?", "answer": 56, "level": 1},
    {"question": "Half of 5?", "answer": 2.5, "level": 2},
    {"question": "Six?", "answer": 6.0, "level": 3},
]


def write(path: Path, rows: list[Any]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def refused(source: FileSource | HubSource, *, base: Path | None = None) -> str:
    with pytest.raises(ProblemError) as caught:
        load_problems(source, base=base)
    return str(caught.value)


def test_every_format_gives_the_same_problems(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    write(tmp_path / "a.jsonl", ROWS)
    (tmp_path / "a.json").write_text(json.dumps(ROWS), encoding="utf-8")
    (tmp_path / "a.csv").write_text("question,answer,level\nWhat is 7 * 8?,56.0,1\nHalf of 5?,2.5,2\nSix?,6.0,3\n", encoding="utf-8")
    pq.write_table(pa.Table.from_pylist([{**row, "answer": float(row["answer"])} for row in ROWS]), tmp_path / "a.parquet")
    for suffix in ("jsonl", "json", "csv", "parquet"):
        problems = load_problems(FileSource(path=str(tmp_path / f"a.{suffix}")))
        assert [(p.prompt, p.answer) for p in problems] == [("What is 7 * 8?", "56"), ("Half of 5?", "2.5"), ("Six?", "6")], suffix
        assert [p.meta["level"] for p in problems] == (["1", "2", "3"] if suffix == "csv" else [1, 2, 3])
        assert problems[0].id == f"{tmp_path.name}/a/0"


def test_ids_are_the_last_parts_of_the_path_or_a_field(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gsm8k").mkdir()
    write(tmp_path / "gsm8k" / "train.jsonl", [{"question": "?", "answer": "1", "n": 17}, {"question": "?", "answer": "2", "n": 18}])
    monkeypatch.chdir(tmp_path)
    assert [p.id for p in load_problems(FileSource(path="gsm8k/train.jsonl"))] == ["gsm8k/train/0", "gsm8k/train/1"]
    assert [p.id for p in load_problems(FileSource(path="./gsm8k/train.jsonl", id_field="n"))] == ["17", "18"]


@pytest.mark.parametrize(
    ("value", "answer"),
    [
        (72, "72"),
        (72.0, "72"),
        ("72.0", "72"),
        ("72.50", "72.50"),
        (0.1, "0.1"),
        (1e-07, "0.0000001"),
        (1e22, "10000000000000000000000"),
        (12345678901234567890, "12345678901234567890"),
        (-3, "-3"),
        (r" \frac{1}{2} ", r"\frac{1}{2}"),
    ],
)
def test_an_answer_is_exact_and_clean(tmp_path: Path, value: Any, answer: str) -> None:
    path = write(tmp_path / "a.jsonl", [{"question": "?", "answer": value}])
    assert load_problems(FileSource(path=path))[0].answer == answer


@pytest.mark.parametrize(
    ("way", "field", "answer"),
    [
        ("none", "6 * 7 = 42\n#### 42", "6 * 7 = 42\n#### 42"),
        ("hashes", "6 * 7 = 42\n#### 42", "42"),
        ("hashes", "#### 1,234", "1234"),
        ("boxed", r"so \boxed{41}, no \boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        ("auto", "6 * 7 = 42\n#### 42", "42"),
        ("auto", r"so \boxed{42}", "42"),
        ("auto", "42", "42"),
    ],
)
def test_the_answer_is_extracted_and_its_solution_kept(tmp_path: Path, way: Any, field: str, answer: str) -> None:
    path = write(tmp_path / "a.jsonl", [{"question": "?", "answer": field}])
    (problem,) = load_problems(FileSource(path=path, answer_extraction=way))
    assert problem.answer == answer
    assert problem.meta == ({} if field == answer else {"solution": field})


def test_choices_become_lines_and_an_index_a_letter(tmp_path: Path) -> None:
    rows = [{"q": "Capital of France?", "options": ["Rome", "Paris"], "key": 1}, {"q": "Two?", "options": ["2", "3"], "key": "A"}]
    path = write(tmp_path / "a.jsonl", rows)
    source = FileSource(path=path, prompt_field="q", answer_field="key", choices_field="options", kind="choice")
    first, second = load_problems(source)
    options = {"grading": {"choices": ["Rome", "Paris"]}}  # so that an option may be chosen by its text
    assert first == Problem(id=first.id, prompt="Capital of France?\nA. Rome\nB. Paris", answer="B", kind="choice", meta=options)
    assert (second.prompt, second.answer) == ("Two?\nA. 2\nB. 3", "A")


def test_limit_blank_lines_and_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("\ufeff" + '{"question": "a", "answer": 1}\n\n{"question": "b", "answer": 2}\nnot JSON\n', encoding="utf-8")
    assert [p.prompt for p in load_problems(FileSource(path=str(path), limit=2))] == ["a", "b"]


@pytest.mark.parametrize(
    ("rows", "fields", "told"),
    [
        ([ROWS[0], {"prompt": "b", "answer": 2}], {}, ["a.jsonl:2: there is no field 'question'; the row has 'prompt', 'answer'"]),
        ([{"questions": "a", "answer": 1}], {}, ["Did you mean 'questions'?", "Set prompt_field"]),
        ([{"question": "a"}], {}, ["a.jsonl:1: there is no field 'answer'", "Set answer_field"]),
        ([{"question": " ", "answer": 1}], {}, ["a.jsonl:1: field 'question' is empty, expected a question as text"]),
        ([{"question": ["a"], "answer": 1}], {}, ["field 'question' is ['a'] (list)"]),
        ([{"question": "a", "answer": ""}], {}, ["field 'answer' is empty, expected the answer as text or a number"]),
        ([{"question": "a", "answer": None}], {}, ["field 'answer' is missing"]),
        ([{"question": "a", "answer": True}], {}, ["field 'answer' is True (bool)"]),
        ([{"question": "a", "answer": float("nan")}], {}, ["field 'answer' is nan (float)"]),
        ([{"question": "a", "answer": "42"}], {"answer_extraction": "hashes"}, ["a.jsonl:1: field 'answer' has no `#### answer`: '42'"]),
        ([{"question": "a", "answer": "42"}], {"answer_extraction": "boxed"}, [r"has no `\boxed{answer}`: '42'"]),
        ([{"question": "a", "answer": "####"}], {"answer_extraction": "auto"}, ["has no `#### answer`"]),
        ([{"question": "a", "answer": 1, "n": 7}] * 2, {"id_field": "n"}, ["a.jsonl:2: the id '7' is already that of", "a.jsonl:1."]),
        ([{"question": "a", "answer": "A"}], {"choices_field": "choices"}, ["no field 'choices'", "Set choices_field"]),
        ([{"question": "a", "answer": "A", "c": "xy"}], {"choices_field": "c"}, ["the choices are 'xy', expected a list of 2 to 26"]),
        ([["a"]], {}, ["a.jsonl:1: expected a JSON object, got list"]),
        ([], {}, ["a.jsonl: there are no problems in it"]),
    ],
)  # fmt: skip
def test_a_row_that_makes_no_problem_is_named(tmp_path: Path, rows: list[Any], fields: dict[str, Any], told: list[str]) -> None:
    message = refused(FileSource(path=write(tmp_path / "a.jsonl", rows), **fields))
    for part in told:
        assert part in message
    assert "\n  → " in message


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.jsonl", b'{"question": "a"}\n{"question": "b" "answer": 2}\n', "a.jsonl:1: there is no field 'answer'"),
        ("a.jsonl", b'{"question": "b" "answer": 2}\n', "a.jsonl:1: not valid JSON: Expecting ',' delimiter at column 18"),
        ("a.json", b'[{"question": "a",\n "answer" 1}]', "a.json:2: not valid JSON: Expecting ':' delimiter at column 11"),
        ("a.json", b'{"question": "a"}', "a.json: expected a list of objects, got dict"),
        ("a.json", b'[{"question": "a"}]', "a.json, row 0: there is no field 'answer'"),
        ("a.csv", b"question,answer\na,1\nb,2,3\n", "a.csv:3: expected 2 columns, as in the header, got 3"),
        ("a.csv", b"question,answer\na\n", "a.csv:2: expected 2 columns, as in the header, got 1"),
        ("a.csv", b'question,answer\n"two\nlines",1\n"a" b,1\n', "a.csv:4: not valid CSV"),
        ("a.csv", b'question,answer\na,1\n"no end,1\nb,2\n', "a.csv:3: not valid CSV: unexpected end of data"),
        ("a.csv", b"", "a.csv: there are no problems in it"),
        ("a.jsonl", b'{"question": "\xff", "answer": 1}\n', "a.jsonl: cannot be read"),
        ("a.parquet", b"nothing of the kind", "a.parquet: not a readable Parquet file"),
        ("a.jsnl", b"", "a.jsnl: unknown format '.jsnl'. Did you mean '.jsonl'?"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, content: bytes, told: str) -> None:
    (tmp_path / name).write_bytes(content)
    assert told in refused(FileSource(path=str(tmp_path / name)))


def test_a_file_is_looked_for_in_three_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, recipe, data = (tmp_path / name for name in ("here", "recipe", "data"))
    for number, folder in enumerate((here, recipe, data)):
        folder.mkdir()
        write(folder / "a.jsonl", [{"question": "?", "answer": number}])
    monkeypatch.chdir(here)
    monkeypatch.setenv("SHARPEN_DATA", str(data))
    found = []
    for folder in (here, recipe, data):
        found.append(load_problems(FileSource(path="a.jsonl"), base=recipe)[0].answer)
        (folder / "a.jsonl").rename(folder / "b.jsonl")
    assert found == ["0", "1", "2"]
    message = refused(FileSource(path="a.jsonl"), base=recipe)
    assert message.startswith(f"problem file 'a.jsonl': no such file; looked for {here}/a.jsonl, {recipe}/a.jsonl, {data}/a.jsonl.")
    assert "Did you mean 'b.jsonl'?" in message
    monkeypatch.delenv("SHARPEN_DATA")
    assert "SHARPEN_DATA is not set" in refused(FileSource(path="a.jsonl"))


def test_a_source_is_told_by_its_key_and_refuses_unknown_ones() -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(Source)
    assert adapter.validate_python({"source": "file", "path": "a.jsonl"}) == FileSource(path="a.jsonl")
    assert adapter.validate_python({"source": "hub", "name": "openai/gsm8k", "subset": "main"}).split == "train"
    assert adapter.validate_python({"source": "arithmetic"}).levels == [1]
    for wrong in (
        {"source": "file", "path": "a", "prompt": "q"},
        {"source": "files"},
        {"path": "a"},
        {"source": "file", "path": "a", "limit": 0},
    ):
        with pytest.raises(ValidationError):
            adapter.validate_python(wrong)


def test_fingerprint_sees_ids_prompts_answers_and_their_order() -> None:
    # sha256sum of the two lines ["a", "p", "1"] and ["b", "q", "2"]
    a, b = Problem(id="a", prompt="p", answer="1"), Problem(id="b", prompt="q", answer="2")
    assert fingerprint([a, b]) == "f72467a28729e1b28245736f2885a09a1092f770f84f69fd72f4777cd9aab2e8"
    others = [[b, a], [a], [a, Problem(id="b", prompt="q", answer="3")], [a, Problem(id="b", prompt="q2", answer="")], []]
    assert len({fingerprint([a, b]), *map(fingerprint, others)}) == 6
    assert fingerprint([a]) == fingerprint([Problem(id="a", prompt="p", answer="1", meta={"level": 3})])


def test_the_hub_reads_a_local_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "set").mkdir()
    write(tmp_path / "set" / "train.jsonl", ROWS[:1] * 2)
    problems = load_problems(HubSource(name=str(tmp_path / "set"), limit=1))
    assert [(p.id, p.prompt, p.answer) for p in problems] == [(f"{str(tmp_path / 'set').strip('/')}/train/0", "What is 7 * 8?", "56")]
    assert "test" in refused(HubSource(name=str(tmp_path / "set"), split="test"))
    assert "row 0: there is no field 'solution'" in refused(HubSource(name=str(tmp_path / "set"), answer_field="solution"))


def test_the_hub_without_a_network_says_what_to_do() -> None:
    pytest.importorskip("datasets")
    message = refused(HubSource(name="sharpen-tests/no-such-set", subset="main"))
    assert message.startswith("data set sharpen-tests/no-such-set main train: cannot be loaded: ")
    assert 'source = "file"' in message


def test_the_hub_needs_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingPackageError, match=r"needs the package `datasets`.*\n.*pip install 'sharpen\[hub\]'"):
        load_problems(HubSource(name="openai/gsm8k"))


def test_gsm8k_and_math500(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARPEN_DATA", str(data_dir))
    train = load_problems(FileSource(path="gsm8k/train.jsonl", answer_extraction="hashes"))
    assert (len(train), train[0].id, train[0].answer) == (7473, "gsm8k/train/0", "72")
    assert train[0].meta["solution"].endswith("#### 72")
    math500 = load_problems(FileSource(path="math500.jsonl", id_field="id"))
    assert (len(math500), math500[0].answer, math500[0].meta["level"]) == (500, r"\left( 3, \frac{\pi}{2} \right)", 2)
