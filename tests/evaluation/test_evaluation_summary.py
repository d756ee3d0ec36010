from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from sharpen.errors import SharpenError
from sharpen.evaluation.intervals import Measure, estimate
from sharpen.evaluation.summary import Comparison, ProblemResult, Summary, by_group, compare, summarise


def result(problem_id, answers, gold="8", finished=None, lengths=None):
    return ProblemResult(
        problem_id=problem_id,
        answers=tuple(answers),
        correct=tuple(answer == gold for answer in answers),
        finished=tuple(finished or [True] * len(answers)),
        lengths=tuple(lengths or [10] * len(answers)),
    )


THREE = [
    result("a", ["8", "8", "9", None], finished=[True, True, True, False], lengths=[5, 6, 7, 40]),
    result("b", ["7", "8", None, None], finished=[True, False, False, False], lengths=[9, 40, 40, 40]),
    result("c", ["8", "8", "8", "8"], finished=[True, True, True, True], lengths=[4, 4, 4, 4]),
]


def test_every_number_by_hand():
    summary = summarise(THREE, [4, 1, 2])
    assert list(summary.pass_at_k) == list(summary.maj_at_k) == [1, 2, 4]
    # right: 2, 1 and 4 of 4
    assert summary.pass_at_k[1].value == pytest.approx((2 / 4 + 1 / 4 + 1) / 3)
    # pass@2: 1 − C(2,2)/6 = 5/6, 1 − C(3,2)/6 = 1/2, 1
    assert summary.pass_at_k[2].value == pytest.approx((5 / 6 + 1 / 2 + 1) / 3)
    assert summary.pass_at_k[4].value == 1.0
    # maj@4: 8 wins; 7 and 8 tie; 8 wins
    assert summary.maj_at_k[4].value == pytest.approx((1 + 0.5 + 1) / 3)
    # maj@2 of b, pairs of 7 8 − −: {7,8} ½, {8,−} 1 twice, {7,−} 0 twice, {−,−} 0: 2.5/6; of a 4/6 (8 8 9 −); of c 1
    assert summary.maj_at_k[2].value == pytest.approx((4 / 6 + 2.5 / 6 + 1) / 3)
    # finished 3 + 1 + 4 of 12; of those 8, right 2 + 0 + 4
    assert summary.finished.value == pytest.approx(8 / 12)
    assert summary.right_given_finished.value == pytest.approx(6 / 8)
    # lengths 58 + 129 + 16 over 12
    assert summary.mean_length.value == pytest.approx(203 / 12)
    assert (summary.problems, summary.samples, summary.short) == (3, 4, {})


def test_maj_at_1_is_pass_at_1_exactly_with_its_interval():
    summary = summarise(THREE, [1], seed=3)
    assert summary.maj_at_k[1] == summary.pass_at_k[1]


def test_intervals_are_those_over_problems():
    many = [result(f"p{i:02}", ["8"] * (i % 5) + ["9"] * (4 - i % 5)) for i in range(20)]
    assert summarise(many, [1], seed=4).pass_at_k[1] == estimate(Measure([(i % 5) / 4 for i in range(20)]), seed=4)


def test_the_order_of_problems_and_samples_changes_nothing():
    many = [result(f"p{i:02}", ["8"] * (i % 5) + ["9"] * (4 - i % 5)) for i in range(20)]
    turned = [result(r.problem_id, r.answers[::-1]) for r in many[::-1]]
    assert summarise(turned, [1, 2, 4]) == summarise(many, [1, 2, 4])


def test_nothing_finished_leaves_right_given_finished_unknown():
    summary = summarise([result("a", ["8", "9"], finished=[False, False])], [1])
    assert math.isnan(summary.right_given_finished.value)
    assert summary.finished.value == 0.0


def test_short_problems_are_listed_and_left_out():
    short = result("d", ["8", "8", "8"])
    summary = summarise([*THREE, short, result("e", [])], [1], expected_samples=4)
    assert summary.short == {"d": 3, "e": 0}
    assert summary.problems == 3
    assert summary.pass_at_k == summarise(THREE, [1]).pass_at_k
    with pytest.raises(SharpenError, match=r"`a` has 4 and `d` has 3|`c` has 4 and `d` has 3"):
        summarise([*THREE, short], [1])
    with pytest.raises(SharpenError, match="`a` has 4 samples; expected 3"):
        summarise([*THREE, short], [1], expected_samples=3)
    with pytest.raises(SharpenError, match="no problem"):
        summarise([short], [1], expected_samples=4)


