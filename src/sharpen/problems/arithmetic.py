"""Generated arithmetic, in levels, with held-out problems that are never trained on.

| level | what | default operands |
|---|---|---|
| 1 | `What is a * b?` | 2 to 12 |
| 2 | `What is a + b?` | 2 to 50 |
| 3 | `What is a + b - c?`, never below 0 | 1 to 20 |
| 4 | `What is a * b + c?` | 2 to 12 |
| 5 | a word problem of two steps, one of four stories | 2 to 12 |
| 6 | `What is a * b + c * d?` | 2 to 12 |

Problems that differ only in the order of what commutes, such as 3 * 7 and 7 * 3, have one key, and the key alone decides on which side of
the split they are. So no count, seed or choice of operands puts a held-out problem, or its mirror image, into training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, product, zip_longest
from typing import Any, Literal, NamedTuple

from pydantic import Field, field_validator, model_validator

from sharpen.errors import ProblemError
from sharpen.problems.settings import Settings
from sharpen.records import Problem
from sharpen.streams import derive, generator, permutation

HELD_OUT_SHARE = 1 / 3
"""Of the keys of each level. Not a setting: a training set and a held-out set of different shares would overlap."""

_SPLIT_SEED = 1  # with it, each level's share by default operands is within two hundredths of a third (level 1: 40 of 121)
_ENUMERABLE = 100_000


class Item(NamedTuple):
    """A question, its answer, the key that it shares with its mirror images, and the equations that lead to the answer."""

    question: str
    value: int
    key: tuple[Any, ...]
    steps: tuple[str, ...]


@dataclass(frozen=True)
class Level:
    """A kind of problem.

    Attributes:
        make: operands → the problem; for a level with stories, the number of the story comes first.
        operands: how many.
        minimum: the smallest operand by default.
        maximum: the largest operand by default.
        stories: how many ways there are to ask, 1 where there is just one.
    """

    make: Callable[..., Item]
    operands: int
    minimum: int
    maximum: int
    stories: int = 1


def _pair(a: Any, b: Any) -> tuple[Any, Any]:
    return (a, b) if a <= b else (b, a)


def _product(a: int, b: int) -> Item:
    return Item(f"What is {a} * {b}?", a * b, _pair(a, b), (f"{a} * {b} = {a * b}",))


def _sum(a: int, b: int) -> Item:
    return Item(f"What is {a} + {b}?", a + b, _pair(a, b), (f"{a} + {b} = {a + b}",))


def _sum_less(a: int, b: int, c: int) -> Item:
    steps = f"{a} + {b} = {a + b}", f"{a + b} - {c} = {a + b - c}"
    return Item(f"What is {a} + {b} - {c}?", a + b - c, (_pair(a, b), c), steps)


def _product_plus(a: int, b: int, c: int) -> Item:
    steps = f"{a} * {b} = {a * b}", f"{a * b} + {c} = {a * b + c}"
    return Item(f"What is {a} * {b} + {c}?", a * b + c, (_pair(a, b), c), steps)


def _two_products(a: int, b: int, c: int, d: int) -> Item:
    steps = f"{a} * {b} = {a * b}", f"{c} * {d} = {c * d}", f"{a * b} + {c * d} = {a * b + c * d}"
    return Item(f"What is {a} * {b} + {c} * {d}?", a * b + c * d, _pair(_pair(a, b), _pair(c, d)), steps)


def _story(which: int, a: int, b: int, c: int) -> Item:
    question, first, then = (
        (f"Mia buys {a} boxes of {b} pens each. She already has {c} pens. How many pens does she have now?", "*", "+"),
        (f"Ben has {a} marbles and Lea has {b} marbles. Together they give away {c}. How many marbles do they have left?", "+", "-"),
        (f"A hall has {a} rows of {b} chairs. {c} chairs are taken away. How many chairs are left?", "*", "-"),
        (f"Each of {c} children has {a} red beads and {b} blue beads. How many beads do they have together?", "+", "*"),
    )[which]
    between = a * b if first == "*" else a + b
    value = {"+": between + c, "-": between - c, "*": between * c}[then]
    steps = f"{a} {first} {b} = {between}", f"{between} {then} {c} = {value}"
    return Item(question, value, (which, _pair(a, b), c), steps)


LEVELS: Mapping[int, Level] = {
    1: Level(_product, 2, 2, 12),
    2: Level(_sum, 2, 2, 50),
    3: Level(_sum_less, 3, 1, 20),
    4: Level(_product_plus, 3, 2, 12),
    5: Level(_story, 3, 2, 12, stories=4),
    6: Level(_two_products, 4, 2, 12),
}
"""The levels by number; the module's docstring lists them."""


