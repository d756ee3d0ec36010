r"""Cutting an answer at separators that stand in no brackets, braces or environments."""

from __future__ import annotations

import re
from collections.abc import Callable

_STEP = re.compile(r"\\begin\s*\{[a-z]*\}|\\end\s*\{[a-z]*\}|\\[{}]|\\langle|\\rangle|[(\[{]|[)\]}]|\\[A-Za-z]+|\\.|.", re.DOTALL)
_OPENING = ("(", "[", "{", r"\{", r"\langle")
_CLOSING = (")", "]", "}", r"\}", r"\rangle")


def cut(text: str, is_separator: Callable[[str, int], int]) -> tuple[list[str], list[str]]:
    """The parts of a text between separators at its top level, and the separators.

    Args:
        text: what to cut.
        is_separator: given the text and a place, the length of the separator there, 0 when there is none.
    """
    parts: list[str] = []
    separators: list[str] = []
    depth = place = start = 0
    while place < len(text):
        length = is_separator(text, place) if depth == 0 else 0
        if length:
            parts.append(text[start:place].strip())
            separators.append(text[place : place + length].strip())
            place = start = place + length
            continue
        step = _STEP.match(text, place)
        if step is None:  # never: the last alternative takes any character
            break
        token = step[0]
        if token in _OPENING or token.startswith(r"\begin"):
            depth += 1
        elif token in _CLOSING or token.startswith(r"\end"):
            depth = max(0, depth - 1)
        place = step.end()
    parts.append(text[start:].strip())
    return parts, separators


def by(pattern: str) -> Callable[[str, int], int]:
    """A finder of separators that match a regular expression."""
    compiled = re.compile(pattern)

    def length(text: str, place: int) -> int:
        match = compiled.match(text, place)
        return len(match[0]) if match else 0

    return length


def bracketed(text: str) -> tuple[str, str, str] | None:
    r"""The opening bracket, the inside and the closing bracket of a text that one pair of brackets encloses; None for any other."""
    opening = next((mark for mark in _OPENING if text.startswith(mark)), None)
    closing = next((mark for mark in _CLOSING if text.endswith(mark)), None)
    if opening is None or closing is None or len(text) < len(opening) + len(closing):
        return None
    if closing == "}" and text.endswith(r"\}"):
        closing = r"\}"
    depth = place = 0
    while place < len(text):
        step = _STEP.match(text, place)
        if step is None:
            return None
        depth += (step[0] in _OPENING or step[0].startswith(r"\begin")) - (step[0] in _CLOSING or step[0].startswith(r"\end"))
        place = step.end()
        if depth == 0:
            break
    return (opening, text[len(opening) : len(text) - len(closing)].strip(), closing) if place == len(text) and depth == 0 else None
