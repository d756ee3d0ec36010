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
    the same answer were judged differently, the answer is worth its share of right ones. A subset without a vote is wrong; one whose votes
    all weigh 0 counts them alike, as it would with any other equal weights.

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
    cast, voted = np.zeros((size, len(names))), np.zeros((size, len(names)))  # samples without an answer come last
    rights: dict[str, list[bool]] = defaultdict(list)
    for row, (answer, weight, right) in enumerate(voters):
        cast[row, names[answer]], voted[row, names[answer]] = weight, 1.0
        rights[answer].append(right)
    worth = np.array([sum(rights[name]) / len(rights[name]) for name in names])
    drawn = _subsets(size, k, seed)
    there = drawn @ voted > 0
    sums = drawn @ cast
    sums = np.where(sums.max(axis=1, keepdims=True) > 0, sums, drawn @ voted)
    sums = np.where(there, sums, -1.0)
    top = sums.max(axis=1, keepdims=True)
    tied = there & (sums >= top - TIE * np.abs(top))
    return float((tied @ worth / np.maximum(tied.sum(axis=1), 1)).mean())


def elected(answers: Sequence[str | None], weights: Sequence[float | None]) -> list[str]:
    """The answers with the largest sum of weights, in the order in which they come: several where they tie, none where nobody votes.

    Votes that all weigh 0 count alike, as in `weighted_vote`.
    """
    sums: dict[str, list[float]] = defaultdict(list)
    for answer, weight in zip(answers, weights, strict=True):
        if answer is not None:
            sums[answer].append(weight if weight is not None and math.isfinite(weight) else 0.0)
    totals = {answer: math.fsum(given) for answer, given in sums.items()}
    if not any(totals.values()):
        totals = {answer: float(len(given)) for answer, given in sums.items()}
    top = max(totals.values(), default=0.0)
    return [answer for answer, total in totals.items() if total >= top - TIE * abs(top)]


def _subsets(size: int, k: int, seed: int) -> NDArray[np.float64]:
    """All subsets of k, or else `SUBSETS` seeded random ones: 1 where a sample is drawn, [subsets, N]."""
    if math.comb(size, k) <= SUBSETS:
        chosen = np.array(list(combinations(range(size), k)))
    else:
        chosen = streams.generator(seed, "weighted_vote", size, k).random((SUBSETS, size)).argsort(axis=1)[:, :k]
    drawn = np.zeros((len(chosen), size))
    np.put_along_axis(drawn, chosen, 1.0, axis=1)
    return drawn


def _check(size: int, k: int) -> None:
    if not 1 <= k <= size:
        raise ValueError(f"n = {k} needs between 1 and N samples of a problem, and there are N = {size}.")
