"""Which of several completions of one problem is the answer: the best by reward, or a vote.

All are expectations over a uniformly random subset of n of the N samples, as Pass@K and Maj@K are (`sharpen.evaluation.pass_at_k`), so no
sample's place in the list matters. A tie is broken at random, in expectation. A reward that is missing (None, NaN, an infinity) ranks below
every reward there is, and such samples tie with one another; as a weight it counts 0.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from sharpen import streams
from sharpen.evaluation.pass_at_k import SUBSETS, maj_at_k

TIE = 1e-12
"""Sums of weights within this share of the largest are equal."""


def best_of_n(rewards: Sequence[float | None], correct: Sequence[bool], n: int) -> float:
    """The chance that the sample with the highest reward of n random ones is right.

    With the distinct rewards r_1 < … < r_m, of which r_j is that of c_j samples, k_j of them right, and b_j samples below it,

        Σ_j  k_j / c_j · (C(b_j + c_j, n) − C(b_j, n)) / C(N, n)

    for the highest of n is r_j in C(b_j + c_j, n) − C(b_j, n) of the C(N, n) subsets, and each of the c_j is as likely as the others to be
    drawn and chosen. Computed in integers and divided once.

    Args:
        rewards: N of them; None, NaN and infinities are missing, see the module.
        correct: N verdicts.
        n: samples one may look at, 1 to N.

    Returns:
        A probability: with rewards 1, 2, 3, of which the middle one is right, and n = 2 it is 1/3.

    Raises:
        ValueError: for n out of range, or sequences of different lengths.
    """
    _check(len(rewards), n)
    levels: dict[float, list[bool]] = defaultdict(list)
    for reward, right in zip(rewards, correct, strict=True):
        levels[reward if reward is not None and math.isfinite(reward) else -math.inf].append(bool(right))
    chance, below = Fraction(0), 0
    for _, rights in sorted(levels.items()):
        won = math.comb(below + len(rights), n) - math.comb(below, n)
        chance += Fraction(sum(rights) * won, len(rights))
        below += len(rights)
    return float(chance / math.comb(below, n))


def weights_of_logits(logits: Sequence[float | None], temperature: float = 1.0) -> list[float]:
    """Weights exp(logit / τ), scaled so that the largest is 1; a missing logit weighs 0. No vote depends on the scale.

    Raises:
        ValueError: τ is not positive.
    """
    if not temperature > 0:
        raise ValueError(f"weights_of_logits: the temperature τ must be positive, got {temperature}.")
    known = [logit for logit in logits if logit is not None and math.isfinite(logit)]
    top = max(known, default=0.0)
    return [math.exp((logit - top) / temperature) if logit is not None and math.isfinite(logit) else 0.0 for logit in logits]


def weighted_vote(
    answers: Sequence[str | None], correct: Sequence[bool], weights: Sequence[float | None], k: int | None = None, *, seed: int = 0
) -> float:
    """The chance that the answer with the largest sum of weights, of k random samples, is right.

    Equal strings are votes for one answer, and None is no vote, as in Maj@K, which this is where all weights are equal. Where samples with
    the same answer were judged differently, the answer is worth its share of right ones. A subset without a vote is wrong; where all its
    votes weigh 0, its answers tie.

    Exact for k = 1, for k = N, for equal weights, and where there are no more than `SUBSETS` subsets; beyond, the mean over as many seeded
    random ones.

    Args:
        answers: N normalised answers.
        correct: N verdicts on them.
        weights: N weights, say probabilities or `weights_of_logits`; missing ones count 0.
        k: samples that vote, 1 to N; all when None.
        seed: of the random subsets; the samples' order does not matter.

    Raises:
        ValueError: for k out of range, a negative weight, a right sample without an answer, or sequences of different lengths.
    """
    size = len(answers)
    k = size if k is None else k
    _check(size, k)
    given = [weight if weight is not None and math.isfinite(weight) else 0.0 for weight in weights]
    if any(weight < 0 for weight in given):
        raise ValueError(f"weighted_vote: a weight is negative: {min(given)}.")
    if any(right and answer is None for answer, right in zip(answers, correct, strict=True)):
        raise ValueError("A sample without an answer is marked right.")
    voters = sorted(
        (answer, weight, bool(right)) for answer, weight, right in zip(answers, given, correct, strict=True) if answer is not None
    )
    if not voters:
        return 0.0
    if len({weight for _, weight, _ in voters}) == 1:
        return maj_at_k(answers, correct, k, seed=seed)
    names = {name: place for place, name in enumerate(dict.fromkeys(answer for answer, _, _ in voters))}
    cast = np.zeros((size, len(names)))  # weight of each sample for each answer; samples without one come last
    voted = np.zeros((size, len(names)), dtype=bool)
    rights: dict[str, list[bool]] = defaultdict(list)
    for row, (answer, weight, right) in enumerate(voters):
        cast[row, names[answer]], voted[row, names[answer]] = weight, True
        rights[answer].append(right)
    worth = np.array([sum(rights[name]) / len(rights[name]) for name in names])
    scores = [_won(cast[rows], voted[rows], worth) for rows in _subsets(size, k, seed)]
    return math.fsum(scores) / len(scores)


def _won(cast: NDArray[np.float64], voted: NDArray[np.bool_], worth: NDArray[np.float64]) -> float:
    """What the answer with the largest sum is worth, [k, answers] each; 0 where none votes."""
    sums = [math.fsum(column) if there else -1.0 for column, there in zip(cast.T, voted.any(axis=0), strict=True)]
    top = max(sums)
    tied = [value for total, value in zip(sums, worth, strict=True) if total >= top - TIE * abs(top)]
    return float(sum(tied) / len(tied)) if top >= 0 else 0.0


def _subsets(size: int, k: int, seed: int) -> Sequence[list[int]]:
    """All subsets of k, or else `SUBSETS` seeded random ones."""
    if math.comb(size, k) <= SUBSETS:
        return [list(rows) for rows in combinations(range(size), k)]
    random = streams.generator(seed, "weighted_vote", size, k)
    return [list(np.sort(random.permutation(size)[:k])) for _ in range(SUBSETS)]


def _check(size: int, k: int) -> None:
    if not 1 <= k <= size:
        raise ValueError(f"n = {k} needs between 1 and N samples of a problem, and there are N = {size}.")
