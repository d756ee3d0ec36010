r"""Sets of real numbers: intervals, unions, inequalities in one variable, and what is left without some points."""

from __future__ import annotations

import re
from typing import Any

from sharpen.grading import numeric, split
from sharpen.grading.expressions import Node, read_expression
from sharpen.grading.forms import Form, Parts, Piece, RealSet, Relation, Value

INFINITY = Node("infinity")
REALS = RealSet((Piece(Node("negative", (INFINITY,)), INFINITY, True, True),))
_LETTER_R = re.compile(r"\\(?:mathbb|text|mathbf)\s*\{\s*R\s*\}|\\R")
_UNION = split.by(r"\\cup(?![A-Za-z])|\\text\s*\{\s*or\s*\}|\bor\b|或")
_WITHOUT = split.by(r"\\setminus(?![A-Za-z])")
_COMMA = split.by(r"\s*[,;]\s*")
_SIGN = split.by(r"<|>|\\(?:le|ge)(?![A-Za-z])")
_SIGNS = {"<": "<", ">": ">", r"\le": "<=", r"\ge": ">="}
_TURNED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "!=": "!=", "=": "="}


def read_set(text: str) -> RealSet | None:
    r"""`\mathbb{R}`, `[1, 2)`, `(1, 2) \cup (3, 4)`, `x < 1 or x > 2`, `\mathbb{R} \setminus \{0\}`; no lone `(1, 2)` or `[1, 2]`."""
    whole, taken = split.cut(text, _WITHOUT)
    if len(taken) > 1:
        return None
    parts, unions = split.cut(whole[0], _UNION)
    pieces: list[Piece] = []
    for part in parts:
        found = _piece(part, lone=not unions and not taken)
        if found is None:
            return None
        pieces.extend(found)
    if not taken:
        return RealSet(tuple(pieces))
    points = _points(whole[1])
    return None if points is None else RealSet(tuple(pieces), points)


def _points(text: str) -> tuple[Node, ...] | None:
    inside = split.bracketed(text)
    if inside is None or inside[0] != r"\{":
        return None
    nodes = [read_expression(part) for part in split.cut(inside[1], _COMMA)[0]]
    return None if any(node is None for node in nodes) else tuple(node for node in nodes if node)


def _piece(text: str, *, lone: bool) -> tuple[Piece, ...] | None:
    if _LETTER_R.fullmatch(text):
        return REALS.pieces
    if (inside := split.bracketed(text)) is not None:
        opening, content, closing = inside
        if opening == r"\{" and not lone:
            points = _points(text)
            return None if points is None else tuple(Piece(point, point, False, False) for point in points)
        ends = [read_expression(end) for end in split.cut(content, _COMMA)[0]]
        if opening not in "([" or closing not in ")]" or len(ends) != 2 or ends[0] is None or ends[1] is None:
            return None
        mixed = (opening, closing) in (("(", "]"), ("[", ")"))
        if lone and not mixed and not any(end.holds("infinity") for end in ends if end):
            return None  # it may be a point
        return (Piece(ends[0], ends[1], opening == "(", closing == ")"),)
    if lone:
        return None
    sides, signs = split.cut(text, _SIGN)
    nodes = [read_expression(side) for side in sides]
    if not signs or any(node is None for node in nodes):
        return None
    solved = solve(Relation(tuple(node for node in nodes if node), tuple(_SIGNS[sign] for sign in signs)))
    return None if solved is None else solved.pieces


def solve(relation: Relation) -> RealSet | None:
    """The numbers that satisfy an inequality, linear in its one variable or with the absolute value of that; None for any other."""
    names = frozenset().union(*(side.symbols() for side in relation.sides))
    if len(names) != 1 or not set(relation.signs) <= {"<", ">", "<=", ">=", "!="}:
        return None
    name = next(iter(names))
    if len(relation.sides) == 3 and relation.signs[0][0] == relation.signs[1][0] != "!":
        low, middle, high = relation.sides
        signs = relation.signs
        if signs[0][0] == ">":
            low, high, signs = high, low, (_TURNED[signs[1]], _TURNED[signs[0]])
        if middle != Node("symbol", name=name) or low.symbols() or high.symbols():
            return None
        return RealSet((Piece(low, high, signs[0] == "<", signs[1] == "<"),))
    if len(relation.sides) != 2:
        return None
    left, right = relation.sides
    sign = relation.signs[0]
    if not left.symbols():
        left, right, sign = right, left, _TURNED[sign]
    if left.op == "abs" and not right.symbols():
        return _absolute(left.args[0], right, sign, name)
    bound, slope = _root(Node("+", (left, Node("negative", (right,)))), name)
    if bound is None:
        return None
    return _half_line(bound, sign if slope > 0 else _TURNED[sign])


def _half_line(bound: Node, sign: str) -> RealSet:
    minus = Node("negative", (INFINITY,))
    if sign == "!=":
        return RealSet(REALS.pieces, (bound,))
    if sign[0] == "<":
        return RealSet((Piece(minus, bound, True, sign == "<"),))
    return RealSet((Piece(bound, INFINITY, sign == ">", True),))


