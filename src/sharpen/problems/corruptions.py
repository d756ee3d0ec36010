"""Wrong solutions made from a right one, each with one mistake that is carried through to its final answer.

| mistake | what is done | what holds all the same |
|---|---|---|
| `slipped result` | one equation gets a near, wrong result, and later steps go on with it | every other equation |
| `wrong operand` | a number is copied wrong, or another number of the question is taken | every equation |
| `wrong operation` | one `+ - * /` becomes another | every equation |
| `dropped step` | a step is left out; later steps go on with what it started from | every equation |
| `scaled answer` | the answer after `####` is a multiple of the last result, as with a wrong unit | every equation |

An operand that equals an earlier result is taken to be that result. No mistake makes a result zero or negative, for that would give it
away. None makes a solution longer either, while a dropped step makes it shorter, so length alone tells that one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TypeVar

import numpy as np

from sharpen.problems.worked import NUMBER, Line, Worked, evaluate, exactly, is_number, number, show

T = TypeVar("T")
Corruption = Callable[[Worked, Sequence[Fraction], np.random.Generator], Worked | None]

OTHER_OPERATIONS = {"+": "-*", "-": "+*", "*": "+/", "/": "*-"}
FACTORS = tuple(Fraction(factor) for factor in ("2", "10", "12", "60", "100", "1/2", "1/10", "1/4"))
LARGEST = 10**7


def slipped_result(worked: Worked, known: Sequence[Fraction], rng: np.random.Generator) -> Worked | None:
    """One equation gets a near, wrong result, and later steps go on with it."""
    at = _any_step(worked, rng)
    old = worked.lines[at].value
    unit = Fraction(1) if old.denominator == 1 else Fraction(1, 100)
    slips = [old + sign * size * unit for size in (1, 2, 10, 100) for sign in (1, -1) if size * unit * 2 <= max(abs(old), Fraction(2))]
    return _carried(worked, at, worked.lines[at].expression, _pick(slips, rng))


def wrong_operand(worked: Worked, known: Sequence[Fraction], rng: np.random.Generator) -> Worked | None:
    """A number of the question is copied wrong, or another number of the question is taken in its place."""
    at = _any_step(worked, rng)
    expression = worked.lines[at].expression
    places = [i for i, piece in enumerate(expression) if is_number(piece) and exactly(piece) in known]
    if not places:
        return None
    place = _pick(places, rng)
    old = exactly(expression[place])
    others = [value for value in known if value != old] if rng.random() < 0.5 else []
    new = _pick(others or _misread(old), rng)
    return _carried(worked, at, (*expression[:place], show(new), *expression[place + 1 :]))


def wrong_operation(worked: Worked, known: Sequence[Fraction], rng: np.random.Generator) -> Worked | None:
    """One operation becomes another."""
    at = _any_step(worked, rng)
    line = worked.lines[at]
    places = [i for i, piece in enumerate(line.expression) if piece in OTHER_OPERATIONS and i]
    if not places or _spans(line) is None:
        return None
    place = _pick(places, rng)
    new = _pick(OTHER_OPERATIONS[line.expression[place]], rng)
    return _carried(worked, at, (*line.expression[:place], new, *line.expression[place + 1 :]))


def dropped_step(worked: Worked, known: Sequence[Fraction], rng: np.random.Generator) -> Worked | None:
    """A step is left out; later steps go on with the number that it started from."""
    if len(worked.steps) < 2:
        return None
    at = _any_step(worked, rng)
    line = worked.lines[at]
    start = line.operands[0]
    kept = replace(worked, lines=(*worked.lines[:at], *worked.lines[at + 1 :]))
    return _finished(kept, at, {line.value: start})


def scaled_answer(worked: Worked, known: Sequence[Fraction], rng: np.random.Generator) -> Worked | None:
    """The answer is a multiple of the last result, as with a wrong unit."""
    old, factor = worked.steps[-1].value, _pick(FACTORS, rng)
    if not _presentable(old * factor):
        return None
    return replace(worked, answer=show(old * factor, like=worked.answer))


CORRUPTIONS: Mapping[str, Corruption] = {
    "slipped result": slipped_result,
    "wrong operand": wrong_operand,
    "wrong operation": wrong_operation,
    "dropped step": dropped_step,
    "scaled answer": scaled_answer,
}


def _carried(worked: Worked, at: int, expression: tuple[str, ...], result: Fraction | None = None) -> Worked | None:
    """The solution with another equation on line `at`, and its result (computed when None) carried through the later lines."""
    line = worked.lines[at]
    value = evaluate(expression) if result is None else result
    if value is None or not _presentable(value):
        return None
    changed = _with_equation(line, expression, value, {})
    lines = (*worked.lines[:at], changed, *worked.lines[at + 1 :])
    return _finished(replace(worked, lines=lines), at + 1, {line.value: changed.value})


def _finished(worked: Worked, start: int, moved: dict[Fraction, Fraction]) -> Worked | None:
    """The lines from `start` on with every number in `moved` replaced, their results and the final answer computed anew.

    None where a result is not presentable.
    """
    lines, moved = list(worked.lines), dict(moved)
    for i in range(start, len(lines)):
        line = lines[i]
        expression = tuple(_moved(piece, moved) if is_number(piece) else piece for piece in line.expression)
        if expression == line.expression:
            lines[i] = replace(line, before=_in_prose(line.before, moved), after=_in_prose(line.after, moved))
            continue
        value = evaluate(expression)
        if value is None or not _presentable(value):
            return None
        lines[i] = _with_equation(line, expression, value, moved)
        moved[line.value] = lines[i].value
    done = replace(worked, lines=tuple(lines))
    return replace(done, answer=show(done.steps[-1].value, like=worked.answer))


def _with_equation(line: Line, expression: tuple[str, ...], value: Fraction, moved: Mapping[Fraction, Fraction]) -> Line:
    """The line with this equation; what the text around it says of the old one follows."""
    written = show(value)
    before, spans = line.before, _spans(line)
    if spans is not None:
        head = before[: spans[0][0]]
        tail = before[spans[0][0] :]
        for (start, end), old, new in reversed(list(zip(spans, line.expression, expression, strict=True))):
            if old != new:
                tail = tail[: start - len(head)] + new + tail[end - len(head) :]
        before = _in_prose(head, moved) + tail
    else:
        before = _in_prose(before, dict(moved) | _difference(line.expression, expression))
    after = _in_prose(line.after, dict(moved) | {line.value: exactly(written)})
    return Line(before, expression, written, after)


def _spans(line: Line) -> list[tuple[int, int]] | None:
    """Where the text before the equation says the same expression, piece by piece: `48 / 2 = `; None where it does not."""
    spans: list[tuple[int, int]] = []
    end = len(line.before.rstrip(" =$"))
    for piece in reversed(line.expression):
        text = line.before[:end].rstrip(" $")
        forms = {"*": ("*", "x", "X", "×"), "/": ("/", "÷")}.get(piece, (piece,))
        form = next((form for form in forms if text.endswith(form)), None)
        if form is None:
            return None
        end = len(text) - len(form)
        spans.insert(0, (end, len(text)))
    cut = spans[0][0] > 0 and (line.before[spans[0][0] - 1].isdigit() or line.before[spans[0][0] - 1] in ".,")
    return None if cut else spans


def _difference(old: tuple[str, ...], new: tuple[str, ...]) -> dict[Fraction, Fraction]:
    return {exactly(a): exactly(b) for a, b in zip(old, new, strict=True) if a != b and is_number(a)}


def _moved(piece: str, moved: Mapping[Fraction, Fraction]) -> str:
    value = exactly(piece)
    return show(moved[value]) if value in moved else piece


def _in_prose(text: str, moved: Mapping[Fraction, Fraction]) -> str:
    """The text with every number in `moved` replaced."""

    def replaced(found: re.Match[str]) -> str:
        value = number(found[0])
        return show(moved[value], like=found[0]) if value is not None and value in moved else found[0]

    return NUMBER.sub(replaced, text)


def _presentable(value: Fraction) -> bool:
    return Fraction(1, 100) <= value <= LARGEST


def _misread(value: Fraction) -> list[Fraction]:
    """What a number is easily misread as: off by one or ten, ten times as much, or with two digits swapped."""
    near = {value + step for step in (1, -1, 10, -10)} | {value * 10}
    digits = show(value)
    near |= {Fraction(digits[:i] + digits[i + 1] + digits[i] + digits[i + 2 :]) for i in range(len(digits) - 1) if digits.isdigit()}
    return sorted(other for other in near if other > 0 and other != value)


def _any_step(worked: Worked, rng: np.random.Generator) -> int:
    """The place of a random line that has an equation."""
    return _pick([i for i, line in enumerate(worked.lines) if line.expression], rng)


def _pick(values: Sequence[T], rng: np.random.Generator) -> T:
    return values[int(rng.integers(len(values)))]
