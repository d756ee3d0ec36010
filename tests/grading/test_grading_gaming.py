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
@pytest.mark.parametrize(
    "form", [r"\neq %s", r"\text{not } %s", r"\phantom{%s}1", r"\phantom{%s}", r"\color{white}{%s}", r"\textcolor{white}{%s}"]
)
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


@pytest.mark.parametrize(
    "text",
    [
        *[
            "不选D",
            "故不选D",
            "D不对",
            "It is not (D)",
            "(D) is wrong",
            "Option D is wrong",
            "I rule out option D",
            "I cannot choose option D",
        ],
        *["The answer is definitely not (D)", "Answer: anything other than (D)", "Answer: none, (D) is wrong", "I would not pick D."],
        *["Answer: D, or C", r"\boxed{D. or C.}", r"\boxed{D)C)}", "(D) ... wait (C)", "The answer is (D), maybe (C)"],
    ],
)
def test_a_choice_that_is_denied_or_hedged_is_none(text: str) -> None:
    assert grade_choice("D", text).outcome == "wrong"


@pytest.mark.parametrize(
    "text",
    [
        "选D不选C",
        "不选C，选D",
        "I pick D",
        "I'd say D!",
        "The answer is D (not C)",
        "The answer is (D), not (C)",
        "It is not (C). It is (D).",
    ],
)
def test_a_choice_beside_a_denied_one_counts(text: str) -> None:
    assert grade_choice("D", text).outcome == "right"


NO_UNITS = {
    "5": r"5 thousands|5 hundreds|5 tenths|5 hundredths|5 halves|5 thirds|5\text{ lakh}|5\text{ crore}|5 below zero|5 degrees below zero"
    r"|5 per cent|5 percents|5 per mille|5 permille|5\text{%}|5\text{\%}|5千|5 is wrong|5 \text{ is wrong}|5\text{ not}|5 not|5 no|5 false"
    r"|5 negative|5 \text{ negative}|5\text{ at least}|5\text{x}|5不对",
    "3": "3 fifths|3 quarters",
    "2": r"2 \text{ dozens}|2 \text{ dozen eggs}|2 billionths|2 tens|2 theta|2 alpha|2 xy|2\text{ pi}|2\mathrm{pi}|2\text{ theta}"
    r"|2\text{ quarters of an hour}|2\text{ sqrt 3}|2 root three|2 add three|2 doubled",
}
UNITS = {
    "5": r"5 apples|5 men|5 red apples|5\text{ apples}|5\text{ N}|5 Hz|5 km|5\text{ square units}|5\text{ units}^2|5\text{ a day}"
    r"|5\text{ cups of flour}|5 boxes per day|5 above zero|5\text{ m/s}|5 \text{ (five)}|5人|5千米",
    "24": r"2 \text{ dozens}|2\text{ dozen}|2 dozen eggs",
    "200": "2 hundreds|2百",
    "5000": "5 thousands|5千",
    "500000": r"5\text{ lakh}",
    r"\frac{1}{2}": "1 half|5 tenths|500 permille",
    "-5": "5 below zero|5 degrees below zero",
    r"50\%": r"50\text{ per cent}|50 per cent|50\text{\%}|50\text{%}",
    "0.5": r"50\text{ per cent}",
}


@pytest.mark.parametrize(("gold", "answer"), [(gold, answer) for gold, all_ in NO_UNITS.items() for answer in all_.split("|")])
def test_a_word_that_changes_a_number_is_no_unit(gold: str, answer: str) -> None:
    assert grade_math(gold, rf"So \boxed{{{answer}}}.").outcome == "wrong"


@pytest.mark.parametrize(("gold", "answer"), [(gold, answer) for gold, all_ in UNITS.items() for answer in all_.split("|")])
def test_a_word_that_is_a_unit_or_a_scale(gold: str, answer: str) -> None:
    assert grade_math(gold, rf"So \boxed{{{answer}}}.").outcome == "right"


@pytest.mark.parametrize(
    ("gold", "text", "outcome"),
    [
        ("5", "The answer is 5 thousand.", "wrong"),
        ("5000", "The answer is 5 thousand.", "right"),
        ("24", "He has 2 dozen eggs.", "right"),
        ("5", "It is 5 per cent.", "wrong"),
        ("0.05", "It is 5 per cent.", "right"),
    ],
)
def test_a_scale_in_a_sentence(gold: str, text: str, outcome: str) -> None:
    assert grade_math(gold, text).outcome == outcome


DENIED = """\
The answer is probably not 5.
The answer is definitely not 5.
The answer is anything but 5.
The answer cannot be 5.
<answer>not 5</answer>
<answer>anything but 5</answer>
#### not 5
It is not 5
It isn't $5$.
I have no idea, 5 is wrong
答案是不是5
答案绝不是5
答案不可能是5
The answer is less than 5.
The answer is more than 5
The answer is at least 5
The answer is at most $5$
The answer is 5; or 6
The answer is 5. Or 6.
The answer is 5 but could be 6
The answer is 5, maybe 6
It is 6. Or 5.
<answer>at least 5</answer>
The answer is $5$ is wrong
The answer is probably not $5$
"""
SAID = """\
The answer is 5.
The answer is not 4 but 5.
The answer is probably not 4 but 5.
It is not 4, it is 5.
The number of students who do not play is 5.
She does not eat 3 of 8, so 5 are left.
There are 5 apples that are not red.
The answer is 5, which is more than 4.
The answer is 5; it cannot be 6.
The answer is 5 (not 6).
The answer is 5. Or, in words, five.
The answer is 5 or 5.0
不及格的有5人
答案是5，不是6
不是4，而是5
分别是5
So 5 students do not play.
It isn't hard: 5
"""


@pytest.mark.parametrize("text", DENIED.splitlines())
def test_a_value_that_is_denied_bounded_or_hedged_is_no_answer(text: str) -> None:
    assert grade_math("5", text).outcome == "wrong"


@pytest.mark.parametrize("text", SAID.splitlines())
def test_a_denial_of_something_else_leaves_the_answer(text: str) -> None:
    assert grade_math("5", text).outcome == "right"
