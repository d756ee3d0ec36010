"""Worked solutions as GSM8K writes them: a step a line, its equation in `<<48/2=24>>`, and the final answer after `####`."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from fractions import Fraction

_EQUATION = re.compile(r"<<([^<>=]*)=([^<>=]*)>>")
_PIECE = re.compile(r"\d+(?:\.\d*)?|\.\d+|[-+*/()]")
NUMBER = re.compile(r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+")
"""A number in prose: `1,200`, `3.5`, `.05`."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a solution, such as `Natalia sold 48/2 = <<48/2=24>>24 clips`.

    Attributes:
        before: the text before the equation; the whole line where there is none.
        expression: the pieces of the equation's left side, `("48", "/", "2")`; empty for a line of words.
        result: its right side as written, `24`.
        after: the text after the equation, which says the result once more.
    """

    before: str
    expression: tuple[str, ...] = ()
    result: str = ""
    after: str = ""

    @property
    def text(self) -> str:
        """The line as written."""
        return f"{self.before}<<{''.join(self.expression)}={self.result}>>{self.after}" if self.expression else self.before

    @property
    def value(self) -> Fraction:
        """The stated result."""
        return exactly(self.result)

    @property
    def operands(self) -> tuple[Fraction, ...]:
        """The numbers of the expression, in order."""
        return _operands(self.expression)

    @property
    def holds(self) -> bool:
        """Whether the equation is true: exactly, or to the two or more decimals that its result is written with."""
        return _holds(self.expression, self.result)

    @property
    def operations(self) -> frozenset[str]:
        """Which of `+ - * /` the expression has."""
        return _operations(self.expression)


@dataclass(frozen=True, slots=True)
class Worked:
    """A worked solution.

    Attributes:
        lines: its lines, with and without an equation.
        answer: the final answer as written, `1,200`.
    """

    lines: tuple[Line, ...]
    answer: str

    @property
    def text(self) -> str:
        """The solution as written."""
        return "\n".join([*(line.text for line in self.lines), f"#### {self.answer}"])

    @property
    def steps(self) -> list[Line]:
        """The lines with an equation."""
        return [line for line in self.lines if line.expression]


def parse(text: str) -> Worked | None:
    """A text as a worked solution; None where it has no number after `####`, two equations on a line, or one that is no arithmetic."""
    body, mark, answer = text.rpartition("####")
    lines = [_line(line) for line in body.rstrip().split("\n")] if mark and number(answer) is not None else [None]
    whole = [line for line in lines if line is not None]
    return Worked(tuple(whole), answer.strip()) if len(whole) == len(lines) else None


@functools.lru_cache(maxsize=65536)
def exactly(digits: str) -> Fraction:
    """The value of plain digits, `3.5`."""
    return Fraction(digits)


@functools.lru_cache(maxsize=65536)
def number(text: str) -> Fraction | None:
    """A number as written, `1,200`, `-3.5` or `$5`, exactly; None when the text is not one."""
    plain = text.strip().removeprefix("$").replace(",", "")
    return exactly(plain) if re.fullmatch(r"-?(?:\d+\.?\d*|\.\d+)", plain) else None


def show(value: Fraction, *, like: str = "") -> str:
    """A number as a solution writes it, to two decimals at most; with thousands separators where `like` has them."""
    cents = round(value * 100)
    whole, part = divmod(abs(cents), 100)
    return ("-" if cents < 0 else "") + (f"{whole:,}" if "," in like else f"{whole}") + (f".{part:02d}" if part else "")


def pieces(expression: str) -> tuple[str, ...] | None:
    """`48/2` as `("48", "/", "2")`; None when there is anything but numbers, `+ - * /` and parentheses."""
    compact = expression.replace(" ", "")
    found = tuple(_PIECE.findall(compact))
    return found if found and "".join(found) == compact else None


def is_number(piece: str) -> bool:
    """Whether a piece of an expression is a number, not an operator."""
    return piece[-1].isdigit() or piece[-1] == "."


def evaluate(expression: tuple[str, ...]) -> Fraction | None:
    """The exact value; None for a division by zero or anything malformed."""
    try:
        value, end = _sum(expression, 0)
    except (ZeroDivisionError, IndexError, ValueError):
        return None
    return value if end == len(expression) else None


@functools.lru_cache(maxsize=65536)
def _operands(expression: tuple[str, ...]) -> tuple[Fraction, ...]:
    return tuple(exactly(piece) for piece in expression if is_number(piece))


@functools.lru_cache(maxsize=65536)
def _operations(expression: tuple[str, ...]) -> frozenset[str]:
    return frozenset("+-*/").intersection(expression)


@functools.lru_cache(maxsize=65536)
def _holds(expression: tuple[str, ...], result: str) -> bool:
    computed = evaluate(expression)
    decimals = len(result.partition(".")[2])
    slack = Fraction(1, 2 * 10**decimals) if decimals >= 2 else Fraction(0)
    return computed is not None and abs(computed - exactly(result)) <= slack


@functools.lru_cache(maxsize=65536)
def _line(line: str) -> Line | None:
    if "<<" not in line:
        return Line(line)
    found = _EQUATION.findall(line)
    expression = pieces(found[0][0]) if len(found) == 1 == line.count("<<") else None
    if expression is None or number(found[0][1]) is None or evaluate(expression) is None:
        return None
    before, _, rest = line.partition("<<")
    return Line(before, expression, found[0][1].strip().replace(",", ""), rest.partition(">>")[2])


def _sum(expression: tuple[str, ...], at: int) -> tuple[Fraction, int]:
    value, at = _product(expression, at)
    while at < len(expression) and expression[at] in "+-":
        sign = 1 if expression[at] == "+" else -1
        term, at = _product(expression, at + 1)
        value += sign * term
    return value, at


def _product(expression: tuple[str, ...], at: int) -> tuple[Fraction, int]:
    value, at = _factor(expression, at)
    while at < len(expression) and expression[at] in "*/":
        times = expression[at] == "*"
        factor, at = _factor(expression, at + 1)
        value = value * factor if times else value / factor
    return value, at


def _factor(expression: tuple[str, ...], at: int) -> tuple[Fraction, int]:
    if expression[at] == "-":
        value, at = _factor(expression, at + 1)
        return -value, at
    if expression[at] == "(":
        value, at = _sum(expression, at + 1)
        if expression[at] != ")":
            raise ValueError("a parenthesis is not closed")
        return value, at + 1
    return exactly(expression[at]), at + 1
