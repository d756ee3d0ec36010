"""Generated arithmetic of several steps, each problem with its worked solution, and with held-out problems that are never trained on.

| level | what | operands | steps |
|---|---|---|---|
| 1 | `a*b+c` | factors 2 to 9, `c` 2 to 20 | 2 |
| 2 | `a*b+c-d` | factors 2 to 9, `c` and `d` 2 to 20 | 3 |
| 3 | `a*b+c*d-e` | factors 2 to 9, `e` 2 to 20 | 4 |
| 4 | `(a+b)*c-d` | `c` 2 to 9, the others 2 to 20 | 3 |
| 5 | `a*b*c+d*e` | factors 2 to 9 | 4 |
| 6 | `(a+b)*(c+d)` | summands 2 to 50 | 3 |

No step goes below 0. A solution has a true equation a line, then the answer; `What is 7*3+12?` is solved by

    7*3=21
    21+12=33
    Answer: 33

It is the text that the model `tiny` was taught to write. Problems that differ only in the order of what commutes, such as 7*3+12 and
12+3*7, have one key, and the key alone decides on which side of the split they are, whatever the count and the seed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from typing import Any, Literal

import numpy as np
from pydantic import Field, field_validator, model_validator

from sharpen.errors import ProblemError
from sharpen.problems.settings import Settings
from sharpen.records import Problem
from sharpen.streams import derive, generator

HELD_OUT_SHARE = 1 / 3
"""Of the keys. Not a setting: a training set and a held-out set of different shares would overlap."""

_SPLIT_SEED = 1
_BLOCK = 256  # problems drawn at once, of a fixed number so that a larger count begins with the problems of a smaller one
_FUTILE = 40  # blocks without a new problem, after which a level counts as exhausted


@dataclass(frozen=True)
class Level:
    """A kind of problem.

    Attributes:
        shape: the expression, its operands as letters from `a` on, as in `a*b+c`.
        ranges: the smallest and the largest value of each operand.
    """

    shape: str
    ranges: tuple[tuple[int, int], ...]


_FACTOR, _TERM, _LARGE_TERM = (2, 9), (2, 20), (2, 50)

LEVELS: Mapping[int, Level] = {
    1: Level("a*b+c", (_FACTOR, _FACTOR, _TERM)),
    2: Level("a*b+c-d", (_FACTOR, _FACTOR, _TERM, _TERM)),
    3: Level("a*b+c*d-e", (_FACTOR, _FACTOR, _FACTOR, _FACTOR, _TERM)),
    4: Level("(a+b)*c-d", (_TERM, _TERM, _FACTOR, _TERM)),
    5: Level("a*b*c+d*e", (_FACTOR,) * 5),
    6: Level("(a+b)*(c+d)", (_LARGE_TERM,) * 4),
}
"""The levels by number; the module's docstring lists them."""


class MultiStepSource(Settings):
    """Generated arithmetic of several steps, each problem with a worked solution; what the model `tiny` was taught."""

    source: Literal["multi_step"] = "multi_step"
    levels: list[int] = Field(
        list(LEVELS), min_length=1, description="1 a*b+c, 2 a*b+c-d, 3 a*b+c*d-e, 4 (a+b)*c-d, 5 a*b*c+d*e, 6 (a+b)*(c+d); mixed evenly"
    )
    split: Literal["train", "held_out"] = Field("train", description="held_out: a third, none of which, nor its mirror, is ever in train")
    count: int = Field(96, ge=1, description="problems of all levels together")
    seed: int = Field(0, ge=0, description="of the choice among them")

    @field_validator("levels")
    @classmethod
    def _known(cls, levels: list[int]) -> list[int]:
        if any(level not in LEVELS for level in levels) or len(set(levels)) < len(levels):
            raise ValueError(f"expected different levels of {min(LEVELS)} to {max(LEVELS)}, got {levels}")
        return levels

    @model_validator(mode="after")
    def _enough(self) -> MultiStepSource:
        if self.count < len(self.levels):
            raise ValueError(f"count: {len(self.levels)} levels need at least as many problems, got {self.count}")
        return self


@dataclass(frozen=True)
class Item:
    """A problem's parts: the question, its worked solution, the value, and the key that it shares with its mirror images."""

    question: str
    solution: str
    value: int
    key: tuple[Any, ...]


