"""How often is the verdict on a training wrong? Simulated worlds, in which what training changed is known.

    python benchmarks/verdict.py                      # the tables of docs/verdict.md, a minute on one core
    python benchmarks/verdict.py --bootstrap 400      # and the BCa bootstrap beside them, for comparison

In a world every problem has a chance p of being solved by a sample before training, and q after. A set is n problems drawn from a world
and m samples of each, before and after. The rule is the package's own (`sharpen.evaluation.verdict`), run on all sets of a cell at once.

What is true in a world: the change of mean Pass@K at K = m, and the gain of Pass@1 within reach, each over a million problems.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import groupby, product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sharpen import streams
from sharpen.evaluation.intervals import Measure, change
from sharpen.evaluation.verdict import MARGIN, WORDS, decide, weigh

Array = NDArray[np.float64]
Shape = tuple[int, ...]
World = Callable[[np.random.Generator, Shape, int], tuple[Array, Array]]
TRUTH = 1_000_000


def odds(p: Array, factor: float) -> Array:
    """The chance whose odds are `factor` times those of p; 0 stays 0."""
    return p * factor / (1 - p + p * factor)


def mixed(rng: np.random.Generator, shape: Shape, never: float = 0.3, a: float = 1.5, b: float = 3.0) -> tuple[Array, Array]:
    """Chances of Beta(a, b), and 0 for a share of problems; and a uniform number for each problem, below `never` where it is 0."""
    u = rng.random(shape)
    return np.where(u < never, 0.0, rng.beta(a, b, shape)), u


def unchanged(rng: np.random.Generator, shape: Shape, m: int) -> tuple[Array, Array]:
    p, _ = mixed(rng, shape)
    return p, p


def unchanged_hard(rng: np.random.Generator, shape: Shape, m: int) -> tuple[Array, Array]:
    p = rng.beta(0.5, 20.0, shape)
    return p, p


def shuffled(rng: np.random.Generator, shape: Shape, m: int) -> tuple[Array, Array]:
    """Of the problems within reach, each is as hard as another one was before: much changes, and nothing on average."""
    p, u = mixed(rng, shape)
    return p, np.where(u < 0.3, 0.0, rng.beta(1.5, 3.0, shape))


def sharpened(rng: np.random.Generator, shape: Shape, m: int, factor: float = 8.0) -> tuple[Array, Array]:
    p, _ = mixed(rng, shape)
    return p, odds(p, factor)


def sharpened_lossy(rng: np.random.Generator, shape: Shape, m: int) -> tuple[Array, Array]:
    p, u = mixed(rng, shape)
    return p, np.where(u > 0.9, 0.0, odds(p, 8.0))


def margin_noisy(rng: np.random.Generator, shape: Shape, m: int) -> tuple[Array, Array]:
    """Reach rises by exactly the margin, by newly solvable problems; many others have small chances, and flip."""
    p, u = mixed(rng, shape, a=0.5, b=8.0)
    return p, np.where(u < MARGIN / solved(m), rng.beta(2.0, 2.0, shape), p)


def margin_quiet(rng: np.random.Generator, shape: Shape, m: int) -> tuple[Array, Array]:
    """Reach rises by exactly the margin, and nothing else ever flips."""
    p, u = mixed(rng, shape, a=40.0, b=40.0)
    return p, np.where(u < MARGIN, 1.0, p)


def margin_sharpened(rng: np.random.Generator, shape: Shape, m: int) -> tuple[Array, Array]:
    """Reach rises by exactly the margin, in part by newly solvable problems, and what was within reach is sharpened."""
    p, u = mixed(rng, shape)
    return p, np.where(u < (MARGIN - sharpening_alone(m)) / solved(m), rng.beta(2.0, 2.0, shape), odds(p, 8.0))


def extended(rng: np.random.Generator, shape: Shape, m: int) -> tuple[Array, Array]:
    p, u = mixed(rng, shape)
    return p, np.where(u < 0.15, rng.beta(1.0, 3.0, shape), p)


def extended_much(rng: np.random.Generator, shape: Shape, m: int) -> tuple[Array, Array]:
    p, u = mixed(rng, shape, never=0.5)
    return p, np.where(u < 0.35, rng.beta(1.0, 3.0, shape), p)


def both(rng: np.random.Generator, shape: Shape, m: int) -> tuple[Array, Array]:
    p, u = mixed(rng, shape, never=0.4)
    return p, np.where(u < 0.2, rng.beta(1.0, 3.0, shape), odds(p, 8.0))


def ceiling(rng: np.random.Generator, shape: Shape, m: int) -> tuple[Array, Array]:
    p = rng.beta(3.0, 4.0, shape)
    return p, odds(p, 8.0)


def near_ceiling(rng: np.random.Generator, shape: Shape, m: int) -> tuple[Array, Array]:
    """5 % of problems are out of reach before and after: Pass@K is just at the ceiling's edge."""
    p, _ = mixed(rng, shape, never=MARGIN, a=20.0, b=20.0)
    return p, odds(p, 8.0)


