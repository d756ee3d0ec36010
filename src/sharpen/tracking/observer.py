"""What a run tells whoever watches it: a progress display, plain lines, or nobody."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Observer(Protocol):
    """Watches a run."""

    def phase(self, name: str, total: int, unit: str = "completions") -> None:
        """A long piece of work begins, of `total` parts; `unit` is what they are."""
        ...

    def advance(self, count: int) -> None:
        """So many parts of the phase are done."""
        ...

    def step(self, step: int, total: int, metrics: Mapping[str, float], seconds: Mapping[str, float]) -> None:
        """A training step of `total` is done; `seconds` by part (rollout, training, step)."""
        ...

    def notice(self, text: str) -> None:
        """Something the user should know."""
        ...


class Silent:
    """An observer that watches nothing."""

    def phase(self, name: str, total: int, unit: str = "completions") -> None:
        """See `Observer.phase`."""

    def advance(self, count: int) -> None:
        """See `Observer.advance`."""

    def step(self, step: int, total: int, metrics: Mapping[str, float], seconds: Mapping[str, float]) -> None:
        """See `Observer.step`."""

    def notice(self, text: str) -> None:
        """See `Observer.notice`."""
