"""Texts, numbers within a tolerance, regular expressions, options by their text, and the parameters that a problem gives."""

from __future__ import annotations

import time
from typing import Any

import pytest

from sharpen.errors import ProblemError
from sharpen.grading import GradingPool, Verdict, grade, grade_choice, grade_exact, grade_numeric, grade_regex, quick, registry
from sharpen.grading.parameters import parameter_fault
from sharpen.problems.files import FileSource
from sharpen.problems.rows import Fields, to_problems
from sharpen.records import Problem


@pytest.mark.parametrize(
    ("gold", "text", "options", "outcome"),
    [
        ("ABBA", "The answer is ABBA.", {}, "right"),
        ("ABBA", r"\boxed{ABBA}", {}, "right"),
        ("ABBA", "<think>ABAB</think><answer> ABBA </answer>", {}, "right"),
        ("ABBA", r"\boxed{abba}", {}, "wrong"),
        ("ABBA", r"\boxed{abba}", {"ignore_case": True}, "right"),
        ("0.5", r"\boxed{\frac12}", {}, "wrong"),
        ("a  b", r"\boxed{a b}", {}, "right"),
        ("ABBA", "<think>ABBA", {}, "wrong"),
        ("ABBA", "", {}, "wrong"),
        ("", "ABBA", {}, "unscorable"),
        (" . ", "ABBA", {}, "unscorable"),
    ],
)
def test_exact(gold: str, text: str, options: dict[str, Any], outcome: str) -> None:
    assert grade_exact(gold, text, **options).outcome == outcome


@pytest.mark.parametrize(
    ("gold", "text", "options", "outcome"),
    [
        ("9.81", r"\boxed{9.81}", {}, "right"),
        ("9.81", r"\boxed{9.8}", {}, "wrong"),
        ("9.81", r"\boxed{9.8}", {"absolute": 0.01}, "right"),
        ("9.81", r"\boxed{9.8}", {"absolute": 0.009}, "wrong"),
        ("200", r"\boxed{199}", {"relative": 0.005}, "right"),
        ("200", r"\boxed{198.9}", {"relative": 0.005}, "wrong"),
        ("-200", r"\boxed{-199}", {"relative": 0.005}, "right"),
        ("0", r"\boxed{0.1}", {"relative": 0.5}, "wrong"),  # a share of nothing is nothing
        ("200", r"\boxed{199}", {"relative": 0.005, "absolute": 0.1}, "right"),  # the larger counts
        (r"\sqrt{2}", r"\boxed{1.41421}", {"absolute": 1e-5}, "right"),
        (r"\sqrt{2}", r"\boxed{1.4142}", {"absolute": 1e-5}, "wrong"),
        (r"\frac{1}{3}", "The answer is 0.33.", {"absolute": 0.01}, "right"),
        ("5", r"\boxed{x = 5}", {}, "right"),
        ("5", r"\boxed{x}", {}, "wrong"),
        ("5", r"\boxed{5 \text{ or } 6}", {"absolute": 10}, "wrong"),
        ("5", r"\boxed{\infty}", {"absolute": 10}, "wrong"),
        ("5", r"\boxed{9^{9^{9^9}}}", {"absolute": 10}, "wrong"),
        ("5", r"\boxed{1+i}", {"absolute": 10}, "wrong"),
        *(("5", rf"\boxed{{{huge}}}", {}, "wrong") for huge in ("1e999", "10^{999}", "-1e400", "9" * 400, "2^{2000}", "1000!", "e^{2000}")),
        ("5", r"\boxed{e^{10^9}}", {}, "wrong"),
        ("1e999", r"\boxed{5}", {}, "wrong"),
        ("5", r"\boxed{\color{white}{5}}", {}, "wrong"),
        ("5", r"\boxed{5\text{ m}}", {}, "right"),
        ("5", r"\boxed{2+3}", {}, "right"),
        ("5 m", r"\boxed{5}", {}, "unscorable"),
        ("1000!", r"\boxed{5}", {}, "wrong"),
        ("1000!", r"\boxed{1000!}", {}, "right"),
        ("5", "", {}, "wrong"),
        ("five or six", r"\boxed{5}", {}, "unscorable"),
    ],
)
def test_numeric(gold: str, text: str, options: dict[str, Any], outcome: str) -> None:
    assert grade_numeric(gold, text, **options).outcome == outcome