WORLDS: dict[str, tuple[World, str]] = {
    "unchanged": (unchanged, "no clear change"),
    "unchanged, hard": (unchanged_hard, "no clear change"),
    "shuffled: nothing on average": (shuffled, "no clear change"),
    "+ margin, many flips": (margin_noisy, "no clear change"),
    "+ margin, no flips": (margin_quiet, "no clear change"),
    "+ margin, odds × 8": (margin_sharpened, "no clear change"),
    "ceiling, odds × 8": (ceiling, "no clear change"),
    "ceiling's edge, odds × 8": (near_ceiling, "no clear change"),
    "odds × 1.5": (partial(sharpened, factor=1.5), "sharpened"),
    "odds × 8": (sharpened, "sharpened"),
    "odds × 8, a tenth lost": (sharpened_lossy, "sharpened"),
    "15 % newly solvable": (extended, "extended"),
    "35 % newly solvable": (extended_much, "extended"),
    "20 % new, odds × 8": (both, "both"),
}
"""Each world, and the word that is right for it where the data suffice."""


@lru_cache
def solved(m: int) -> float:
    """Mean Pass@m of a problem of Beta(2, 2)."""
    q = streams.generator(0, "solved").beta(2.0, 2.0, TRUTH)
    return float((1 - (1 - q) ** m).mean())


