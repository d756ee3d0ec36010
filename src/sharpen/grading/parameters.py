"""What a problem may say about how its grader compares: `meta["grading"]`, a table of the parameters below."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from sharpen.errors import nearest

KEY = "grading"
"""Of a problem's `meta`."""


def _tolerance(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and 2 <= len(value) <= 26 and all(isinstance(one, str) for one in value)


_Check = tuple[Callable[[Any], bool], str]
_TOLERANCE: _Check = (_tolerance, "a number, 0 or more")
_FLAG: _Check = (_flag, "true or false")

PARAMETERS: Mapping[str, Mapping[str, _Check]] = {
    "math": {"mode": (lambda value: value in ("strict", "paper"), '"strict" or "paper"')},
    "choice": {"choices": (_texts, "the texts of 2 to 26 options")},
    "exact": {"ignore_case": _FLAG},
    "numeric": {"absolute": _TOLERANCE, "relative": _TOLERANCE},
    "regex": {"ignore_case": _FLAG, "whole_text": _FLAG},
}
"""By kind of problem and name: whether a value will do, and what is expected."""


def parameter_fault(kind: str, given: Any) -> str | None:
    """Why these parameters will not do for this kind of problem; None when they will."""
    known = PARAMETERS.get(kind, {})
    if not isinstance(given, Mapping):
        return f"expected a table of parameters, got {given!r:.60}"
    for name, value in given.items():
        if name not in known:
            return f"the kind '{kind}' has no parameter '{name}'.{nearest(name, known)} It has {', '.join(known) or 'none'}"
        will_do, expected = known[name]
        if not will_do(value):
            return f"{name}: expected {expected}, got {value!r:.60}"
    return None
