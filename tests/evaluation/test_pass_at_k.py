from __future__ import annotations

import itertools
import math
import time
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sharpen.evaluation import pass_at_k as module
from sharpen.evaluation.pass_at_k import maj_at_k, maj_at_ks, pass_at_k


@pytest.mark.parametrize(
    ("n", "c", "k", "expected"),
    [
        (4, 1, 1, 1 / 4),
        (4, 1, 2, 0.5),  # 1 − C(3,2)/C(4,2) = 1 − 3/6
        (4, 1, 4, 1.0),  # all four are looked at
        (10, 3, 5, 1 - 21 / 252),  # C(7,5) = 21, C(10,5) = 252: 0.9166667
        (200, 1, 1, 0.005),
        (5, 0, 5, 0.0),
        (5, 5, 1, 1.0),
    ],
)
def test_pass_at_k_by_hand(n, c, k, expected):
    assert pass_at_k(n, c, k) == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize(("n", "c", "k"), [(2, 0, 5), (4, 1, 0), (4, 5, 2), (4, -1, 2), (0, 0, 1)])
def test_pass_at_k_refuses_what_the_samples_cannot_tell(n, c, k):
    with pytest.raises(ValueError):
        pass_at_k(n, c, k)


def test_pass_at_k_is_the_nearest_float_where_products_of_floats_drift():
    exact = 1 - Fraction(math.comb(9999, 5000), math.comb(10_000, 5000))
    assert exact == Fraction(1, 2)
    assert pass_at_k(10_000, 1, 5000) == 0.5
    assert pass_at_k(1000, 1, 999) == float(Fraction(999, 1000))


def test_pass_at_k_is_the_share_of_subsets_with_a_right_sample():
    right = [True, False, False, True, False, False, False]
    for k in range(1, 8):
        subsets = list(itertools.combinations(right, k))
        assert pass_at_k(7, 2, k) == pytest.approx(sum(map(any, subsets)) / len(subsets), abs=1e-15)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=8))
def test_pass_at_k_is_the_mean_over_all_subsets(right):
    n = len(right)
    for k in range(1, n + 1):
        subsets = list(itertools.combinations(right, k))
        assert pass_at_k(n, sum(right), k) == float(Fraction(sum(map(any, subsets)), len(subsets)))


@given(st.integers(1, 80).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))))
def test_pass_at_k_grows_with_k(counts):
    n, c = counts
    curve = [pass_at_k(n, c, k) for k in range(1, n + 1)]
    assert all(low <= high for low, high in itertools.pairwise(curve))
    assert curve[0] == c / n
    assert curve[-1] == float(c > 0)


def brute_force(answers, correct, k):
    """Maj@k in fractions, over every subset: the share right of each tied answer, averaged over the tied."""
    share = {}
    for answer in set(answers) - {None}:
        verdicts = [right for other, right in zip(answers, correct, strict=True) if other == answer]
        share[answer] = Fraction(sum(verdicts), len(verdicts))
    total, subsets = Fraction(0), 0
    for subset in itertools.combinations(answers, k):
        subsets += 1
        votes = Counter(answer for answer in subset if answer is not None)
        tied = [answer for answer, count in votes.items() if count == max(votes.values())]
        if tied:
            total += sum(share[answer] for answer in tied) / len(tied)
    return total / subsets


@pytest.mark.parametrize(
    ("answers", "gold", "k", "expected"),
    [
        (["8", "8", "9", None], "8", 4, 1.0),
        ([None, None, "8"], "8", 3, 1.0),  # no answer is no vote
        ([None, None, None], "8", 3, 0.0),
        ([None, None, None], "8", 2, 0.0),
        (["7", "8"], "8", 2, 0.5),  # a tie of two
        (["7", "8", "9", "9", "8", "7"], "8", 6, 1 / 3),  # a tie of three
        (["8", "8", "9"], "8", 1, 2 / 3),
        # pairs of 8 8 9: {8,8} right, two of {8,9} tied: (1 + 1/2 + 1/2) / 3
        (["8", "8", "9"], "8", 2, 2 / 3),
        # triples of 8 8 9 9: {8,8,9} twice right, {8,9,9} twice wrong
        (["8", "8", "9", "9"], "8", 3, 0.5),
        # pairs of 8 8 9 None: {8,8} 1, {8,9} ½ twice, {8,None} 1 twice, {9,None} 0: 4/6
        (["8", "8", "9", None], "8", 2, 4 / 6),
    ],
)
def test_maj_at_k_by_hand(answers, gold, k, expected):
    assert maj_at_k(answers, [answer == gold for answer in answers], k) == pytest.approx(expected, abs=1e-15)