@lru_cache
def sharpening_alone(m: int) -> float:
    """By how much odds × 8 raise Pass@m."""
    p, _ = mixed(streams.generator(0, "alone"), (TRUTH,))
    return float(((1 - p) ** m - (1 - odds(p, 8.0)) ** m).mean())


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A world at a size, n problems and m samples: what is true, and how often each word was said.

    Attributes:
        reach: the true change of mean Pass@m.
        within: the true gain of Pass@1 within reach.
        words: the share of sets by word.
        missed: by interval, how often the truth lay above it, and below it.
    """

    world: str
    right: str
    problems: int
    samples: int
    reach: float
    within: float
    words: dict[str, float]
    missed: dict[str, tuple[float, float]]

    @property
    def false_extended(self) -> float | None:
        """How often growth of reach was claimed; None where reach did grow by more than the margin."""
        return None if self.reach > MARGIN + 0.001 else self.words["extended"] + self.words["both"]


def simulate(name: str, problems: int, samples: int, sets: int, seed: int) -> Cell:
    """One cell."""
    world, right = WORLDS[name]
    reach, within = truth(name, samples, seed)
    random = streams.generator(seed, "sets", name, problems, samples)
    p, q = world(random, (sets, problems), samples)
    found = weigh(random.binomial(samples, p), random.binomial(samples, q), samples, samples)
    words = decide(found, MARGIN)
    intervals = {"reach": (found.reach, reach), "within": (found.within, within)}
    return Cell(
        world=name,
        right=right,
        problems=problems,
        samples=samples,
        reach=reach,
        within=within,
        words={word: float((words == place).mean()) for place, word in enumerate(WORDS)},
        missed={key: (float((ends[2] < true).mean()), float((ends[1] > true).mean())) for key, (ends, true) in intervals.items()},
    )


@lru_cache
def truth(name: str, samples: int, seed: int) -> tuple[float, float]:
    """The true change of mean Pass@m and the true gain within reach."""
    p, q = WORLDS[name][0](streams.generator(seed, "truth", name, samples), (TRUTH,), samples)
    reach = ((1 - p) ** samples - (1 - q) ** samples).mean()
    return float(reach), float(((1 - (1 - p) ** (samples - 1)) * (q - p)).mean())


def bootstrap_misses(name: str, problems: int, samples: int, sets: int, seed: int) -> tuple[float, float]:
    """How often the truth lies above and below the BCa interval of the change of Pass@m, which the rule does not use."""
    reach, _ = truth(name, samples, seed)
    random = streams.generator(seed, "sets", name, problems, samples)
    p, q = WORLDS[name][0](random, (sets, problems), samples)
    before, after = random.binomial(samples, p) > 0, random.binomial(samples, q) > 0
    found = [change(Measure(old), Measure(new)) for old, new in zip(before, after, strict=True)]
    return sum(one.high < reach for one in found) / sets, sum(one.low > reach for one in found) / sets


def tables(cells: list[Cell], sizes: list[int]) -> Iterator[str]:
    """The tables of docs/verdict.md, as Markdown."""
    head = f"| world | m | Pass@m | within | {' | '.join(f'n = {n}' for n in sizes)} |\n|---|---|---|---|" + "---|" * len(sizes)
    rows = [list(row) for _, row in groupby(cells, key=lambda cell: (cell.world, cell.samples))]
    yield f"False `extended` or `both`, % of sets, where Pass@m truly changes by no more than the margin\n\n{head}"
    for row in rows:
        if row[0].false_extended is not None:
            yield _line(row, [f"{100 * (cell.false_extended or 0):.1f}" for cell in row])
    yield f"\nThe largest: {max(100 * (cell.false_extended or 0) for cell in cells):.1f} %\n"
    yield f"`sharpened` / `extended` / `both`, % of sets, the rest being `no clear change`; the right word is bold\n\n{head}"
    for row in rows:
        yield _line(row, [_words(cell) for cell in row])
    yield f"\nThe truth above / below the interval, % of sets: change of Pass@m; gain within reach\n\n{head}"
    for row in rows:
        yield _line(row, ["; ".join(f"{100 * a:.1f} / {100 * b:.1f}" for a, b in cell.missed.values()) for cell in row])


def _line(row: list[Cell], shown: list[str]) -> str:
    first = row[0]
    figures = (f"{round(100 * value, 1) + 0.0:+.1f}" for value in (first.reach, first.within))
    return f"| {first.world} | {first.samples} | {' | '.join(figures)} | {' | '.join(shown)} |"


def _words(cell: Cell) -> str:
    shares = {word: f"{100 * cell.words[word]:.0f}" for word in ("sharpened", "extended", "both")}
    return " / ".join(f"**{share}**" if word == cell.right else share for word, share in shares.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=4_000, help="of a cell")
    parser.add_argument("--problems", type=int, nargs="+", default=[30, 60, 120, 250, 500])
    parser.add_argument("--samples", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bootstrap", type=int, default=0, metavar="SETS", help="also measure the BCa interval, on so many sets of a cell")
    parser.add_argument("--json", type=Path, help="a file for every cell")
    options = parser.parse_args()
    began = time.monotonic()
    sizes = list(product(WORLDS, options.samples, options.problems))
    cells = [simulate(name, problems, samples, options.sets, options.seed) for name, samples, problems in sizes]
    for text in tables(cells, options.problems):
        print(text)
    if options.bootstrap:
        print("\nThe truth above / below the BCa interval of the change of Pass@m, % of sets\n\n| world | m | n | BCa |\n|---|---|---|---|")
        for name, samples, problems in sizes:
            above, below = bootstrap_misses(name, problems, samples, options.bootstrap, options.seed)
            print(f"| {name} | {samples} | {problems} | {100 * above:.1f} / {100 * below:.1f} |", flush=True)
    print(f"\n{options.sets:,} sets a cell, seed {options.seed}, margin {100 * MARGIN:g} points, {time.monotonic() - began:.0f} s")
    if options.json is not None:
        options.json.write_text(json.dumps([vars(cell) for cell in cells], indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
