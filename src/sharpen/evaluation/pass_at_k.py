"""Pass@K and Maj@K from n samples of one problem.

Both are expectations over a uniformly random subset of K of the n samples, drawn without replacement; so no sample's place in the list
matters, and Maj@1 = Pass@1. "Any of the first K" and "the majority of the first K" have the same mean and more noise.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from sharpen import streams

EXACT_SAMPLES = 128
"""Maj@K is computed exactly for up to this many samples a problem."""

SUBSETS = 10_000
"""Random subsets that Maj@K is averaged over for more samples than that (standard error at most 0.005)."""

Tally = tuple[tuple[int, int], ...]


def pass_at_k(n: int, c: int, k: int) -> float:
    """The chance that at least one of k samples is right, of n samples of which c are right.

    `1 − C(n−c, k) / C(n, k)`, the unbiased estimator of Chen et al. 2021 (arXiv:2107.03374, equation 1). Computed in integers and divided
    once, so the result is the nearest float to the true value.

    Args:
        n: samples of the problem.
        c: how many of them are right, 0 to n.
        k: samples one may look at, 1 to n.

    Returns:
        A probability: `pass_at_k(10, 3, 5)` is 1 − 21/252 = 0.9166….

    Raises:
        ValueError: for k > n, which n samples cannot tell, and for a count out of range.
    """
    _check_k(n, k)
    if not 0 <= c <= n:
        raise ValueError(f"pass_at_k: {c} right of {n} samples; expected 0 to {n}.")
    total = math.comb(n, k)
    return (total - math.comb(n - c, k)) / total


def maj_at_k(answers: Sequence[str | None], correct: Sequence[bool], k: int, *, seed: int = 0) -> float:
    """The chance that the majority answer of k random samples is right; see `maj_at_ks`."""
    return maj_at_ks(answers, correct, [k], seed=seed)[k]


def maj_at_ks(answers: Sequence[str | None], correct: Sequence[bool], ks: Iterable[int], *, seed: int = 0) -> dict[int, float]:
    """Maj@K of one problem for each K: the expectation over random subsets of K samples of whether their majority answer is right.

    Equal strings are votes for one answer, so the caller passes normalised answers. None is no vote. Among answers with equally many votes
    one is chosen at random, in expectation: `7, 8` with 8 right gives 0.5. A subset without a vote is wrong. Where samples with the same
    answer were judged differently (say, because only finished completions count), the answer is worth its share of right ones.

    Exact for K = 1, for K = n, and for every K up to `EXACT_SAMPLES` samples; beyond, the mean over `SUBSETS` seeded random subsets.

    Args:
        answers: n normalised answers, one a sample, None where a completion has none.
        correct: n verdicts on them; a sample without an answer cannot be right.
        ks: subset sizes, each 1 to n.
        seed: of the random subsets; the samples' order does not matter.

    Returns:
        Maj@K by K.

    Raises:
        ValueError: for k > n, sequences of different lengths, or a right sample without an answer.
    """
    n, ks = len(answers), list(ks)
    for k in ks:
        _check_k(n, k)
    tally, silent = _tally(answers, correct)
    between = [k for k in ks if 1 < k < n]
    if not between:
        values = {}
    elif n <= EXACT_SAMPLES:
        values = dict(zip(between, _exact(tally, silent, tuple(between)), strict=True))
    else:
        values = {k: _sampled(tally, silent, k, seed) for k in between}
    values |= {1: sum(right for _, right in tally) / n, n: _whole(tally)}
    return {k: values[k] for k in ks}


def _check_k(n: int, k: int) -> None:
    if not 1 <= k <= n:
        raise ValueError(f"K = {k} needs between 1 and n samples of a problem, and there are n = {n}: draw at least {k}.")


def _tally(answers: Sequence[str | None], correct: Sequence[bool]) -> tuple[Tally, int]:
    """(votes, right votes) of each answer in a fixed order, and the number of samples without a vote."""
    votes: dict[str, list[bool]] = defaultdict(list)
    for answer, right in zip(answers, correct, strict=True):
        if answer is not None:
            votes[answer].append(bool(right))
        elif right:
            raise ValueError("A sample without an answer is marked right.")
    tally = tuple(sorted((len(rights), sum(rights)) for rights in votes.values()))
    return tally, len(answers) - sum(count for count, _ in tally)


def _whole(tally: Tally) -> float:
    """Maj@n: the vote of all samples."""
    top = max((count for count, _ in tally), default=0)
    tied = [right / count for count, right in tally if count == top]
    return sum(tied) / len(tied) if tied else 0.0


@lru_cache(maxsize=65536)
def _exact(tally: Tally, silent: int, ks: tuple[int, ...]) -> tuple[float, ...]:
    """Σ over answers of (share right) × P(it wins a random subset of k)."""
    n = silent + sum(count for count, _ in tally)
    worth: dict[int, float] = defaultdict(float)
    for count, right in tally:
        if right:
            worth[count] += right / count
    totals = np.zeros(n + 1)
    for count, value in worth.items():
        rivals = [other for other, _ in tally]
        rivals.remove(count)
        totals += value * _winning_subsets(count, rivals, silent)
    return tuple(min(1.0, float(totals[k]) / math.comb(n, k)) for k in ks)


def _winning_subsets(count: int, rivals: list[int], silent: int) -> NDArray[np.float64]:
    """The number of subsets of each size that an answer wins; a tie with t others counts 1 / (t + 1).

    With j of its `count` samples drawn, the answer wins where no rival has more than j. The coefficient of x^s y^t in

        (1 + x)^silent · Π_rivals (Σ_{v<j} C(r, v) x^v  +  y C(r, j) x^j)

    counts the draws of s other samples in which t rivals tie. All terms are positive, so nothing cancels.

    Returns:
        float64 [n + 1], by subset size.
    """
    others = silent + sum(rivals)
    wins = np.zeros(count + others + 1)
    for j in range(1, count + 1):
        strong = [rival for rival in rivals if rival >= j]
        free = others - sum(strong)
        ways = np.zeros((len(strong) + 1, others + 1))  # [ties, samples drawn]
        ways[0, : free + 1] = [math.comb(free, v) for v in range(free + 1)]
        for rival in strong:
            drawn = np.zeros_like(ways)
            for v in range(j):
                drawn += math.comb(rival, v) * _shift(ways, v)
            drawn[1:] += math.comb(rival, j) * _shift(ways, j)[:-1]
            ways = drawn
        shares = 1 / np.arange(1, len(strong) + 2)
        wins[j : j + others + 1] += math.comb(count, j) * (shares @ ways)
    return wins


def _shift(ways: NDArray[np.float64], by: int) -> NDArray[np.float64]:
    """Times x^by."""
    out = np.zeros_like(ways)
    out[:, by:] = ways[:, : ways.shape[1] - by]
    return out


def _sampled(tally: Tally, silent: int, k: int, seed: int) -> float:
    """The mean over seeded random subsets of k."""
    if not tally:
        return 0.0
    counts, rights = np.array(tally).T
    random = streams.generator(seed, "maj_at_k", int(counts.sum()) + silent, k)
    votes = random.multivariate_hypergeometric([*counts, silent], k, size=SUBSETS)[:, :-1]
    top = votes.max(axis=1, keepdims=True)
    tied = (votes == top) & (top > 0)
    return float((tied @ (rights / counts) / np.maximum(tied.sum(axis=1), 1)).mean())