def test_refusals():
    with pytest.raises(SharpenError, match="K = 5 cannot be measured with 4 samples"):
        summarise(THREE, [1, 5])
    with pytest.raises(SharpenError, match="`a` has two results"):
        summarise([THREE[0], THREE[0]], [1])
    with pytest.raises(SharpenError, match="no problem"):
        summarise([], [1])
    with pytest.raises(ValueError, match="marked correct"):
        ProblemResult(problem_id="a", answers=(None,), correct=(True,), finished=(True,), lengths=(3,))
    with pytest.raises(ValueError, match=r"\[1, 2, 1, 1\]"):
        ProblemResult(problem_id="a", answers=("8",), correct=(True, False), finished=(True,), lengths=(3,))


BEFORE = [result(f"p{i}", ["8"] * (i % 3) + ["9"] * (4 - i % 3), finished=[True, True, False, False]) for i in range(12)]
AFTER = [result(f"p{i}", ["8"] * (2 + i % 3) + ["9"] * (2 - i % 3), lengths=[4] * 4) for i in range(12)]


def test_a_comparison_pairs_the_problems():
    comparison = compare(BEFORE, AFTER[::-1], [1, 4], seed=2)
    # right 0, 1, 2 of 4 before and 2, 3, 4 after: + 2/4 on every problem
    moved = comparison.change.pass_at_k[1]
    assert (comparison.before.pass_at_k[1].value, comparison.after.pass_at_k[1].value) == (pytest.approx(1 / 4), pytest.approx(3 / 4))
    assert moved.value == pytest.approx(0.5)
    # no spread: only what unseen problems could do, t(11) √(2 / (11 · 12)) = 2.201 · 0.12309 = 0.27093
    assert (moved.low, moved.high) == (pytest.approx(0.5 - 0.27093, abs=2e-4), pytest.approx(0.5 + 0.27093, abs=2e-4))
    assert moved.excludes_zero
    # finished: right 0, 1, 2 of 2 before, 2, 3, 4 of 4 after
    assert comparison.change.right_given_finished.value == pytest.approx(3 / 4 - 1 / 2)
    assert comparison.change.mean_length.value == -6.0
    assert comparison.before == summarise(BEFORE, [1, 4], seed=2)


def test_a_problem_short_in_either_is_left_out_of_both():
    shorter = [result("p3", ["8"]), *AFTER[:3], *AFTER[4:]]
    comparison = compare(BEFORE, shorter, [1], expected_samples=4)
    assert (comparison.before.problems, comparison.after.problems) == (11, 11)
    assert (comparison.before.short, comparison.after.short) == ({}, {"p3": 1})
    # without p3 (right 0 of 4): 12 right of 44
    assert comparison.before.pass_at_k[1].value == pytest.approx(12 / 44)
    with pytest.raises(SharpenError, match="different numbers of samples"):
        compare(BEFORE, shorter, [1])


def test_a_comparison_needs_the_same_problems():
    with pytest.raises(SharpenError, match=r"Only before 1: `p0`; only after none\."):
        compare(BEFORE, AFTER[1:], [1])
    others = [result(f"q{i:02}", ["8"] * 4) for i in range(12)]
    with pytest.raises(SharpenError, match=r"Only before none; only after 12: `q00`, `q01`.*`q09` and 2 more\."):
        compare(BEFORE, [*AFTER, *others], [1])


def test_results_by_level_and_subject():
    groups = [{"level": "10", "subject": "Algebra"}, {"level": "9", "subject": "Algebra"}, {"level": "hard"}, {}]
    rows = [replace(result(f"p{i}", ["8"]), groups=group) for i, group in enumerate(groups)]
    found = by_group(rows)
    assert {value: [r.problem_id for r in part] for value, part in found["level"].items()} == {"9": ["p1"], "10": ["p0"], "hard": ["p2"]}
    assert list(found["level"]) == ["9", "10", "hard"]  # numbers by size, then words
    assert list(found) == ["level"]  # all have the same subject


def test_dictionaries_survive_json_with_ks_in_order():
    ks = [1, 2, 4]
    comparison = compare([*BEFORE, result("q", ["8"])], [*AFTER, result("q", ["8"])], ks, expected_samples=4)
    text = json.dumps(comparison.to_dict(), sort_keys=True, allow_nan=False)
    again = Comparison.from_dict(json.loads(text))
    assert again == comparison
    assert list(again.change.maj_at_k) == ks
    nothing = summarise([result("a", ["8", "9"], finished=[False, False])], [1])
    text = json.dumps(nothing.to_dict(), sort_keys=True, allow_nan=False)
    assert json.dumps(Summary.from_dict(json.loads(text)).to_dict(), sort_keys=True) == text
    assert json.loads(text)["right_given_finished"] == {"value": None, "low": None, "high": None}
    sixteen = summarise([result("a", ["8"] * 16), result("b", ["9"] * 16)], [16, 2, 1])
    assert list(Summary.from_dict(json.loads(json.dumps(sixteen.to_dict(), sort_keys=True))).pass_at_k) == [1, 2, 16]
