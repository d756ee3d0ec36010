"""JSON as rows are read from it: what other readers would understand in another way, or could not write down again, is told."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

DEEPEST = 100
"""Levels of lists and objects in each other. Python's reader, and its copies for other processes, end with an error at some depth above."""

_BRACKET_OR_TEXT = re.compile(r'"((?:[^"\\]++|\\.)*+)"?|[\[{]|[\]}]', re.DOTALL)


class _Twice(dict[str, Any]):
    """An object that has a key twice."""

    key: str


@dataclass(frozen=True)
class _TooLong:
    """A whole number that Python does not read."""

    digits: int


def loads(text: str) -> Any:
    """The value; `fault` tells what in it is no good.

    Raises:
        json.JSONDecodeError: it is not JSON, or nested too deep.
    """
    if text.count("[") + text.count("{") > DEEPEST:
        _refuse_depth(text)
    return json.loads(text, object_pairs_hook=_pairs, parse_int=_integer)


def fault(row: Mapping[str, Any]) -> str | None:
    """What is wrong with a row, and in which field; None where all is well."""
    if isinstance(row, _Twice):
        return f"the key {row.key!r} comes twice"
    for name, value in row.items():
        if (found := _fault(name) or _fault(value)) is not None:
            return f"field {name!r}: {found}"
    return None


def _fault(value: Any) -> str | None:
    if isinstance(value, str):
        return None if value.isascii() else _half(value)
    if isinstance(value, _TooLong):
        return f"expected a number that can be read, got one of {value.digits} digits; write it as text, in double quotes"
    if isinstance(value, _Twice):
        return f"the key {value.key!r} comes twice"
    if isinstance(value, dict):
        return next((found for pair in value.items() for part in pair if (found := _fault(part)) is not None), None)
    if isinstance(value, list):
        return next((found for part in value if (found := _fault(part)) is not None), None)
    return None


def _half(text: str) -> str | None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return f"expected text, got \\u{ord(text[error.start]):04x}, which is half a character, at place {error.start}"
    return None


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    twice = _Twice(found)
    names = [name for name, _ in pairs]
    twice.key = next(name for name in names if names.count(name) > 1)
    return twice


def _integer(digits: str) -> int | _TooLong:
    try:
        return int(digits)
    except ValueError:  # Python's bound on the digits that it reads
        return _TooLong(len(digits.lstrip("-")))


def _refuse_depth(text: str) -> None:
    """Refuse what is nested too deep, naming the row's field; the text is a row, or a list of rows."""
    depth, row, name = 0, 1 if text.lstrip().startswith("{") else 2, ""
    for found in _BRACKET_OR_TEXT.finditer(text):
        if found[1] is not None:
            name = found[1] if depth == row else name
        else:
            depth += 1 if found[0] in "[{" else -1
        if depth > DEEPEST:
            raise json.JSONDecodeError(f"field '{name:.60}': lists and objects more than {DEEPEST} deep in each other", text, found.start())
