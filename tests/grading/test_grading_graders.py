from __future__ import annotations

import sys

import pytest

from sharpen.errors import MissingPackageError
from sharpen.grading import GRADERS, Verdict, grade, grade_choice, state_gold
from sharpen.grading.gym import _scorer
from sharpen.records import Problem


def problem(answer: str, kind: str, **meta: object) -> Problem:
    return Problem(id="p", prompt="?", answer=answer, kind=kind, meta=meta)


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        (r"\boxed{B}", "B"),
        (r"\boxed{(B)}", "B"),
        (r"\boxed{\textbf{(B)}}", "B"),
        (r"\boxed{B. Paris}", "B"),
        (r"\boxed{\text{B}}", "B"),
        ("B", "B"),
        ("B.", "B"),
        ("B) Paris", "B"),
        ("The answer is (B) because it is.", "B"),
        ("The answer is B.", "B"),
        ("Answer: **B**", "B"),
        ("答案：Ｂ", "B"),
        ("<think>The answer is A</think>\nThe answer is B.", "B"),
        ("<answer>B</answer>", "B"),
        ("Well, (A) is too small, so it must be (B)", "B"),
        ("I think so.\n\nB. Paris", "B"),
        ("A or B", None),
        ("The answer is A or B", None),
        ("A train leaves", None),
        ("<think>B", None),
        ("", None),
        (r"\boxed{4}", None),
    ],
)
def test_the_letter_that_is_chosen(text: str, letter: str | None) -> None:
    result = grade_choice("B", text)
    assert (result.extracted, result.outcome) == (letter, "right" if letter else "wrong")


def test_choices_by_the_other_letter_and_a_gold_that_is_no_letter() -> None:
    assert grade_choice("(B)", r"\boxed{A}") == Verdict("wrong", "chose A", "A")
    assert grade_choice("Paris", r"\boxed{Paris}").outcome == "unscorable"
    assert grade_choice("", "").outcome == "unscorable"


def test_grade_goes_by_the_kind() -> None:
    assert set(GRADERS) == {"math", "choice", "exact", "numeric", "regex", "code", "reasoning_gym"}
    assert grade(problem("56", "math"), "7 * 8 = 56").outcome == "right"
    assert grade(problem("B", "choice"), "B").outcome == "right"
    unknown = grade(problem("1", "maths"), "1")
    assert unknown == Verdict(
        "unscorable",
        "no grader for the kind 'maths'. Did you mean 'math'? Known: math, choice, exact, numeric, regex, code, reasoning_gym",
        None,
    )


def test_state_gold() -> None:
    assert state_gold(problem("56", "math")) == r"\boxed{56}"
    assert state_gold(problem("a b", "reasoning_gym")) == "<answer>a b</answer>"
    assert state_gold(problem("", "reasoning_gym")) is None


def test_reasoning_gym_scores_by_its_own_scorer() -> None:
    pytest.importorskip("reasoning_gym")
    entry = {"question": "1 + 2 =", "answer": "3", "metadata": {}}
    gym = problem("3", "reasoning_gym", generator="chain_sum", parameters={"min_terms": 2, "max_terms": 2}, entry=entry)
    assert grade(gym, "<think>4</think> <answer>3</answer>") == Verdict("right", "score 1", "3")
    assert grade(gym, "The answer is 3.").outcome == "right"
    assert grade(gym, "<answer>4</answer>") == Verdict("wrong", "score 0", "4")
    # Part of the score is not a right answer: this one contains the gold.
    long = grade(gym, "<answer>it is 3</answer>")
    assert (long.outcome, long.reason) == ("wrong", "score 0.142857")
    assert grade(gym, "<think>3") == Verdict("wrong", "no answer", None)


def test_reasoning_gym_faults_of_the_machinery_are_unscorable() -> None:
    pytest.importorskip("reasoning_gym")
    entry = {"question": "?", "answer": "3", "metadata": {}}
    assert grade(problem("3", "reasoning_gym"), "3").outcome == "unscorable"
    assert grade(problem("3", "reasoning_gym", generator="no_such", entry=entry), "3").outcome == "unscorable"
    # The scorer of `countdown` reads the metadata, which is not there: it fails, on this completion.
    assert grade(problem("3", "reasoning_gym", generator="countdown", entry=entry), "<answer>1+2</answer>").outcome == "wrong"


def test_reasoning_gym_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    _scorer.cache_clear()
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'sharpen\[reasoning-gym\]'"):
        grade(problem("3", "reasoning_gym", generator="chain_sum", entry={}), "3")
    _scorer.cache_clear()
