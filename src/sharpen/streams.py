"""Named, seeded random streams.

A stream is derived from the run's seed and a path of names and numbers, such as `("rollout", step, position, attempt, index)`. It
holds no state of its own: the counters in its path are the state, and those are in the checkpoint. So a resumed run draws exactly what
the uninterrupted one would have drawn, whatever was drawn in between.
"""

from __future__ import annotations

import hashlib

import numpy as np


def derive(seed: int, *path: str | int) -> int:
    """A 64-bit seed for the stream of this path; different paths give independent seeds.

    Args:
        seed: the run's seed.
        path: names and counters. `derive(1, "a", 2)` and `derive(1, "a2")` differ.
    """
    text = "\x1f".join([str(int(seed)), *(f"{type(part).__name__}:{part}" for part in path)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def generator(seed: int, *path: str | int) -> np.random.Generator:
    """A numpy generator for the stream of this path (Philox, whose output is the same on every platform)."""
    return np.random.Generator(np.random.Philox(derive(seed, *path)))


def permutation(size: int, seed: int, *path: str | int) -> list[int]:
    """A seeded permutation of `range(size)`."""
    return generator(seed, *path).permutation(size).tolist()