class ArithmeticSource(Settings):
    """Generated arithmetic problems, all different."""

    source: Literal["arithmetic"] = "arithmetic"
    levels: list[int] = Field([1], min_length=1, description="1 a*b, 2 a+b, 3 a+b-c, 4 a*b+c, 5 word problems, 6 a*b+c*d; mixed evenly")
    split: Literal["train", "held_out"] = Field("train", description="held_out: a third, none of which, nor its mirror, is ever in train")
    count: int | None = Field(None, ge=1, description="problems of all levels together; left out, all that there are")
    seed: int = Field(0, ge=0, description="of the choice among them")
    minimum: int | None = Field(None, ge=0, description="the smallest operand; left out, the level's own")
    maximum: int | None = Field(None, ge=0, le=10**9, description="the largest operand; left out, the level's own")

    @field_validator("levels")
    @classmethod
    def _known(cls, levels: list[int]) -> list[int]:
        if any(level not in LEVELS for level in levels) or len(set(levels)) < len(levels):
            raise ValueError(f"expected different levels of {min(LEVELS)} to {max(LEVELS)}, got {levels}")
        return levels

    @model_validator(mode="after")
    def _range(self) -> ArithmeticSource:
        if self.count is not None and self.count < len(self.levels):
            raise ValueError(f"count: {len(self.levels)} levels need at least as many problems, got {self.count}")
        for number in self.levels:
            low, high = self.operands(number)
            if low > high:
                raise ValueError(f"minimum: the operands of level {number} would go from {low} to {high}")
        return self

    def operands(self, level: int) -> tuple[int, int]:
        """The smallest and the largest operand of a level."""
        own = LEVELS[level]
        return own.minimum if self.minimum is None else self.minimum, own.maximum if self.maximum is None else self.maximum


def is_held_out(level: int, key: tuple[Any, ...]) -> bool:
    """On which side of the split a key is: a hash of level and key decides, and nothing else."""
    return derive(_SPLIT_SEED, "arithmetic", level, repr(key)) < HELD_OUT_SHARE * 2**64


def generate(source: ArithmeticSource) -> list[Problem]:
    """The problems of the levels, in turn.

    Raises:
        ProblemError: a level has fewer than its share of `count`, or too many to list them all.
    """
    per_level, rest = (None, 0) if source.count is None else divmod(source.count, len(source.levels))
    shares = [None if per_level is None else per_level + (place < rest) for place in range(len(source.levels))]
    columns = [_level(source, level, share) for level, share in zip(source.levels, shares, strict=True)]
    return [problem for problem in chain.from_iterable(zip_longest(*columns)) if problem is not None]


def _level(source: ArithmeticSource, level: int, count: int | None) -> list[Problem]:
    own, (low, high) = LEVELS[level], source.operands(level)
    size = own.stories * (high - low + 1) ** own.operands
    if size > _ENUMERABLE and count is None:
        raise ProblemError(f"arithmetic: level {level} with operands {low} to {high} has too many problems to list.", fix="Set count.")
    problems: list[Problem] = []
    for operands in _operands(source, level, size, count):
        if len(problems) == count:
            break
        item = own.make(*operands)
        if item.value >= 0 and is_held_out(level, item.key) == (source.split == "held_out"):
            id = f"arithmetic/{level}/{'-'.join(map(str, operands))}"
            problems.append(
                Problem(id=id, prompt=item.question, answer=str(item.value), meta={"level": level, "solution": "\n".join(item.steps)})
            )
    if not problems or (count is not None and len(problems) < count):
        asked = "" if count is None else f", and {count} are asked for"
        raise ProblemError(
            f"arithmetic: the split '{source.split}' of level {level} with operands {low} to {high} has {len(problems)} problems{asked}.",
            fix="Lower count, leave it out, or widen the operands with minimum and maximum.",
        )
    return problems


def _operands(source: ArithmeticSource, level: int, size: int, count: int | None) -> Iterator[tuple[int, ...]]:
    """The operands of a level's problems, each once, in the order in which they are taken; the number of the story, if any, first."""
    own, (low, high) = LEVELS[level], source.operands(level)
    ranges = [range(own.stories)] * (own.stories > 1) + [range(low, high + 1)] * own.operands
    if size <= _ENUMERABLE:
        everything = list(product(*ranges))
        order = range(size) if count is None else permutation(size, source.seed, "arithmetic", level)
        yield from (everything[index] for index in order)
        return
    random, seen = generator(source.seed, "arithmetic", level), set[tuple[int, ...]]()
    for _ in range(1000 + 50 * (count or 0)):
        drawn = tuple(int(random.integers(one.start, one.stop)) for one in ranges)
        if drawn not in seen:
            seen.add(drawn)
            yield drawn
