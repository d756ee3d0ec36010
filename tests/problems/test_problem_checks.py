from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from sharpen.errors import ProblemError
from sharpen.grading import Verdict, grade
from sharpen.problems import FileSource, check_golds, load_problems, select_by_pass_rate
from sharpen.records import Problem


def math(id: str, answer: str) -> Problem:
    return Problem(id=id, prompt="?", answer=answer)


def test_golds_that_are_right_pass_and_each_is_asked_about_once() -> None:
    asked = []

    def grader(problem: Problem, text: str) -> Verdict:
        asked.append(text)
        return grade(problem, text)

    without_gold = Problem(id="g", prompt="?", answer="", kind="reasoning_gym")
    check_golds([math("a", "42"), math("b", r"\frac{1}{2}"), Problem(id="c", prompt="?", answer="B", kind="choice"), without_gold], grader)
    assert asked == [r"\boxed{42}", r"\boxed{\frac{1}{2}}", r"\boxed{B}"]


def test_golds_that_are_not_right_are_listed_up_to_ten() -> None:
    problems = [
        math("good", "1"),
        *(math(f"bad/{i}", r"\frac{") for i in range(13)),
        Problem(id="c", prompt="?", answer="Paris", kind="choice"),
    ]
    with pytest.raises(ProblemError) as caught:
        check_golds(problems, grade)
    lines = str(caught.value).splitlines()
    assert lines[0] == "14 of 15 ground truths are not right by their own grader:"
    assert lines[1] == r"  bad/0: answer '\\frac{': unscorable: the ground truth '\frac{' cannot be parsed"
    assert lines[10].startswith("  bad/9: ")
    assert lines[11] == "  and 4 more"
    assert "answer_extraction" in lines[12]


@pytest.mark.parametrize(("name", "way", "seconds"), [("gsm8k/test.jsonl", "hashes", 5.0), ("math500.jsonl", "none", 20.0)])
def test_the_golds_of_public_sets_are_right_and_checked_in_time(data_dir: Path, name: str, way: str, seconds: float) -> None:
    source = FileSource.model_validate({"path": str(data_dir / name), "answer_extraction": way})
    start = time.perf_counter()
    check_golds(load_problems(source), grade)
    assert time.perf_counter() - start < seconds


def test_selection_drops_what_teaches_nothing() -> None:
    problems = [math(name, "1") for name in "abcdef"]
    rates = {"a": 0.0, "b": 0.125, "c": 0.5, "d": 0.875, "e": 1.0}
    selection = select_by_pass_rate(problems, rates)
    assert [problem.id for problem in selection.kept] == ["b", "c", "d"]
    assert selection.dropped == {"never solved": 1, "always solved": 1, "without a pass rate": 1}


def test_selection_by_narrower_bounds() -> None:
    problems = [math(name, "1") for name in "abcde"]
    rates = {"a": 0.0, "b": 0.125, "c": 0.5, "d": 0.875, "e": 1.0}
    selection = select_by_pass_rate(problems, rates, 0.125, 0.875)
    assert [problem.id for problem in selection.kept] == ["c"]
    assert selection.dropped == {"never solved": 1, "too hard": 1, "too easy": 1, "always solved": 1}


def test_a_selection_that_leaves_nothing_is_an_error() -> None:
    with pytest.raises(ProblemError, match="no problem has a pass rate above 0 and below 1: 2 never solved, 1 always solved"):
        select_by_pass_rate([math(name, "1") for name in "abc"], {"a": 0.0, "b": 0.0, "c": 1.0})
    with pytest.raises(ProblemError, match="there were none"):
        select_by_pass_rate([], {})


def test_importing_loads_no_heavy_package() -> None:
    heavy = ["transformers", "sympy", "math_verify", "datasets", "pyarrow", "reasoning_gym"]
    code = f"import sys, sharpen.problems, sharpen.grading; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