def solve(shape: str, operands: Mapping[str, int], slip: Callable[[int], int] | None = None) -> Item | None:
    """The problem of a shape with these operands; None when a step goes below 0.

    Args:
        shape: an expression of letters, `+`, `-`, `*` and parentheses.
        operands: the value of each letter.
        slip: what is written for the value of a step, and carried on from there; left out, the value itself.
    """
    steps: list[str] = []
    value, key = _walk(_TREES[shape], operands, steps, slip or (lambda value: value))
    if value is None:
        return None
    text = re.sub("[a-z]", lambda letter: str(operands[letter[0]]), shape)
    return Item(f"What is {text}?", "\n".join([*steps, f"Answer: {value}"]), value, key)


_TREES = {level.shape: ast.parse(level.shape, mode="eval").body for level in LEVELS.values()}


def _walk(node: ast.expr, operands: Mapping[str, int], steps: list[str], slip: Callable[[int], int]) -> tuple[int | None, tuple[Any, ...]]:
    """Value and key of an expression; its equations are added to `steps` in the order of working them out."""
    if isinstance(node, ast.Name):
        return operands[node.id], ("", operands[node.id])
    assert isinstance(node, ast.BinOp)
    left, left_key = _walk(node.left, operands, steps, slip)
    right, right_key = _walk(node.right, operands, steps, slip)
    if left is None or right is None:
        return None, ()
    match node.op:
        case ast.Add():
            sign, value = "+", left + right
        case ast.Mult():
            sign, value = "*", left * right
        case _:
            sign, value = "-", left - right
    if value < 0:
        return None, ()
    value = slip(value)
    steps.append(f"{left}{sign}{right}={value}")
    return value, (sign, *_operand_keys(sign, left_key, right_key))


def _operand_keys(sign: str, left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
    """The keys of the operands, sorted where they commute; those of a sum within a sum, or a product within one, are on one level."""
    if sign == "-":
        return left, right
    flat = chain.from_iterable(key[1:] if key[0] == sign else (key,) for key in (left, right))
    return tuple(sorted(flat, key=repr))


def is_held_out(key: tuple[Any, ...]) -> bool:
    """On which side of the split a key is: a hash of it decides, and nothing else."""
    return derive(_SPLIT_SEED, "multi_step", repr(key)) < HELD_OUT_SHARE * 2**64


def draw(
    level: int, split: Literal["train", "held_out"], random: np.random.Generator, slip: Callable[[int], int] | None = None
) -> Iterator[tuple[str, Item]]:
    """Problems of a level without end, each with its id; the same one may come again. For `slip`, see `solve`."""
    own = LEVELS[level]
    letters = [chr(ord("a") + place) for place in range(len(own.ranges))]
    low, high = np.array(own.ranges).T
    while True:
        for row in random.integers(low, high + 1, size=(_BLOCK, len(letters))).tolist():
            item = solve(own.shape, dict(zip(letters, row, strict=True)), slip)
            if item is not None and is_held_out(item.key) == (split == "held_out"):
                yield f"multi_step/{level}/{'-'.join(map(str, row))}", item


def generate(source: MultiStepSource) -> list[Problem]:
    """The problems of the levels, in turn; no two are the same or mirror images.

    Raises:
        ProblemError: a level has fewer than its share of `count`.
    """
    share, rest = divmod(source.count, len(source.levels))
    columns = [_level(source, level, share + (place < rest)) for place, level in enumerate(source.levels)]
    return [problem for problem in chain.from_iterable(zip_longest(*columns)) if problem is not None]


def _level(source: MultiStepSource, level: int, count: int) -> list[Problem]:
    problems: dict[tuple[Any, ...], Problem] = {}
    drawn = draw(level, source.split, generator(source.seed, "multi_step", level))
    while len(problems) < count:
        before = len(problems)
        for id, item in islice(drawn, _FUTILE * _BLOCK):
            if item.key not in problems:
                meta = {"level": level, "solution": item.solution}
                problems[item.key] = Problem(id=id, prompt=item.question, answer=str(item.value), meta=meta)
                if len(problems) == count:
                    break
        if len(problems) == before:
            raise ProblemError(
                f"multi_step: the split '{source.split}' of level {level} has {before} problems, and {count} are asked for.",
                fix="Lower count, or take more levels.",
            )
    return list(problems.values())
