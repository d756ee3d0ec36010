"""Best-of-N and weighted votes: by hand, and against every subset one by one."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sharpen.evaluation.pass_at_k import maj_at_k, pass_at_k
from sharpen.search import choose
from sharpen.search.choose import best_of_n, elected, weighted_vote, weights_of_logits

REWARDS = st.sampled_from([None, math.nan, math.inf, -1.5, 0.0, 0.25, 3.0])
SAMPLE = st.tuples(st.sampled_from(["7", "8", "9", None]), st.booleans(), REWARDS)


def rank(reward: float | None) -> float:
    return reward if reward is not None and math.isfinite(reward) else -math.inf


def brute_best(rewards, correct, n: int) -> float:
    total = []
    for rows in itertools.combinations(range(len(rewards)), n):
        top = max(rank(rewards[i]) for i in rows)
        tied = [correct[i] for i in rows if rank(rewards[i]) == top]
        total.append(sum(tied) / len(tied))
    return sum(total) / len(total)


def brute_vote(answers, correct, weights, k: int) -> float:
    worth = {a: [c for b, c in zip(answers, correct, strict=True) if a == b] for a in answers if a is not None}
    total = []
    for rows in itertools.combinations(range(len(answers)), k):
        sums: dict[str, float] = {}
        for i in rows:
            if answers[i] is not None:
                sums[answers[i]] = sums.get(answers[i], 0.0) + weights[i]
        if not any(sums.values()):
            sums = {name: sum(answers[i] == name for i in rows) for name in sums}
        tied = [name for name, value in sums.items() if value == max(sums.values())]
        total.append(sum(sum(worth[name]) / len(worth[name]) for name in tied) / len(tied) if tied else 0.0)
    return sum(total) / len(total)


def test_best_of_n_by_hand() -> None:
    # rewards 1, 2, 3 of which the middle one is right: of {1,2}, {1,3}, {2,3} only the first chooses it
    assert best_of_n([1.0, 2.0, 3.0], [False, True, False], 2) == pytest.approx(1 / 3)
    # n = 1 is Pass@1, n = N the highest of all
    assert best_of_n([1.0, 2.0, 3.0], [False, True, False], 1) == pytest.approx(1 / 3)
    assert best_of_n([1.0, 2.0, 3.0], [False, False, True], 3) == 1.0
    # two tie at the top, one of them right: 1/2
    assert best_of_n([5.0, 5.0, 0.0], [True, False, False], 3) == 0.5
    # of {5,5'} 1/2, {5,0} 1, {5',0} 0: 1/2
    assert best_of_n([5.0, 5.0, 0.0], [True, False, False], 2) == 0.5


def test_a_missing_reward_ranks_below_every_reward() -> None:
    assert best_of_n([None, -99.0], [True, False], 2) == 0.0
    assert best_of_n([math.nan, -99.0], [True, False], 2) == 0.0
    assert best_of_n([math.inf, -99.0], [True, False], 2) == 0.0
    assert best_of_n([None, math.nan], [True, False], 2) == 0.5  # with none there is, one is as good as another
    assert best_of_n([0.0, None], [True, False], 2) == 1.0  # 0 is a reward, not a missing one


@settings(max_examples=200, deadline=None)
@given(st.lists(SAMPLE, min_size=1, max_size=8), st.data())
def test_best_of_n_is_the_mean_over_all_subsets(samples, data) -> None:
    n = data.draw(st.integers(1, len(samples)))
    _, correct, rewards = zip(*samples, strict=True)
    assert best_of_n(rewards, correct, n) == pytest.approx(brute_best(rewards, correct, n), abs=1e-12)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=12), st.data())
def test_the_verdict_as_reward_is_pass_at_n_and_equal_rewards_are_pass_at_1(correct, data) -> None:
    n = data.draw(st.integers(1, len(correct)))
    assert best_of_n([float(c) for c in correct], correct, n) == pytest.approx(pass_at_k(len(correct), sum(correct), n), abs=1e-12)
    assert best_of_n([1.0] * len(correct), correct, n) == pytest.approx(sum(correct) / len(correct), abs=1e-12)


def test_weighted_vote_by_hand() -> None:
    # 7 has 0.6 + 0.1 = 0.7, 8 has 0.8
    assert weighted_vote(["7", "7", "8"], [True, True, False], [0.6, 0.1, 0.8]) == 0.0
    assert weighted_vote(["7", "7", "8"], [True, True, False], [0.6, 0.3, 0.8]) == 1.0
    # a tie: 0.75 each
    assert weighted_vote(["7", "7", "8"], [True, True, False], [0.5, 0.25, 0.75]) == 0.5
    # pairs: {7,7'} right; {7,8} 0.6 < 0.8 wrong; {7',8} wrong
    assert weighted_vote(["7", "7", "8"], [True, True, False], [0.6, 0.3, 0.8], 2) == pytest.approx(1 / 3)
    # no answer is no vote, whatever it weighs; a missing weight weighs 0
    assert weighted_vote([None, "7"], [False, True], [9.0, 0.1]) == 1.0
    assert weighted_vote(["7", "8"], [True, False], [0.1, None]) == 1.0
    assert weighted_vote([None, None], [False, False], [1.0, 0.5]) == 0.0
    # all weigh 0 or nothing: they count alike, in all and in each subset
    assert weighted_vote(["7", "8", None], [True, False, False], [0.0, None, 1.0]) == 0.5
    assert weighted_vote(["7", "7", "8"], [True, True, False], [0.0, None, 0.0]) == 1.0
    # triples: {7,7',8} two votes of 0 to one: right; the three with 9, which weighs 1: wrong
    assert weighted_vote(["7", "7", "8", "9"], [True, True, False, False], [0.0, 0.0, 0.0, 1.0], 3) == 0.25
    # sums that differ by rounding alone tie: 0.1 + 0.2 and 0.3
    assert weighted_vote(["7", "7", "8"], [True, True, False], [0.1, 0.2, 0.3]) == 0.5


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["7", "8", "9", None]), st.booleans(), st.sampled_from([0.0, 0.25, 0.5, 1.0])), min_size=1, max_size=8
    ),
    st.data(),
)
def test_weighted_vote_is_the_mean_over_all_subsets(samples, data) -> None:
    k = data.draw(st.integers(1, len(samples)))
    samples = [(answer, right and answer is not None, weight) for answer, right, weight in samples]
    answers, correct, weights = zip(*samples, strict=True)
    assert weighted_vote(answers, correct, weights, k) == pytest.approx(brute_vote(answers, correct, weights, k), abs=1e-12)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["7", "8", "9", None]), st.booleans()), min_size=1, max_size=20),
    st.sampled_from([0.0, 1.0, 0.3]),
    st.data(),
)
def test_equal_weights_are_the_majority(samples, weight, data) -> None:
    k = data.draw(st.integers(1, len(samples)))
    answers = [answer for answer, _ in samples]
    correct = [right and answer is not None for answer, right in samples]
    assert weighted_vote(answers, correct, [weight] * len(samples), k) == maj_at_k(answers, correct, k)


def test_many_samples_are_drawn_and_their_order_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(3)
    samples = [(answer := draw.choice(["7", "8", "9", None]), answer == "8", draw.random()) for _ in range(14)]
    assert math.comb(14, 7) <= choose.SUBSETS
    exact = weighted_vote(*zip(*samples, strict=True), 7)
    assert exact == pytest.approx(brute_vote(*zip(*samples, strict=True), 7), abs=1e-12)
    monkeypatch.setattr(choose, "SUBSETS", 3000)
    drawn = weighted_vote(*zip(*samples, strict=True), 7)
    assert drawn != exact
    assert drawn == pytest.approx(exact, abs=4 * 0.5 / math.sqrt(3000))
    for _ in range(3):
        draw.shuffle(samples)
        assert weighted_vote(*zip(*samples, strict=True), 7) == drawn


def test_elected() -> None:
    assert elected(["7", "8", "7"], [0.25, 0.5, 0.25]) == ["7", "8"]
    assert elected(["7", "8", None], [None, 0.5, 9.0]) == ["8"]
    assert elected([None], [1.0]) == elected([], []) == []
    assert elected(["7", "8"], [0.0, math.nan]) == ["7", "8"]
    assert elected(["7", "8", "8"], [0.0, math.nan, 0.0]) == ["8"]


def test_weights_of_logits() -> None:
    assert weights_of_logits([2.0, 0.0, None, math.nan], 2.0) == [1.0, pytest.approx(math.exp(-1)), 0.0, 0.0]
    assert weights_of_logits([10_000.0, -10_000.0]) == [1.0, 0.0]  # no overflow
    assert weights_of_logits([]) == []
    with pytest.raises(ValueError, match="positive"):
        weights_of_logits([1.0], 0.0)


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="there are N = 2"):
        best_of_n([1.0, 2.0], [True, False], 3)
    with pytest.raises(ValueError, match="there are N = 0"):
        weighted_vote([], [], [])
    with pytest.raises(ValueError, match="negative"):
        weighted_vote(["7"], [True], [-0.1])
    with pytest.raises(ValueError, match="without an answer"):
        weighted_vote([None], [True], [1.0])
    with pytest.raises(ValueError):
        best_of_n([1.0], [True, False], 1)
