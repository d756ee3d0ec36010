"""Fisher's exact test and its correction, by hand."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharpen.evaluation.problem_changes import benjamini_hochberg, count, fisher, problem_changes
from sharpen.evaluation.summary import ProblemResult


def result(problem_id, right, samples=16):
    answers = ("8",) * right + ("9",) * (samples - right)
    correct = tuple(answer == "8" for answer in answers)
    return ProblemResult(problem_id=problem_id, answers=answers, correct=correct, finished=correct, lengths=(3,) * samples)


def test_fisher_by_hand():
    # 4 samples each, 4 right in all: C(4,x) C(4,4−x) = 1, 16, 36, 16, 1 of C(8,4) = 70
    assert fisher(0, 4, 4) == pytest.approx(2 / 70)
    assert fisher(1, 3, 4) == pytest.approx((16 + 16 + 1 + 1) / 70)
    assert fisher(2, 2, 4) == 1.0
    assert fisher(0, 0, 4) == 1.0
    # 0 and 6 of 64: all of C(64,0) C(64,6) and its mirror image, of C(128,6) = 5,423,611,200; C(64,6) = 74,974,368
    assert fisher(0, 6, 64) == pytest.approx(2 * 74_974_368 / 5_423_611_200)
    with pytest.raises(ValueError, match="0 and 5 right of 4"):
        fisher(0, 5, 4)


@given(st.integers(1, 5).flatmap(lambda m: st.tuples(st.just(m), st.integers(0, m), st.integers(0, m))))
def test_fisher_is_the_share_of_ways_to_deal_the_right_ones(case):
    m, before, after = case
    deals = [sum(place < m for place in chosen) for chosen in itertools.combinations(range(2 * m), before + after)]
    ways = {x: deals.count(x) for x in set(deals)}
    expected = Fraction(sum(way for way in ways.values() if way <= ways[before]), len(deals))
    assert fisher(before, after, m) == pytest.approx(float(expected))


def test_the_correction_by_hand():
    # sorted 0.005 0.01 0.03 0.04, times 4/1 4/2 4/3 4/4: 0.02 0.02 0.04 0.04
    assert benjamini_hochberg([0.01, 0.04, 0.03, 0.005]).tolist() == pytest.approx([0.02, 0.04, 0.04, 0.02])
    assert benjamini_hochberg([0.9, 0.8]).tolist() == pytest.approx([0.9, 0.9])


def test_newly_solved_newly_lost_and_unclear():
    before = [result("new", 0), result("gone", 12), result("chance", 0), result("better", 3), result("worse", 15), result("same", 8)]
    after = [result("new", 12), result("gone", 0), result("chance", 2), result("better", 15), result("worse", 4), result("same", 8)]
    found = {one.problem_id: one for one in problem_changes(before, after)}
    assert {name: one.what for name, one in found.items()} == {
        "new": "newly solved", "gone": "newly lost", "chance": "unclear", "better": "better", "worse": "worse", "same": "unclear",
    }  # fmt: skip
    assert (found["new"].before, found["new"].after, found["new"].samples) == (0, 12, 16)
    assert found["new"].p < found["new"].adjusted < 0.001
    assert count(list(found.values()), "newly solved") == 1
