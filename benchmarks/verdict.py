"""How often is the verdict on a training wrong? Simulated worlds, in which what training changed is known.

    python benchmarks/verdict.py                      # the tables of docs/verdict.md, about a minute on one core
    python benchmarks/verdict.py --sets 10000 --json verdict.json

In a world every problem has a chance p of being solved by a sample before training, and q after. A set is n problems drawn from a world and m
samples of each, before and after. The rule is the package's own (`sharpen.evaluation.verdict`), run on all sets of a cell at once.

What is true in a world: the change of mean Pass@K at K = m, the gain of Pass@1 within reach, and whether both models are at the ceiling
(Pass@K at least 1 − margin), each over a million problems.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sharpen import streams
from sharpen.evaluation.intervals import Measure, change, stepped
from sharpen.evaluation.pass_at_k import pass_at_k
from sharpen.evaluation.verdict import MARGIN, WORDS, decide, weigh

Array = NDArray[np.float64]
World = Callable[[np.random.Generator, tuple[int, ...], int], tuple[Array, Array]]
TRUTH = 1_000_000


def odds(p: Array, factor: float) -> Array:
    """The chance whose odds are `factor` times those of p; 0 stays 0."""
    return p * factor / (1 - p + p * factor)


def mixed(rng: np.random.Generator, shape: tuple[int, ...], never: float = 0.3, a: float = 1.5, b: float = 3.0) -> tuple[Array, Array]:
    """Chances of Beta(a, b), and 0 for a share of problems; and a uniform number for each problem, below `never` where it is 0."""
    u = rng.random(shape)
    return np.where(u < never, 0.0, rng.beta(a, b, shape)), u


def unchanged(rng, shape, m):
    p, _ = mixed(rng, shape)
    return p, p


def unchanged_hard(rng, shape, m):
    p = rng.beta(0.5, 20.0, shape)
    return p, p


def sharpened(rng, shape, m):
    p, _ = mixed(rng, shape)
    return p, odds(p, 8.0)


def sharpened_little(rng, shape, m):
    p, _ = mixed(rng, shape)
    return p, odds(p, 1.5)


def sharpened_lossy(rng, shape, m):
    p, u = mixed(rng, shape)
    return p, np.where(u > 0.9, 0.0, odds(p, 8.0))


def margin_only(rng, shape, m):
    """Reach rises by exactly the margin, by problems that become solvable; the others keep chances near 1 / m, so that many flip by chance."""
    p, u = mixed(rng, shape, 0.3, 0.5, 8.0)
    q = np.where(u < MARGIN / _solved(m), rng.beta(2.0, 2.0, shape), p)
    return p, q


def margin_quiet(rng, shape, m):
    """Reach rises by exactly the margin, and nothing else ever flips."""
    p, u = mixed(rng, shape, 0.3, 40.0, 40.0)
    return p, np.where(u < MARGIN, 1.0, p)


def margin_sharpened(rng, shape, m):
    """The same, and what was within reach is sharpened."""
    p, u = mixed(rng, shape)
    factor = 8.0
    q = odds(p, factor)
    return p, np.where(u < _rest(m, factor) / _solved(m), rng.beta(2.0, 2.0, shape), q)


def extended(rng, shape, m):
    p, u = mixed(rng, shape)
    return p, np.where(u < 0.15, rng.beta(1.0, 3.0, shape), p)


def extended_much(rng, shape, m):
    p, u = mixed(rng, shape, 0.5)
    return p, np.where(u < 0.35, rng.beta(1.0, 3.0, shape), p)


def both(rng, shape, m):
    p, u = mixed(rng, shape, 0.4)
    return p, np.where(u < 0.2, rng.beta(1.0, 3.0, shape), odds(p, 8.0))


def ceiling(rng, shape, m):
    p = rng.beta(3.0, 4.0, shape)
    return p, odds(p, 8.0)


def ceiling_easy(rng, shape, m):
    p = rng.beta(6.0, 2.0, shape)
    return p, odds(p, 4.0)


WORLDS: dict[str, World] = {
    "unchanged": unchanged,
    "unchanged, hard": unchanged_hard,
    "sharpened (odds × 8)": sharpened,
    "sharpened a little (odds × 1.5)": sharpened_little,
    "sharpened, 10 % lost": sharpened_lossy,
    "reach + margin, noisy": margin_only,
    "reach + margin, quiet": margin_quiet,
    "sharpened, reach + margin": margin_sharpened,
    "extended (15 % newly solvable)": extended,
    "extended (35 % newly solvable)": extended_much,
    "both (20 % new, odds × 8)": both,
    "ceiling, odds × 8": ceiling,
    "ceiling, easy": ceiling_easy,
}


def _solved(m: int) -> float:
    """Mean Pass@m of a problem of Beta(2, 2)."""
    q = np.random.default_rng(0).beta(2.0, 2.0, TRUTH)
    return float((1 - (1 - q) ** m).mean())


def _rest(m: int, factor: float) -> float:
    """What sharpening leaves of the margin."""
    p, _ = mixed(np.random.default_rng(0), (TRUTH,))
    return MARGIN - float(((1 - p) ** m - (1 - odds(p, factor)) ** m).mean())
