"""Whether two answers, read as forms, say the same."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from sharpen.grading import numeric
from sharpen.grading.expressions import Node, number
from sharpen.grading.finished import is_calculation
from sharpen.grading.forms import (
    Based,
    Clock,
    Congruence,
    Date,
    Foreign,
    Form,
    Matrix,
    Named,
    Parts,
    Ratio,
    RealSet,
    Relation,
    Value,
    Words,
)
from sharpen.grading.sets import as_set, equal_sets
from sharpen.grading.units import DEGREE
from sharpen.grading.verdict import Mode

PAPER_TOLERANCE = Fraction(1, 1000)
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


class UndecidedError(Exception):
    """A part of an answer that only math-verify may read."""


def equal(gold: Form, answer: Form, mode: Mode = "strict") -> bool:
    """Whether an answer says what the ground truth says.

    Raises:
        UndecidedError: when one of them holds what our grammar does not know.
        numeric.TooLargeError: when a number in them cannot be computed.
    """
    if gold == answer:
        return True
    if isinstance(gold, Foreign) or isinstance(answer, Foreign):
        return _foreign(gold, answer)
    if isinstance(gold, Named) or isinstance(answer, Named):
        return _named(gold, answer, mode)
    if isinstance(gold, Words | Date) or isinstance(answer, Words | Date):
        return isinstance(gold, Date) and isinstance(answer, Date) and _dates(gold, answer)
    if isinstance(gold, Clock | Ratio) or isinstance(answer, Clock | Ratio):
        return _ratios(gold, answer, mode)
    if isinstance(gold, Based | Congruence) or isinstance(answer, Based | Congruence):
        return _marked_numbers(gold, answer, mode)
    if isinstance(gold, Matrix) or isinstance(answer, Matrix):
        return _matrices(gold, answer, mode)
    if isinstance(gold, Value) and isinstance(answer, Value):
        return values(gold, answer, mode)
    if isinstance(gold, RealSet | Relation) or isinstance(answer, RealSet | Relation):
        return _relations(gold, answer, mode)
    return _collections(gold, answer, mode)


def values(gold: Value, answer: Value, mode: Mode = "strict") -> bool:
    """Whether two expressions are equal, converted where both have known units; a unit may be left out."""
    left, right = gold.node, answer.node
    if gold.unit is not None and answer.unit is not None:
        if gold.unit.dimensions != answer.unit.dimensions:
            return False
        left, right = _scaled(left, gold.unit.factor), _scaled(right, answer.unit.factor)
    elif gold.unit == DEGREE and right.holds("pi", "degree"):
        left = Node("degree", (left,))
    elif answer.unit == DEGREE and left.holds("pi", "degree"):
        right = Node("degree", (right,))
    if mode == "strict" and gold.node.op == "number" and is_calculation(answer.node):
        return False
    if left.op == right.op == "number":
        return left.value == right.value or (mode == "paper" and near(left.value, right.value))
    if numeric.equal(left, right):
        return True
    if mode != "paper" or not (numeric.is_constant(left) and numeric.is_constant(right)):
        return False
    try:
        return near(numeric.value(left), numeric.value(right))
    except numeric.UndefinedError:
        return False


def near(gold: Any, answer: Any) -> bool:
    """Whether two numbers agree within DeepSeekMath's tolerance: 1e-3, of x, x/100 or 100x."""
    tolerance = PAPER_TOLERANCE if isinstance(gold, Fraction) else float(PAPER_TOLERANCE)
    return any(abs(gold * factor - answer) <= tolerance for factor in (1, 100)) or abs(gold - 100 * answer) <= 100 * tolerance


def _scaled(node: Node, factor: Fraction) -> Node:
    if factor == 1:
        return node
    return number(node.value * factor) if node.op == "number" else Node("*", (node, number(factor)))


def _foreign(gold: Form, answer: Form) -> bool:
    if isinstance(gold, Foreign) and isinstance(answer, Foreign) and gold.text.replace(" ", "") == answer.text.replace(" ", ""):
        return True
    raise UndecidedError


def _named(gold: Form, answer: Form, mode: Mode) -> bool:
    """`x = 5` is 5, and `y = 2x + 1` any equation of that line; two lone letters that differ name different things."""
    left = gold.value if isinstance(gold, Named) else gold
    right = answer.value if isinstance(answer, Named) else answer
    if isinstance(gold, Named) and isinstance(answer, Named):
        names = ["".join(form.name.split()) for form in (gold, answer)]
        if names[0] != names[1] and all(len(name) == 1 for name in names):
            return _same_equation(gold.equation, answer.equation)
        return equal(left, right, mode) or _same_equation(gold.equation, answer.equation)
    if isinstance(answer, Relation) and isinstance(gold, Named) and gold.equation:
        return _same_equation(gold.equation, answer)
    if isinstance(gold, Relation) and isinstance(answer, Named) and answer.equation:
        return _same_equation(gold, answer.equation)
    return equal(left, right, mode)


