"""The verdict: each word by hand, the split of Pass@1's gain, and the error rates by simulation."""

from __future__ import annotations

import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sharpen.errors import SharpenError
from sharpen.evaluation.verdict import MARGIN, WORDS, Verdict, decide, judge, rule, shown, weigh, within_reach


def by_enumeration(before, after, h):
    """Over all orders of the samples before: is there a right one among h; and is the first right, and one of the next h."""
    m = len(before)
    orders = list(itertools.permutations(before))
    reach = Fraction(sum(any(order[:h]) for order in orders), len(orders))
    own = Fraction(sum(order[0] and any(order[1 : h + 1]) for order in orders), len(orders))
    return reach * Fraction(sum(after), m) - own


@settings(max_examples=40, deadline=None)
@given(
    st.integers(2, 6).flatmap(lambda m: st.tuples(st.lists(st.booleans(), min_size=m, max_size=m), st.integers(0, m), st.integers(1, m)))
)
def test_within_reach_is_the_mean_over_all_orders(case):
    before, right_after, k = case
    m = len(before)
    after = [True] * right_after + [False] * (m - right_after)
    expected = by_enumeration(before, after, min(k, m - 1))
    assert within_reach([sum(before)], [right_after], m, k)[0] == pytest.approx(float(expected), abs=1e-12)


def test_within_reach_by_hand():
    # 4 samples, K = 4, so h = 3. Before 1 right, after 3: R = 1 − C(3,3)/C(4,3) = 3/4, and 3/4 · 3/4; own: 1/4 · (1 − C(3,3)/C(3,3)) = 0.
    # Before 2, after 3: R = 1; 3/4 − 2/4 · (1 − C(2,3)/C(3,3)) = 3/4 − 1/2. Before 0: nothing was in reach.
    assert within_reach([1, 2, 0, 4], [3, 3, 4, 4], 4, 4).tolist() == pytest.approx([9 / 16, 1 / 4, 0.0, 0.0])
    # K = 1: R = p. Before 1 of 4: p q = 1/4 · 3/4, own = 1/4 · (1 − C(3,1)/C(3,1)) = 0.
    assert within_reach([1], [3], 4, 1)[0] == pytest.approx(3 / 16)


def test_within_reach_has_no_bias():
    p, q, m, k = 0.1, 0.4, 6, 6
    chance = lambda c, x: math.comb(m, c) * x**c * (1 - x) ** (m - c)  # noqa: E731
    mean = sum(chance(c, p) * chance(d, q) * within_reach([c], [d], m, k)[0] for c in range(m + 1) for d in range(m + 1))
    assert mean == pytest.approx((1 - (1 - p) ** 5) * (q - p), abs=1e-12)


NEVER, RARE, OFTEN, ALWAYS = 0, 2, 8, 16


def test_sharpened():
    """60 of 100 problems go from 2 of 16 to 8 of 16; 40 are never solved."""
    found = judge([RARE] * 60 + [NEVER] * 40, [OFTEN] * 60 + [NEVER] * 40, 16, 16)
    assert found.word == "sharpened"
    # Pass@16 is 0.6 before and after, no two differences differ: ± t(99) √(2 / (99 · 100)) = 1.9842 · 0.014213
    assert (found.reach.value, found.reach.high) == (0.0, pytest.approx(0.028202, abs=1e-5))
    # Pass@1 gains 6/16 on 60 of 100. c = 2: R = 1 − C(14,15)/C(16,15) = 1, own = 2/16 · (1 − C(14,15)/C(15,15)) = 2/16
    assert found.gain.value == found.within_reach.value == pytest.approx(0.6 * 6 / 16)
    assert found.from_beyond.value == pytest.approx(0.0)
    assert not found.ceiling
    assert any("it did not rise by more than 5 points" in reason for reason in found.reasons)


def test_extended():
    """Of 100 problems 20 become solvable; the rest stay as they were."""
    found = judge([OFTEN] * 50 + [NEVER] * 50, [OFTEN] * 50 + [RARE] * 20 + [NEVER] * 30, 16, 16)
    assert found.word == "extended"
    # mean 0.2, squares 20 · 0.64 + 80 · 0.04 = 16, and 2: ± 1.9842 √(18 / 9900)
    assert (found.reach.value, found.reach.low) == (pytest.approx(0.2), pytest.approx(0.2 - 1.9842 * math.sqrt(18 / 9900), abs=1e-4))
    assert found.within_reach.value == 0.0
    assert found.from_beyond.value == pytest.approx(0.2 * 2 / 16)


def test_both():
    found = judge([RARE] * 50 + [NEVER] * 50, [OFTEN] * 50 + [RARE] * 20 + [NEVER] * 30, 16, 16)
    assert found.word == "both"
    assert found.within_reach.value == pytest.approx(0.5 * 6 / 16)
    assert found.gain.value == pytest.approx(found.within_reach.value + found.from_beyond.value)