def test_numeric_says_by_how_much_an_answer_is_off() -> None:
    assert grade_numeric("9.81", r"\boxed{9.5}", absolute=0.1).reason == "the last box: off by 0.31, more than 0.1"


@pytest.mark.parametrize(
    ("gold", "text", "options", "outcome"),
    [
        (r"[a-c]+\d", r"\boxed{abc1}", {}, "right"),
        (r"[a-c]+\d", r"\boxed{abc12}", {}, "wrong"),  # the pattern must match all of the answer
        (r"[a-c]+\d", r"\boxed{ABC1}", {"ignore_case": True}, "right"),
        (r"\bcat\b", "It is a cat, of course.", {"whole_text": True}, "right"),
        (r"\bcat\b", "It is a cat, of course.", {}, "wrong"),
        (r"\bcat\b", "<think>cat</think> dog", {"whole_text": True}, "wrong"),
        ("a", "", {}, "wrong"),
        ("", "a", {}, "unscorable"),
        ("(", "a", {}, "unscorable"),
        ("(" * 3000 + ")" * 3000, "a", {}, "unscorable"),
    ],
)
def test_regex(gold: str, text: str, options: dict[str, Any], outcome: str) -> None:
    assert grade_regex(gold, text, **options).outcome == outcome


def test_a_pattern_that_never_ends_is_wrong_in_time() -> None:
    start = time.perf_counter()
    assert grade_regex("(a|aa|a?)+b", "a" * 5000, whole_text=True).outcome == "wrong"
    assert time.perf_counter() - start < 10.0


def test_matching_and_computing_are_not_done_at_once_in_the_trainer() -> None:
    assert quick(problem("regex", "a+"), r"\boxed{aa}") is None
    assert quick(problem("numeric", "2"), r"\boxed{\sqrt{4}}") is None
    assert quick(problem("numeric", "2"), r"\boxed{2.0}") is not None
    assert quick(problem("exact", "a"), r"\boxed{a}") is not None


def test_what_fails_in_the_trainer_is_left_to_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(asked: Problem, text: str) -> Verdict:
        raise OverflowError

    monkeypatch.setitem(registry.GRADERS, "numeric", fails)
    assert quick(problem("numeric", "2"), r"\boxed{2}") is None


def test_no_pattern_is_compiled_in_the_trainer() -> None:
    assert quick(problem("regex", "a{1000000000}"), r"\boxed{a}") is None
    with GradingPool(workers=1) as pool:
        huge, good = pool.grade_all([(problem("regex", "a{1000000000}"), r"\boxed{a}"), (problem("regex", "a"), r"\boxed{a}")])
    assert (huge.outcome, good.outcome) == ("unscorable", "right")
    assert "cannot be compiled" in huge.reason


CHOICES = ["Paris", "London", r"$\frac{1}{2}$", "0.25", "Both Paris and London"]


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        (r"\boxed{B}", "B"),
        (r"\boxed{b}", "B"),
        (r"\boxed{London}", "B"),
        ("The answer is London.", "B"),
        ("The answer is: london", "B"),
        (r"\boxed{\text{London}}", "B"),
        (r"\boxed{B. London}", "B"),
        ("故选B", "B"),
        ("所以选择 B。", "B"),
        ("So option B is right", "B"),
        (r"\boxed{0.5}", "C"),
        (r"\boxed{\frac14}", "D"),
        (r"\boxed{Both Paris and London}", "E"),
        (r"\boxed{Berlin}", None),
        (r"\boxed{Paris or London}", None),
        ("not London", None),
        (r"\boxed{A} or \boxed{B}", None),
        ("", None),
    ],
)
def test_an_option_by_its_letter_or_its_text(text: str, letter: str | None) -> None:
    assert grade_choice("B", text, choices=CHOICES).extracted == letter
    assert grade_choice("B", text, choices=CHOICES).outcome == ("right" if letter == "B" else "wrong")