def _absolute(inner: Node, bound: Node, sign: str, name: str) -> RealSet | None:
    root_low, slope = _root(Node("+", (inner, bound)), name)
    root_high, _ = _root(Node("+", (inner, Node("negative", (bound,)))), name)
    if root_low is None or root_high is None:
        return None
    low, high = (root_low, root_high) if slope > 0 else (root_high, root_low)
    if sign[0] == "<":
        return RealSet((Piece(low, high, sign == "<", sign == "<"),))
    if sign[0] == ">":
        return RealSet((*_half_line(low, "<" + sign[1:]).pieces, *_half_line(high, sign).pieces))
    return None


def _root(node: Node, name: str) -> tuple[Node | None, Any]:
    """The root of a linear function of one variable and the sign of its slope; None when it is not linear."""
    if node.args[0] == Node("symbol", name=name) and not node.args[1].symbols():
        inner = node.args[1]
        return (inner.args[0] if inner.op == "negative" else Node("negative", (inner,))), 1
    try:
        at = [numeric.value(node, at={name: numeric.context(numeric.DIGITS).mpf(x)}) for x in (0, 1, 3, -2)]
    except (numeric.UndefinedError, numeric.TooLargeError):
        return None, 0
    slope = at[1] - at[0]
    own = numeric.context(numeric.DIGITS)
    linear = slope != 0 and all(
        abs(at[0] + slope * x - value) < own.mpf(10) ** -40 * (1 + abs(value)) for x, value in ((3, at[2]), (-2, at[3]))
    )
    if not linear or any(own.im(value) != 0 for value in at):
        return None, 0
    return Node("numeric", name=own.nstr(-at[0] / slope, 45)), 1 if slope > 0 else -1


def as_set(form: Form) -> RealSet | None:
    """A form as a set of real numbers, where it can be one: `(1, 2)` is an open interval and `[1, 2]` a closed one."""
    if isinstance(form, RealSet):
        return form
    if isinstance(form, Relation):
        return solve(form)
    if isinstance(form, Parts) and len(form.items) == 2 and form.kind in ("tuple", "box") and all(isinstance(i, Value) for i in form.items):
        low, high = (item.node for item in form.items if isinstance(item, Value))
        return RealSet((Piece(low, high, form.kind == "tuple", form.kind == "tuple"),))
    return None


def equal_sets(left: RealSet, right: RealSet) -> bool:
    """Whether two sets of real numbers have the same elements.

    Raises:
        TooLargeError: when an end cannot be computed.
    """
    ours, theirs = _normal(left), _normal(right)
    if ours is None or theirs is None:
        return _equal_as_written(left, right)
    return len(ours) == len(theirs) and all(
        numeric.close(a[0], b[0], 30) and numeric.close(a[1], b[1], 30) and a[2:] == b[2:] for a, b in zip(ours, theirs, strict=True)
    )


def _equal_as_written(left: RealSet, right: RealSet) -> bool:
    """Whether sets whose ends hold variables have equal ends in the same order."""
    return (
        len(left.pieces) == len(right.pieces)
        and left.without == right.without
        and all(
            (a.low_open, a.high_open) == (b.low_open, b.high_open) and numeric.equal(a.low, b.low) and numeric.equal(a.high, b.high)
            for a, b in zip(left.pieces, right.pieces, strict=True)
        )
    )


def _normal(given: RealSet) -> list[tuple[Any, Any, bool, bool]] | None:
    """Intervals in order, joined where they touch and cut at the points that are left out; None when an end has no value."""
    try:
        spans = [(*(_end(end) for end in (piece.low, piece.high)), piece.low_open, piece.high_open) for piece in given.pieces]
        holes = sorted(_end(point) for point in given.without)
    except (numeric.UndefinedError, TypeError):
        return None
    spans = sorted((low, high, a, b) for low, high, a, b in spans if low < high or (low == high and not a and not b))
    joined: list[tuple[Any, Any, bool, bool]] = []
    for span in spans:
        if joined and (span[0] < joined[-1][1] or (span[0] == joined[-1][1] and not (span[2] and joined[-1][3]))):
            low, high, low_open, high_open = joined[-1]
            low_open = low_open and (span[2] or span[0] > low)
            further = span[1] > high
            same = span[1] == high
            joined[-1] = (
                low,
                span[1] if further else high,
                low_open,
                span[3] if further else (high_open and span[3] if same else high_open),
            )
        else:
            joined.append(span)
    for hole in holes:
        cut: list[tuple[Any, Any, bool, bool]] = []
        for low, high, low_open, high_open in joined:
            if low < hole < high:
                cut += [(low, hole, low_open, True), (hole, high, True, high_open)]
            else:
                cut.append((low, high, low_open or hole == low, high_open or hole == high))
        joined = [span for span in cut if span[0] < span[1] or not (span[2] or span[3])]
    return joined


def _end(node: Node) -> Any:
    out = numeric.value(node)
    if numeric.context(numeric.DIGITS).im(out) != 0:
        raise numeric.UndefinedError("an end that is not real")
    return out.real if hasattr(out, "real") else out