def _same_equation(gold: Relation | None, answer: Relation | None) -> bool:
    return gold is not None and answer is not None and _proportional(gold, answer)


def _dates(gold: Date, answer: Date) -> bool:
    return (gold.month, gold.day) == (answer.month, answer.day) and None in (gold.year, answer.year)


def _ratios(gold: Form, answer: Form, mode: Mode) -> bool:
    """Ratios by their value, times of day by the clock; the half of the day may be left out."""
    if isinstance(gold, Clock) or isinstance(answer, Clock):
        if isinstance(gold, Clock) and isinstance(answer, Clock):
            return False  # equal ones were met before
        clock, other = (gold, answer) if isinstance(gold, Clock) else (answer, gold)
        return isinstance(clock, Clock) and isinstance(other, Ratio) and other.clock and _at_time(clock, other)
    if isinstance(gold, Ratio) and isinstance(answer, Ratio):
        if gold.clock and answer.clock:
            return all(numeric.equal(*pair) for pair in zip(gold.items, answer.items, strict=False))
        if len(gold.items) != len(answer.items):
            return False
        first, second = gold.items[0], answer.items[0]
        return all(
            numeric.equal(Node("*", (ours, second)), Node("*", (theirs, first)))
            for ours, theirs in zip(gold.items[1:], answer.items[1:], strict=True)
        )
    ratio, value = (gold, answer) if isinstance(gold, Ratio) else (answer, gold)
    if not isinstance(ratio, Ratio) or len(ratio.items) != 2 or not isinstance(value, Value):
        return False
    return values(Value(Node("/", ratio.items)), value, mode)


def _at_time(clock: Clock, ratio: Ratio) -> bool:
    """Whether `17:30`, or `5:30` without its half of the day, is this time."""
    hours, minutes = (int(item.value) for item in ratio.items)
    if hours > 12 or hours == 0:
        return hours * 60 + minutes == clock.minutes + (720 if clock.half == "pm" else 0)
    return hours % 12 * 60 + minutes == clock.minutes


def _marked_numbers(gold: Form, answer: Form, mode: Mode) -> bool:
    """Numbers with a base or a modulus, either of which may be left out."""
    if isinstance(gold, Based) and isinstance(answer, Based):
        return gold.base != answer.base and 10 in (gold.base, answer.base) and _in_base(gold) == _in_base(answer) is not None
    if isinstance(gold, Congruence) and isinstance(answer, Congruence):
        return numeric.equal(gold.modulus, answer.modulus) and _congruent(gold, answer)
    one, other = (gold, answer) if isinstance(gold, Based | Congruence) else (answer, gold)
    if not isinstance(other, Value):
        return False
    if isinstance(one, Congruence):
        return values(Value(one.value), other, mode)
    return isinstance(one, Based) and one.digits.isdigit() and other.node == number(int(one.digits))


def _congruent(gold: Congruence, answer: Congruence) -> bool:
    if gold.value.op == answer.value.op == gold.modulus.op == "number" and gold.modulus.value:
        return (gold.value.value - answer.value.value) % gold.modulus.value == 0
    return numeric.equal(gold.value, answer.value)


def _in_base(form: Based) -> int | None:
    try:
        return int(form.digits, form.base)
    except ValueError:
        return None


def _matrices(gold: Form, answer: Form, mode: Mode) -> bool:
    """Matrices entry by entry; a row or a column is also a tuple."""
    if isinstance(gold, Matrix) and isinstance(answer, Matrix):
        return [len(row) for row in gold.rows] == [len(row) for row in answer.rows] and all(
            numeric.equal(ours, theirs)
            for row, other in zip(gold.rows, answer.rows, strict=True)
            for ours, theirs in zip(row, other, strict=True)
        )
    matrix, parts = (gold, answer) if isinstance(gold, Matrix) else (answer, gold)
    if (
        not isinstance(matrix, Matrix)
        or not isinstance(parts, Parts)
        or parts.kind == "set"
        or 1 not in (len(matrix.rows), len(matrix.rows[0]))
    ):
        return False
    return _in_order(tuple(Value(entry) for row in matrix.rows for entry in row), parts.items, mode)


