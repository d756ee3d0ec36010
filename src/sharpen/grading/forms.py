r"""What an answer is: a number, an expression with a unit, words, a list, a tuple, a set, an interval, an equation, a ratio, a matrix, ...

`read` turns text into one of the forms below, and `equality.equal` compares two of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from sharpen.grading.expressions import Node
from sharpen.grading.units import Unit


@dataclass(frozen=True, slots=True)
class Value:
    """An expression, with its unit when that is known."""

    node: Node
    unit: Unit | None = None


@dataclass(frozen=True, slots=True)
class Words:
    """Text that is no mathematics, in lower case."""

    text: str


@dataclass(frozen=True, slots=True)
class Parts:
    """Several answers: a bare `list`, a `tuple` in parentheses, a `box` in square brackets, or a `set`."""

    kind: str
    items: tuple[Form, ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """An interval: its ends, and whether each is left out."""

    low: Node
    high: Node
    low_open: bool
    high_open: bool


@dataclass(frozen=True, slots=True)
class RealSet:
    """A union of intervals, without some points."""

    pieces: tuple[Piece, ...]
    without: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class Relation:
    """A chain of equations or inequalities, `-1 < x <= 4`: sides and the signs between them (`= != < > <= >=`)."""

    sides: tuple[Node, ...]
    signs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Named:
    """A name, its value, and the equation when both sides are expressions: `x = 5`, `f(x) = 2x`, `(x, y) = (1, 2)`."""

    name: str
    value: Form
    equation: Relation | None = None


@dataclass(frozen=True, slots=True)
class Ratio:
    """`3:4`; `clock` when it may be a time of day, `5:30`."""

    items: tuple[Node, ...]
    clock: bool


@dataclass(frozen=True, slots=True)
class Clock:
    """A time of day with its half: minutes since midnight of 12 hours, and `am` or `pm`."""

    minutes: int
    half: str


@dataclass(frozen=True, slots=True)
class Date:
    """A day of the year."""

    month: int
    day: int
    year: int | None


@dataclass(frozen=True, slots=True)
class Matrix:
    """Rows of expressions."""

    rows: tuple[tuple[Node, ...], ...]


@dataclass(frozen=True, slots=True)
class Based:
    """Digits in a base other than the unspoken one."""

    digits: str
    base: int


@dataclass(frozen=True, slots=True)
class Congruence:
    """A residue and its modulus."""

    value: Node
    modulus: Node


@dataclass(frozen=True, slots=True)
class Foreign:
    """What only math-verify may read, as text."""

    text: str


Form: TypeAlias = (
    Value | Words | Parts | RealSet | Relation | Named | Ratio | Clock | Date | Matrix | Based | Congruence | Foreign
)  # fmt: skip
