"""What math-verify reads and our own grammar does not: its parser, and a stricter comparison of what it parses."""

from __future__ import annotations

import functools
import logging
from typing import Any

RELATIVE_TOLERANCE = 1e-12


@functools.cache
def _library() -> Any:
    """math-verify, without its log: what it would say there is in the verdict."""
    import math_verify

    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    return math_verify


def prepare() -> None:
    """Import what parsing needs; that takes seconds."""
    parse(r"\frac{x}{2}")


@functools.lru_cache(maxsize=4096)
def parse(text: str) -> Any:
    """The answer as a SymPy object; None when it is not mathematics. It may take long: give it a limit."""
    library = _library()
    # The box tells math-verify that all of the text is the answer; the time limit is ours.
    found = library.parse(rf"\boxed{{{text}}}", [library.LatexExtractionConfig()], fallback_mode="no_fallback", parsing_timeout=None)
    return found[0] if found else None


def equal(gold: Any, answer: Any) -> bool:
    """Whether two SymPy objects are equal, part by part where they have parts. It may take long: give it a limit."""
    if _is_number(gold) and _is_number(answer):
        return _equal_numbers(gold, answer)
    our_parts, their_parts = _parts(gold), _parts(answer)
    if our_parts and their_parts and our_parts[0] == their_parts[0]:
        kind, ours, theirs = our_parts[0], our_parts[1], their_parts[1]
        if len(ours) != len(theirs):
            return False
        return _same_elements(ours, theirs) if kind == "set" else all(equal(*pair) for pair in zip(ours, theirs, strict=True))
    return bool(_library().verify(gold, answer, float_rounding=12, timeout_seconds=None))


def _same_elements(ours: tuple[Any, ...], theirs: tuple[Any, ...]) -> bool:
    """Whether each element has an equal of its own, in any order."""
    left = list(theirs)
    for one in ours:
        place = next((place for place, other in enumerate(left) if equal(one, other)), None)
        if place is None:
            return False
        del left[place]
    return True


def _parts(value: Any) -> tuple[str, tuple[Any, ...]] | None:
    """What kind of collection a value is, and its parts: an open interval `(1, 2)` is a pair; None when it has no parts."""
    import sympy

    if isinstance(value, sympy.Tuple):
        return "tuple", value.args
    if isinstance(value, sympy.Interval):
        return ("tuple" if value.is_open else f"interval {value.left_open} {value.right_open}"), (value.start, value.end)
    if isinstance(value, sympy.FiniteSet):
        return "set", value.args
    return None


def _is_number(value: Any) -> bool:
    import sympy

    return isinstance(value, sympy.Expr) and bool(value.is_number)


def _equal_numbers(gold: Any, answer: Any) -> bool:
    """Whether two constants agree to 12 digits. Only relative: 1/2004! and 1/2006! are both nearly 0, and different."""
    import sympy

    if gold == answer:
        return True
    values = sympy.N(gold, 30), sympy.N(answer, 30)
    if not all(value.is_finite for value in values):  # every difference is within a tolerance relative to infinity
        return False
    if 0 in values:
        return bool(sympy.simplify(gold - answer) == 0)
    return bool(abs(values[0] - values[1]) <= RELATIVE_TOLERANCE * max(abs(values[0]), abs(values[1])))