def test_no_clear_change():
    # Nothing at all changed.
    assert judge([RARE] * 60 + [NEVER] * 40, [RARE] * 60 + [NEVER] * 40, 16, 16).word == "no clear change"
    # Reach rose by 4 of 100: within the margin, but it may be more: 0.04 ± 1.98 √((3.84 + 2) / 9900) reaches above 0.05.
    unclear = judge([RARE] * 60 + [NEVER] * 40, [OFTEN] * 60 + [RARE] * 4 + [NEVER] * 36, 16, 16)
    assert unclear.word == "no clear change"
    assert any("too wide to tell" in reason for reason in unclear.reasons)
    # Pass@1 rose by problems that were beyond reach alone: within the margin, and nothing that was in reach got better.
    few = judge([OFTEN] * 600 + [NEVER] * 400, [OFTEN] * 600 + [ALWAYS] * 15 + [NEVER] * 385, 16, 16)
    assert few.gain.low > 0
    assert few.word == "no clear change"
    # What was in reach got worse.
    assert judge([OFTEN] * 60 + [NEVER] * 40, [RARE] * 60 + [NEVER] * 40, 16, 16).word == "no clear change"


def test_at_the_ceiling_the_word_is_no_clear_change():
    """Every problem is solved within 16 samples before and after, and Pass@1 goes from 12.5 to 50."""
    found = judge([RARE] * 500, [OFTEN] * 500, 16, 16)
    assert found.within_reach.low > 0.3
    assert found.reach.high < MARGIN
    assert found.ceiling
    assert found.word == "no clear change"
    assert any("at the ceiling of Pass@16" in reason for reason in found.reasons)
    # Wilson's upper end for 94 of 100 is above 0.95; for 450 of 500 it is 0.923.
    assert judge([RARE] * 94 + [NEVER] * 6, [OFTEN] * 94 + [NEVER] * 6, 16, 16).ceiling
    assert judge([RARE] * 450 + [NEVER] * 50, [OFTEN] * 450 + [NEVER] * 50, 16, 16).word == "sharpened"
    # One model at the ceiling is no excuse for the other: reach fell, and what stayed in reach got better.
    assert judge([RARE] * 100, [OFTEN] * 80 + [NEVER] * 20, 16, 16).word == "sharpened"


def test_a_margin_is_declared_and_bounds_the_words():
    before, after = [OFTEN] * 50 + [NEVER] * 50, [OFTEN] * 50 + [RARE] * 20 + [NEVER] * 30
    assert judge(before, after, 16, 16, margin=0.10).word == "extended"
    assert judge(before, after, 16, 16, margin=0.15).word == "no clear change"  # 0.2 ± 0.085
    with pytest.raises(SharpenError, match="margin 5"):
        judge(before, after, 16, 16, margin=5)


def test_what_cannot_be_judged():
    for before, samples, k in [([1], 4, 4), ([1, 2], 4, 1), ([1, 1], 1, 1), ([1, 2], 4, 5)]:
        with pytest.raises(SharpenError, match="A verdict needs 2 problems"):
            judge(before, before, samples, k)


def test_a_verdict_survives_json_and_states_its_rule():
    found = judge([RARE] * 60 + [NEVER] * 40, [OFTEN] * 60 + [NEVER] * 40, 16, 16)
    assert Verdict.from_dict(json.loads(json.dumps(found.to_dict(), allow_nan=False))) == found
    assert [line.partition(":")[0] for line in rule(64, 0.05)] == ["extended", "sharpened", "both", "no clear change"]
    assert "Pass@64 lies above +5 points" in rule(64, 0.05)[0]
    assert shown(found.reach) == "+0.0 [-2.8, +2.8]"


def shares(p, q, m, seed):
    """How often each word is said, over sets of problems [S, n]."""
    random = np.random.default_rng(seed)
    words = decide(weigh(random.binomial(m, p), random.binomial(m, q), m, m), MARGIN)
    return {word: float((words == place).mean()) for place, word in enumerate(WORDS)}


@pytest.mark.parametrize(("problems", "samples"), [(30, 16), (60, 64), (200, 16), (200, 64)])
def test_extended_is_said_in_error_at_most_5_times_in_100(problems, samples):
    """Pass@m rises by exactly the margin: a share of the unsolvable becomes certain. Many of the rest flip by chance."""
    random = np.random.default_rng(problems + samples)
    u = random.random((3000, problems))
    p = np.where(u < 0.3, 0.0, random.beta(0.5, 8.0, u.shape))
    found = shares(p, np.where(u < MARGIN, 1.0, p), samples, 1)
    assert found["extended"] + found["both"] <= 0.05
    assert found["sharpened"] <= 0.05


def test_the_words_are_found_where_the_data_suffice():
    random = np.random.default_rng(9)
    u = random.random((1000, 200))
    p = np.where(u < 0.3, 0.0, random.beta(1.5, 3.0, u.shape))
    better = p * 8 / (1 - p + p * 8)
    new = np.where(u < 0.2, 0.4, p)
    assert shares(p, better, 64, 2)["sharpened"] > 0.9
    assert shares(p, new, 64, 3)["extended"] > 0.9
    assert shares(p, np.where(u < 0.2, 0.4, better), 64, 4)["both"] > 0.9
    high = random.beta(3.0, 4.0, u.shape)
    assert shares(high, high * 8 / (1 - high + high * 8), 64, 5)["no clear change"] == 1.0