def test_an_option_as_the_ground_truth_by_its_text() -> None:
    assert grade_choice("London", r"\boxed{B}", choices=CHOICES).outcome == "right"
    assert grade_choice("Rome", r"\boxed{B}", choices=CHOICES).outcome == "unscorable"
    assert grade_choice("F", r"\boxed{F}", choices=CHOICES).outcome == "unscorable"
    # Two options of one value: a value chooses neither, a letter does.
    assert grade_choice("A", r"\boxed{0.50}", choices=["0.5", r"\frac12"]).outcome == "wrong"
    assert grade_choice("A", r"\boxed{A}", choices=["0.5", r"\frac12"]).outcome == "right"


def test_a_letter_may_be_the_text_of_another_option() -> None:
    assert grade_choice("A", r"\boxed{B}", choices=["B", "A"]).extracted == "B"


def problem(kind: str, answer: str, **grading: Any) -> Problem:
    return Problem(id="p", prompt="?", answer=answer, kind=kind, meta={"grading": grading} if grading else {})


@pytest.mark.parametrize(
    ("given", "text", "outcome"),
    [
        (problem("math", r"\frac13"), r"\boxed{0.333}", "wrong"),
        (problem("math", r"\frac13", mode="paper"), r"\boxed{0.333}", "right"),
        (problem("math", r"\frac13", mode="loose"), r"\boxed{0.333}", "unscorable"),
        (problem("numeric", "5"), r"\boxed{5.2}", "wrong"),
        (problem("numeric", "5", absolute=0.5), r"\boxed{5.2}", "right"),
        (problem("numeric", "5", absolute=-1), r"\boxed{5.2}", "unscorable"),
        (problem("numeric", "5", absolut=1), r"\boxed{5.2}", "unscorable"),
        (problem("choice", "B", choices=["Paris", "London"]), r"\boxed{London}", "right"),
        (problem("choice", "B", choices="Paris"), r"\boxed{London}", "unscorable"),
        (problem("exact", "a", ignore_case=True), r"\boxed{A}", "right"),
        (problem("regex", "a+", ignore_case=True), r"\boxed{AA}", "right"),
    ],
)
def test_parameters_come_with_the_problem(given: Problem, text: str, outcome: str) -> None:
    assert grade(given, text).outcome == outcome


def test_a_parameter_that_will_not_do_says_what_is_expected() -> None:
    assert parameter_fault("numeric", {"relativ": 1}) == (
        "the kind 'numeric' has no parameter 'relativ'. Did you mean 'relative'? It has absolute, relative"
    )
    assert parameter_fault("math", {"mode": "loose"}) == 'mode: expected "strict" or "paper", got \'loose\''
    assert parameter_fault("numeric", {"absolute": True}) == "absolute: expected a number, 0 or more, got True"
    assert parameter_fault("math", "paper") == "expected a table of parameters, got 'paper'"
    assert parameter_fault("code", {}) is None


def test_a_recipe_gives_parameters_for_all_its_rows() -> None:
    rows = [("a:1", {"question": "g?", "answer": "9.81", "unit": "m/s^2"})]
    (given,) = to_problems(rows, Fields(kind="numeric", grading={"relative": 0.01}), name="a")
    assert given.meta == {"unit": "m/s^2", "grading": {"relative": 0.01}}
    assert grade(given, r"\boxed{9.8}").outcome == "right"
    with pytest.raises(ValueError, match="grading: the kind 'math' has no parameter 'relative'"):
        FileSource(path="a.jsonl", grading={"relative": 0.01})
    with pytest.raises(ProblemError, match="no field 'options'"):
        to_problems(rows, Fields(kind="choice", choices_field="options"), name="a")