def _relations(gold: Form, answer: Form, mode: Mode) -> bool:
    """Sets of numbers and inequalities by their elements, equations up to a factor."""
    if isinstance(gold, Relation) and isinstance(answer, Relation) and _proportional(gold, answer):
        return True
    sets = as_set(gold), as_set(answer)
    if sets[0] is not None and sets[1] is not None:
        return equal_sets(sets[0], sets[1])
    if isinstance(gold, Value) and isinstance(answer, Relation) and answer.signs == ("=",) and gold.node.op == "number":
        left = answer.sides[0]
        return gold.node.value != 0 and bool(left.symbols()) and _names_a_value(left) and values(gold, Value(answer.sides[1]), mode)
    if isinstance(gold, Relation) and isinstance(answer, Relation) and len(gold.sides) == len(answer.sides) and gold.signs == answer.signs:
        return all(numeric.equal(ours, theirs) for ours, theirs in zip(gold.sides, answer.sides, strict=True))
    return False


def _names_a_value(left: Node) -> bool:
    """Whether an equation may say what its left side is, `x + y = 5` where 5 is asked for; `2x + 3 = 5` is one to solve."""
    try:
        return bool(numeric.value(left, at=dict.fromkeys(left.symbols(), Fraction(0))) == 0)
    except numeric.UndefinedError:
        return True


def _proportional(gold: Relation, answer: Relation) -> bool:
    """Whether left minus right of one relation is a constant multiple of the other's, with signs that fit the factor's."""
    if len(gold.sides) != 2 or len(answer.sides) != 2:
        return False
    ours, theirs = (Node("+", (form.sides[0], Node("negative", (form.sides[1],)))) for form in (gold, answer))
    names = ours.symbols() | theirs.symbols()
    if not names or ours.symbols() != theirs.symbols():
        return False
    ratios = []
    for point in numeric.points(names):
        try:
            left, right = numeric.value(ours, at=point), numeric.value(theirs, at=point)
        except numeric.UndefinedError:
            continue
        if abs(left) < 1e-30 or abs(right) < 1e-30:
            return False
        ratios.append(right / left)
    if len(ratios) < 2 or not all(numeric.close(ratios[0], ratio, 30) for ratio in ratios[1:]):
        return False
    positive = getattr(ratios[0], "real", ratios[0]) > 0
    return answer.signs[0] == (gold.signs[0] if positive else _TURNED.get(gold.signs[0], gold.signs[0]))


def _collections(gold: Form, answer: Form, mode: Mode) -> bool:
    """Lists and sets in any order, tuples in theirs; a bare list may stand for either."""
    if not isinstance(gold, Parts) or not isinstance(answer, Parts):
        parts, one = (gold, answer) if isinstance(gold, Parts) else (answer, gold)
        return isinstance(parts, Parts) and parts.kind == "set" and len(parts.items) == 1 and equal(parts.items[0], one, mode)
    kinds = {gold.kind, answer.kind}
    if kinds == {"tuple", "box"} and len(gold.items) == 2:
        return False  # an open interval and a closed one
    if kinds <= {"set", "list"}:
        if kinds == {"set"}:
            return _subset(gold.items, answer.items, mode) and _subset(answer.items, gold.items, mode)
        return len(gold.items) == len(answer.items) and _any_order(gold.items, answer.items, mode)
    return "set" not in kinds and _in_order(_sorted_names(gold), _sorted_names(answer), mode)


def _sorted_names(parts: Parts) -> tuple[Form, ...]:
    """The items of a list in the order of their names, when each has one of its own: `y = 2, x = 1` is (1, 2)."""
    names = [item.name for item in parts.items if isinstance(item, Named)]
    if parts.kind != "list" or len(set(names)) < len(parts.items):
        return parts.items
    return tuple(sorted(parts.items, key=lambda item: item.name if isinstance(item, Named) else ""))


def _in_order(ours: tuple[Form, ...], theirs: tuple[Form, ...], mode: Mode) -> bool:
    return len(ours) == len(theirs) and all(equal(*pair, mode) for pair in zip(ours, theirs, strict=True))


def _any_order(ours: tuple[Form, ...], theirs: tuple[Form, ...], mode: Mode) -> bool:
    """Whether each item has an equal of its own, in any order."""
    left = list(theirs)
    for one in ours:
        place = next((place for place, other in enumerate(left) if equal(one, other, mode)), None)
        if place is None:
            return False
        del left[place]
    return True


def _subset(ours: tuple[Form, ...], theirs: tuple[Form, ...], mode: Mode) -> bool:
    return all(any(equal(one, other, mode) for other in theirs) for one in ours)
