"""What pays for nothing or for hedging in a careless grader."""

from __future__ import annotations

import pytest

from sharpen.grading import grade_choice, grade_math


@pytest.mark.parametrize("gold", ["56", "-3", r"\frac{1}{2}", r"\sqrt{2}", "0", r"2\pi"])
@pytest.mark.parametrize("inside", [r"\infty", r"-\infty", r"\frac{1}{0}", "nan", r"\infty + 5"])
def test_no_number_is_infinite(gold: str, inside: str) -> None:
    assert grade_math(gold, rf"\boxed{{{inside}}}").outcome == "wrong"
    assert grade_math(gold, rf"\boxed{{{inside}}}", mode="paper").outcome == "wrong"


def test_infinity_is_itself() -> None:
    assert grade_math(r"\infty", r"\boxed{\infty}").outcome == "right"
    assert grade_math(r"\infty", r"\boxed{-\infty}").outcome == "wrong"


@pytest.mark.parametrize("gold", ["0", "0.5", r"\frac{1}{2}", r"\sqrt{2}"])
@pytest.mark.parametrize("form", [r"\neq %s", r"\text{not } %s", r"\phantom{%s}1", r"\phantom{%s}"])
def test_what_is_denied_or_invisible_is_no_value(gold: str, form: str) -> None:
    assert grade_math(gold, rf"\boxed{{{form.replace('%s', gold)}}}").outcome == "wrong"


def test_a_denial_can_be_the_answer() -> None:
    assert grade_math(r"x \neq 2", r"\boxed{x \neq 2}").outcome == "right"
    assert grade_math(r"\text{not a group}", r"\boxed{\text{not a group}}").outcome == "right"


@pytest.mark.parametrize(
    ("gold", "text", "outcome"),
    [
        (r"\frac{1}{2}", r"The answer is \frac{1}{2} (or 1).", "wrong"),
        (r"\frac{1}{2}", r"The answer is 1 (or \frac{1}{2}).", "wrong"),
        (r"\frac{1}{2}", r"\boxed{\frac{1}{2} \text{ or } 1}", "wrong"),
        (r"\frac{1}{2}", r"The answer is \frac{1}{2} (or 0.5).", "right"),  # the same number twice
        ("1, 2", r"\boxed{1 \text{ or } 2}", "right"),
        (r"1 \text{ or } 2", r"\boxed{1 \text{ or } 2}", "right"),
        ("0", "\\boxed{1 % 0\n}", "wrong"),
        ("0", r"\boxed{1%0}", "wrong"),
        (r"28\%", r"\boxed{28%}", "right"),
    ],
)
def test_alternatives_are_right_when_all_are(gold: str, text: str, outcome: str) -> None:
    assert grade_math(gold, text).outcome == outcome


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("The answer is 56. Wait, the answer is 57.", "wrong"),
        ("The answer is 57. Wait, the answer is 56.", "right"),
        ("The answer is 56. I checked that the answer is correct.", "right"),
        ("The answer is not 56.", "wrong"),
        ("The answer isn't $56$.", "wrong"),
        ("答案不是 56。", "wrong"),
        ("The answer is not 57 but 56.", "right"),
        ("The answer is 56. The answer is not 57.", "right"),
        (r"The answer is not 57. So \boxed{56}", "right"),
    ],
)
def test_the_last_answer_counts_and_a_denied_one_does_not(text: str, outcome: str) -> None:
    assert grade_math("56", text).outcome == outcome


@pytest.mark.parametrize(
    "text",
    [
        r"\boxed{A} or \boxed{D}",
        r"\boxed{A}, \boxed{D}",
        r"\boxed{A} \boxed{B} \boxed{C} \boxed{D}",
        "(A) (B) (C) (D)",
        "A\nB\nC\nD",
        "A. Yes\nB. Yes\nC. Yes\nD. Yes",
        "What is the time of one revolution?\nA. independent of M\nB. proportional to m\nC. linear in R\nD. proportional to R^(3/2)",
        "(A) independent of M (B) proportional to m (C) linear in R (D) proportional to R",
        "The answer is D. Wait, the answer is A.",
        "The answer is not D.",
        "(D) (C) (B) (A)",
        "D. Yes\nC. Yes\nB. Yes\nA. Yes",
    ],
)
def test_a_list_of_choices_chooses_none(text: str) -> None:
    assert grade_choice("D", text).outcome == "wrong"


@pytest.mark.parametrize(
    "text",
    [
        "A. too small\nB. too large\nC. too large\nD. just right\n\nThe answer is D.",
        "A is too small, B too large.\nSo it must be (D)",
        r"I first thought \boxed{A} but then \boxed{D}",
        "The answer is A. Wait, the answer is D.",
    ],
)
def test_a_choice_after_a_list_counts(text: str) -> None:
    assert grade_choice("D", text).outcome == "right"