samples = st.lists(st.tuples(st.sampled_from(["1", "2", "3", "4", None]), st.booleans()), min_size=1, max_size=8)


@settings(max_examples=60, deadline=None)
@given(samples, st.randoms(use_true_random=False))
def test_maj_at_k_is_the_mean_over_all_subsets_in_any_order(rows, random):
    answers = [answer for answer, _ in rows]
    correct = [right and answer is not None for answer, right in rows]
    n = len(rows)
    curve = maj_at_ks(answers, correct, range(1, n + 1))
    for k in range(1, n + 1):
        assert curve[k] == pytest.approx(float(brute_force(answers, correct, k)), abs=1e-12)
    assert curve[1] == pass_at_k(n, sum(correct), 1)  # exactly
    order = random.sample(range(n), n)
    assert maj_at_ks([answers[i] for i in order], [correct[i] for i in order], range(1, n + 1)) == curve


def test_two_votes_tell_no_more_than_one():
    # With two votes there is a tie or agreement: a·a + ½·2a(1−a) = a, so Maj@2 = Maj@1 where every sample answers.
    answers = ["1"] * 5 + ["2"] * 3 + ["3"] * 9 + ["4"]
    correct = [answer == "1" for answer in answers]
    assert maj_at_k(answers, correct, 2) == pytest.approx(5 / 18, abs=1e-15)


def test_an_answer_judged_both_ways_is_worth_its_share():
    # Three votes for 8, two of them from finished completions: worth 2/3; one for 9.
    assert maj_at_k(["8", "8", "8", "9"], [True, True, False, False], 4) == pytest.approx(2 / 3)
    assert maj_at_k(["8", "8", "8", "9"], [True, True, False, False], 1) == 0.5


def test_random_subsets_agree_with_the_exact_value(monkeypatch):
    random = np.random.default_rng(0)
    answers = [str(a) if a < 6 else None for a in random.integers(0, 8, 40)]
    correct = [answer in ("1", "2") for answer in answers]
    exact = maj_at_ks(answers, correct, [2, 5, 16, 39])
    monkeypatch.setattr(module, "EXACT_SAMPLES", 0)
    sampled = maj_at_ks(answers, correct, [1, 2, 5, 16, 39, 40], seed=1)
    for k, value in exact.items():
        assert sampled[k] == pytest.approx(value, abs=4 * 0.5 / math.sqrt(module.SUBSETS))
    assert sampled == maj_at_ks(answers[::-1], correct[::-1], [1, 2, 5, 16, 39, 40], seed=1)
    assert sampled[16] != maj_at_k(answers, correct, 16, seed=2)
    assert maj_at_k([None] * 5, [False] * 5, 3) == 0.0


def test_hundreds_of_samples_stay_exact_to_rounding():
    # 100 for one answer against 28 for the other: 7 votes are won by 4 or more, a hypergeometric tail.
    answers, correct = ["a"] * 100 + ["b"] * 28, [True] * 100 + [False] * 28
    tail = sum(Fraction(math.comb(100, j) * math.comb(28, 7 - j), math.comb(128, 7)) for j in range(4, 8))
    assert maj_at_k(answers, correct, 7) == pytest.approx(float(tail), rel=1e-13)


def test_maj_at_k_refuses_a_k_beyond_the_samples_and_a_right_sample_without_answer():
    with pytest.raises(ValueError, match="K = 5"):
        maj_at_k(["1", "2"], [True, False], 5)
    with pytest.raises(ValueError, match="without an answer"):
        maj_at_k(["1", None], [True, True], 2)
    with pytest.raises(ValueError):
        maj_at_k(["1", "2"], [True], 2)


def test_forty_problems_of_64_samples_take_less_than_two_seconds():
    random = np.random.default_rng(3)
    start = time.perf_counter()
    for problem in range(40):
        drawn = random.zipf(1.3, 64)  # one or two frequent answers, and a long tail of single ones
        answers = [None if value > 200 else str(value) for value in drawn]
        maj_at_ks(answers, [answer in ("1", str(problem)) for answer in answers], [1, 2, 4, 8, 16, 32, 64])
    assert time.perf_counter() - start < 2


def test_majority_converges() -> None:
    """Maj@1 = Pass@1, and Pass@K never falls as K grows; the majority of all settles on one answer."""
    answers = ["8", "8", "7", "8", None, "9", "7", "8"]
    correct = [answer == "8" for answer in answers]
    found = maj_at_ks(answers, correct, [1, 8], seed=0)
    assert found[1] == pytest.approx(pass_at_k(8, 4, 1)) == pytest.approx(0.5)
    assert found[8] == 1.0
    for right in range(9):
        values = [pass_at_k(8, right, k) for k in range(1, 9)]
        assert values == sorted(values)
