"""The errors a user sees: what is wrong, where, and what to do.

The command line prints them without a traceback and exits with code 2. Anything else that is raised is a fault of sharpen's own.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SharpenError(Exception):
    """A fault in what the user gave, told so that the user can mend it.

    Args:
        what: what is wrong, naming the file, line, problem id or field, and what was expected.
        fix: what to do about it, as one sentence.
    """

    def __init__(self, what: str, *, fix: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix

    def __str__(self) -> str:
        return self.what if self.fix is None else f"{self.what}\n  → {self.fix}"


class RecipeError(SharpenError):
    """A recipe, or an override of one, that cannot be run."""


class ProblemError(SharpenError):
    """A problem file, data set or generator that does not give usable problems."""


class ModelError(SharpenError):
    """A model that cannot be found, loaded or used."""


class RewardError(SharpenError):
    """A reward function that cannot be loaded or returns what it must not."""


class SandboxError(SharpenError):
    """A sandbox for the code of completions that is missing or does not work."""


class RunError(SharpenError):
    """A run folder or checkpoint that cannot be written, read or resumed."""


class MissingPackageError(SharpenError):
    """An optional package that the request needs is not installed."""

    def __init__(self, package: str, *, needed_for: str, install: str) -> None:
        super().__init__(f"{needed_for} needs the package `{package}`, which is not installed.", fix=f"Run: {install}")
        self.package = package


def nearest(word: str, known: Iterable[str]) -> str:
    """`" Did you mean 'x'?"` for the known word closest to `word`, or an empty string when none is close."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f" Did you mean '{close[0]}'?" if close else ""
