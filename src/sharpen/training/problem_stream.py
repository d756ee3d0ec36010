"""The order in which training meets its problems: a new seeded permutation each epoch, and a position that the checkpoint keeps."""

from __future__ import annotations

from collections.abc import Sequence

from sharpen.records import Problem
from sharpen.streams import permutation


class ProblemStream:
    """Endless problems.

    Args:
        problems: what to draw from; at least one.
        seed: the run's.
        position: how many have been drawn before.
    """

    def __init__(self, problems: Sequence[Problem], seed: int, *, position: int = 0) -> None:
        self.problems, self.seed, self.position = problems, seed, position
        self._epoch, self._order = -1, list[int]()

    def take(self, count: int) -> list[Problem]:
        """The next `count` problems; an epoch visits each once before the next begins."""
        out = []
        for _ in range(count):
            epoch, offset = divmod(self.position, len(self.problems))
            if epoch != self._epoch:
                self._epoch, self._order = epoch, permutation(len(self.problems), self.seed, "problems", epoch)
            out.append(self.problems[self._order[offset]])
            self.position += 1
        return out
