"""Which answers are one vote: by their spelling, and where that does not tell, as the problem's grader compares them."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sharpen.grading import Verdict, grade, shared
from sharpen.grading import votes as module
from sharpen.grading.votes import classes, spelled, votes
from sharpen.records import Problem


def here(items: Sequence[tuple[Problem, str]]) -> list[Verdict]:
    return [grade(problem, text) for problem, text in items]


def counted(*answers: str | None, kind: str = "math", **parameters: object) -> tuple[str | None, ...]:
    return votes([(Problem(id="p", prompt="", answer="1", kind=kind, meta={"grading": parameters}), answers)], here)[0]


def parted(*answers: str, kind: str = "math", **parameters: object) -> list[set[str]]:
    """The answers by vote, those of each in a set, in the order of their first."""
    found: dict[str | None, set[str]] = {}
    for answer, vote in zip(answers, counted(*answers, kind=kind, **parameters), strict=True):
        found.setdefault(vote, set()).add(answer)
    return list(found.values())


def test_one_spelling_is_one_vote() -> None:
    assert {spelled("18"), spelled("18.0"), spelled("18 apples")} == {"18"}
    assert spelled("0.5") == spelled("1/2") == "1/2"
    assert spelled("x + 1") == spelled("x+1") == "x+1"
    assert spelled(r"\dfrac{x}{2}") == spelled(r"\frac{x}{2}") == spelled(r"$\frac{ x }{2}$")
    assert spelled(r"\left(1, 2\right)") == spelled("(1,2)")
    assert spelled("New York") != spelled("NewYork")
    assert spelled("x = 1\nprint(x)", "code") == "x = 1\nprint(x)"
    assert spelled("007", "exact") != spelled("7", "exact")


EQUAL = [
    ["1/2", "0.5", r"\frac{1}{2}", r"50\%", r"\frac{2}{4}"],
    ["18", "$18", "18 dollars", "18.0", r"\$18.00"],
    ["x + 1", "1+x", r"\frac{2x+2}{2}"],
    [r"\sqrt{2}", r"2^{1/2}", r"\frac{2}{\sqrt{2}}"],
    ["5", "x=5"],
    [r"\pm 3", "3, -3", "-3,3"],
    ["[0,3)", r"0 \le x < 3"],
    ["yes", "Yes", r"\text{yes}"],
    [r"\frac{3\pi}{4}", r"135^\circ"],
    [r"2\text{ m}", r"200\text{ cm}"],
]


@pytest.mark.parametrize("answers", EQUAL)
def test_answers_that_the_grader_calls_equal_are_one_vote(answers: list[str]) -> None:
    """Each is right where any other of them is the ground truth, so they are one vote."""
    for gold in answers:
        assert [grade(Problem(id="p", prompt="", answer=gold), rf"\boxed{{{one}}}").outcome for one in answers] == ["right"] * len(answers)
    assert parted(*answers) == [set(answers)]


def test_answers_of_all_these_values_stay_apart() -> None:
    answers = [one for group in EQUAL if "5" not in group for one in group]
    assert parted(*answers) == [set(group) for group in EQUAL if "5" not in group]
    assert parted(*answers[::-1]) == [set(group) for group in EQUAL[::-1] if "5" not in group]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from([*(one for group in EQUAL for one in group), "10", "10 inches", "10 feet", None]), max_size=12), st.randoms()
)
def test_the_order_of_the_answers_changes_nothing(answers: list[str | None], random) -> None:
    found = counted(*answers)
    order = random.sample(range(len(answers)), len(answers))
    assert counted(*(answers[place] for place in order)) == tuple(found[place] for place in order)


def test_the_vote_is_the_simplest_spelling() -> None:
    assert counted("x=5", "5", None, "5.0") == ("5", "5", None, "5")
    assert counted(r"\frac{2}{4}", r"50\%") == ("1/2", "1/2")
    assert counted(r"\frac{2x+2}{2}", "1 + x") == ("1+x", "1+x")


def test_what_is_not_worked_out_or_cannot_be_seen_is_no_vote_for_the_value() -> None:
    assert parted("56", r"7 \cdot 8") == [{"56"}, {r"7 \cdot 8"}]
    assert parted("5", r"\phantom{5}") == [{"5"}, {r"\phantom{5}"}]
    assert parted("6", r"\sum_{i=1}^{3} i") == [{"6"}, {r"\sum_{i=1}^{3} i"}]


def test_a_unit_that_is_left_out_joins_and_units_that_differ_do_not() -> None:
    assert parted("10 inches", "10 feet") == [{"10 inches"}, {"10 feet"}]
    assert parted("10 inches", "10 feet", "10") == [{"10 inches", "10 feet", "10"}]
    assert parted("10 inches", "25.4 cm", "10") == [{"10 inches", "25.4 cm", "10"}]


def test_the_modes_and_tolerances_of_the_problem_hold() -> None:
    assert parted("28", "0.28", "29") == [{"28"}, {"0.28"}, {"29"}]
    assert parted("28", "0.28", "29", mode="paper") == [{"28", "0.28"}, {"29"}]
    numbers = ("3.14", "3.1416", r"\pi", "3")
    assert parted(*numbers, kind="numeric") == [{one} for one in numbers]
    assert parted(*numbers, kind="numeric", absolute=0.002) == [{"3.14", "3.1416", r"\pi"}, {"3"}]
    assert parted("Paris", "paris", "Rome", kind="exact", ignore_case=True) == [{"Paris", "paris"}, {"Rome"}]
    assert parted("Paris", "paris", "7", "007", kind="exact") == [{"Paris"}, {"paris"}, {"7"}, {"007"}]
    assert parted("A", "B", "A", kind="choice") == [{"A"}, {"B"}]


def test_classes_in_a_chain_are_one_and_comparisons_are_bounded() -> None:
    asked: list[tuple[str, str]] = []

    def touches(one: str, other: str) -> bool:
        asked.append((one, other))
        return abs(int(one) - int(other)) <= 1

    assert classes(["1", "3", "2", "7", "8"], touches) == [0, 0, 0, 3, 3]  # 2 joins 1 and 3
    assert asked == [("1", "3"), ("1", "2"), ("3", "2"), ("1", "7"), ("1", "8"), ("7", "8")]
    asked.clear()
    apart = [str(3 * i) for i in range(64)]
    assert classes(apart, touches) == list(range(64))
    assert len(asked) == 64 * 63 // 2
    asked.clear()
    assert classes([*apart, "1"], touches, most=100) == list(range(65))  # what is left is told apart by its spelling
    assert len(asked) == 100


def test_numbers_and_words_need_no_worker_and_formulas_get_one() -> None:
    jobs: list[str] = []

    def pool(items: Sequence[tuple[Problem, str]]) -> list[Verdict]:
        jobs.extend(text for _, text in items)
        return shared().grade_all(items)

    problem = Problem(id="p", prompt="", answer="1")
    assert votes([(problem, ["18", "18.0", "7"]), (problem, [None, None]), (problem, ["x+1", "x + 1"])], pool) == [
        ("18", "18", "7"), (None, None), ("x+1", "x+1"),
    ]  # fmt: skip
    assert jobs == []  # spelling decided
    assert votes([(problem, ["x+1", "1+x"]), (problem, ["$18", "18"])], pool) == [("1+x", "1+x"), ("18", "18")]
    assert [json.loads(job) for job in jobs] == [["1+x", "x+1"], ["18", "$18"]]


def test_answers_that_cannot_be_compared_in_time_are_votes_by_spelling(caplog: pytest.LogCaptureFixture) -> None:
    def late(items: Sequence[tuple[Problem, str]]) -> list[Verdict]:
        return [Verdict("wrong", "grading takes longer than 5 s", None) for _ in items]

    problem = Problem(id="p7", prompt="", answer="1")
    with caplog.at_level(logging.WARNING):
        assert votes([(problem, ["x+1", "1+x", "x + 1"])], late) == [("x+1", "1+x", "x+1")]
    assert "Problem p7: its answers are votes by their spelling alone: grading takes longer than 5 s." in caplog.text


def test_hostile_answers_cost_little() -> None:
    tower = r"\frac{5^{(5^{(5^{(5^5)})}-4)}-5}{16}"
    deep = "(" * 400 + "x" + ")" * 400
    answers = [tower, deep, "9" * 900 + "!", r"\sum_{n=1}^{10^{9}} n^{n}", "x+1", "1+x"]
    [found] = votes([(Problem(id="p", prompt="", answer="1"), answers)], shared().grade_all)
    assert found[4] == found[5]
    assert len(set(found)) == 5


def test_the_votes_of_a_wide_spread_of_formulas_take_less_than_the_limit() -> None:
    answers = [rf"\frac{{{i + 1}}}{{7}}x + {i}" for i in range(64)]
    [found] = votes([(Problem(id="p", prompt="", answer="1"), answers)], shared().grade_all)
    assert len(set(found)) == 64
    assert module.COMPARISONS > 64 * 63 // 2
