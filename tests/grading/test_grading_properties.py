"""What holds of grading whatever is written: it never raises, gives the same verdict again, and looks through spaces and wrapping."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sharpen.grading import Verdict, grade, grade_choice, grade_math
from sharpen.grading import math as room
from sharpen.records import Problem

MANY = settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])

numbers = st.one_of(
    st.integers(-(10**6), 10**6).map(str),
    st.decimals(-1000, 1000, places=3).map(str),
    st.tuples(st.integers(-99, 99), st.integers(1, 99)).map(lambda pair: rf"\frac{{{pair[0]}}}{{{pair[1]}}}"),
    st.integers(0, 200).map(lambda share: rf"{share}\%"),
)
atoms = st.one_of(numbers, st.sampled_from(["x", "y", r"\pi", "e", "i", r"\sqrt{2}", r"\sqrt[3]{5}", r"\sin 2", r"\log_2 3", "2^{10}"]))


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    two = st.tuples(inner, inner)
    return st.one_of(
        two.map(lambda pair: f"{pair[0]} + {pair[1]}"),
        two.map(lambda pair: rf"\frac{{{pair[0]}}}{{{pair[1]}}}"),
        two.map(lambda pair: rf"\left({pair[0]}\right) \cdot \left({pair[1]}\right)"),
        inner.map(lambda one: rf"\sqrt{{{one}}}"),
        inner.map(lambda one: f"-({one})"),
    )


formulas = st.recursive(atoms, _larger, max_leaves=5)
answers = st.one_of(
    formulas,
    st.lists(formulas, min_size=2, max_size=3).map(", ".join),
    st.tuples(formulas, formulas).map(lambda pair: f"({pair[0]}, {pair[1]})"),
    st.tuples(numbers, numbers).map(lambda pair: f"[{pair[0]}, {pair[1]})"),
    st.lists(numbers, min_size=1, max_size=3).map(lambda items: rf"\{{{', '.join(items)}\}}"),
    st.sampled_from([r"\text{Evelyn}", r"\text{even}", "Thursday", r"\emptyset", "3:4", "x > 3", "y = 2x + 1", r"10\text{ cm}"]),
)
noise = st.text(alphabet=r"0123456789xye+-*/^_=<>()[]{}\$%!,.:;|&~ '答案是五分之" + "\n\t", max_size=60)
pieces = st.lists(
    st.sampled_from([r"\boxed{", "}", "{", r"\frac", r"\sqrt", r"\text{", "####", "the answer is ", "<think>", "</think>", "<answer>"])
    | noise
).map("".join)


@MANY
@given(gold=answers | pieces, text=answers | pieces)
def test_no_text_makes_grading_raise(gold: str, text: str) -> None:
    for verdict in (grade_math(gold, text), grade_math(gold, text, mode="paper"), grade_choice("B", text), grade_choice(gold, text)):
        assert isinstance(verdict, Verdict)
        assert verdict.outcome in ("right", "wrong", "unscorable")
        assert verdict.reason
        assert (verdict.outcome == "right") <= (verdict.extracted is not None)


@MANY
@given(kind=st.sampled_from(["exact", "numeric", "regex"]), gold=answers | noise, text=answers | pieces)
def test_no_text_makes_the_plain_graders_raise(kind: str, gold: str, text: str) -> None:
    assert isinstance(grade(Problem(id="p", prompt="?", answer=gold, kind=kind), text), Verdict)


@MANY
@given(gold=answers, answer=answers)
def test_the_same_verdict_again_without_what_is_remembered(gold: str, answer: str) -> None:
    first = grade_math(gold, rf"\boxed{{{answer}}}")
    room.compare.cache_clear()
    room.gold_fault.cache_clear()
    room.read.cache_clear()
    assert grade_math(gold, rf"\boxed{{{answer}}}") == first


@MANY
@given(gold=answers, answer=answers)
def test_white_space_dollar_signs_and_boxes_do_not_count(gold: str, answer: str) -> None:
    outcome = grade_math(gold, rf"\boxed{{{answer}}}").outcome
    for same in (
        rf"\boxed{{ {answer} }}",
        rf"$\boxed{{{answer}}}$",
        rf"\[ \boxed{{${answer}$}} \]",
        rf"so \fbox{{{answer}}}.",
        rf"\boxed{{\boxed{{{answer}}}}}",
    ):
        assert grade_math(gold, same).outcome == outcome
    for same_gold in (f" {gold} ", f"${gold}$", rf"\({gold}\)"):
        assert grade_math(same_gold, rf"\boxed{{{answer}}}").outcome == outcome


@MANY
@given(gold=answers)
def test_every_answer_is_right_by_itself_and_the_fast_path_changes_nothing(gold: str) -> None:
    verdict = grade_math(gold, rf"\boxed{{{gold}}}")
    if verdict.outcome == "unscorable":
        assert room.gold_fault(gold) is not None
    else:
        assert verdict.outcome == "right"


@MANY
@given(first=numbers, second=numbers)
def test_the_fast_path_and_the_long_way_agree(first: str, second: str) -> None:
    assert room.compare(first, second, "strict")[0] == room.compare.__wrapped__(first, second, "strict", shortcuts=False)[0]


@MANY
@given(first=formulas, second=formulas)
def test_equality_has_no_direction_between_what_is_worked_out(first: str, second: str) -> None:
    verdicts = [grade_math(*pair) for pair in ((first, rf"\boxed{{{second}}}"), (second, rf"\boxed{{{first}}}"))]
    if not any("not carried out" in verdict.reason or verdict.outcome == "unscorable" for verdict in verdicts):
        assert verdicts[0].outcome == verdicts[1].outcome


@pytest.mark.parametrize("pair", [("56", "7 * 8"), ("x", "x"), (r"\frac12", "0.5"), ("(1,2)", "(2,1)")])
def test_only_a_calculation_has_a_direction(pair: tuple[str, str]) -> None:
    forth, back = (grade_math(gold, rf"\boxed{{{answer}}}").outcome for gold, answer in (pair, pair[::-1]))
    assert (forth == back) == (pair[0] != "56")
