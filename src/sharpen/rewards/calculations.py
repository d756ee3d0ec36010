"""Calculations in prose: what stands on both sides of an equality sign, where that is numbers and operations alone.

Wider than `equations`: parentheses, signs, chains `a = b = c`, amounts of money and percentages, and decimals that are rounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from sharpen.grading import numeric
from sharpen.grading.expressions import read_expression
from sharpen.grading.falsehood import is_false

LONGEST = 200  # characters of a side; a longer one is not read
_SIGNS = r"[-+*/().\d %]"
_TAIL, _HEAD = re.compile(rf"{_SIGNS}*$"), re.compile(rf"{_SIGNS}*")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_TIMES = re.compile(r"[×·]|(?<=[\d)%])\s*[xX]\s*(?=[\d(])")
_LETTER_BEFORE = re.compile(r"(?:\w|(?:^|[^\w])[A-Za-z]\s+)$")  # it is a part of a larger expression: `f(3)`, `A - 3`
_ADJACENT, _ALONE = re.compile(r"\w"), re.compile(r"[A-Za-z]\b")  # `3x`, and `3 x`
_STOP = re.compile(r"\.\s+")
_OPERATION = re.compile(r"[\d)%]\s*[-+*/(]")


def calculations(steps: Sequence[Sequence[str]]) -> list[list[float | None]]:
    """1 for a step whose calculations all hold, 0 for one with one that does not, None for one without any.

    A calculation is an equality of two sides of numbers and operations, at least one operation among them: `(2 + 3) * -4 = -20`. A decimal
    may be rounded, `2/3 = 0.67`, and a percentage may be meant with its sign or without, `3/4 * 100 = 75%`.
    """
    return [[_holds(text) for text in one] for one in steps]


def _holds(text: str) -> float | None:
    found = [value for sides in _equalities(text) if (value := _is_true(sides)) is not None]
    return float(all(found)) if found else None


def _is_true(sides: Sequence[str]) -> bool | None:
    """Whether two sides are equal; None where a number is too large to tell."""
    try:
        for side in sides:
            node = read_expression(side)
            assert node is not None
            numeric.value(node)
    except numeric.UndefinedError:
        return False
    except numeric.TooLargeError:
        return None
    return not is_false(sides) or not is_false([side.replace("%", "") for side in sides])


def _equalities(text: str) -> Iterator[list[str]]:
    """The pairs of sides that can be read."""
    for line in text.splitlines():
        plain = _TIMES.sub("*", _THOUSANDS.sub("", line).replace("÷", "/").replace("−", "-").replace("$", ""))
        for left, right in pairwise(plain.split("=")):
            one, other = _tail(left), _head(right)
            if one and other and (_OPERATION.search(one) or _OPERATION.search(other)) and _is_constant(one) and _is_constant(other):
                yield [one, other]


def _is_constant(side: str) -> bool:
    return len(side) <= LONGEST and (node := read_expression(side)) is not None and not node.symbols()


def _tail(text: str) -> str | None:
    """What a text ends in, as a side; None where it begins within something larger."""
    found = _TAIL.search(text)
    assert found is not None
    cut = _STOP.split(found[0])
    side, before = cut[-1], text[: found.start()] if len(cut) == 1 else ""
    opens = side.lstrip()[:1]
    space = side[: len(side) - len(side.lstrip())]
    dangles = opens in ("+", "*", "/", ")", "%") or (opens == "-" and side.lstrip()[1:2] == " ")
    if dangles or _LETTER_BEFORE.search(before + space):
        return None
    return side.strip()


def _head(text: str) -> str | None:
    """What a text begins with, as a side; None where it goes on within something larger."""
    found = _HEAD.match(text)
    assert found is not None
    stop = re.search(r"\.(?=\s|$)", found[0])
    if stop is not None:
        return found[0][: stop.start()].strip()
    if found[0].endswith("("):  # what follows in parentheses is no number
        return found[0][:-1].strip()
    adjacent = found[0][-1:].strip() != ""
    return None if (_ADJACENT if adjacent else _ALONE).match(text, found.end()) else found[0].strip()
