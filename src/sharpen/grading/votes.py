r"""Which answers to one problem are the same vote: those that the problem's grader calls equal, in whatever order they came.

Answers are first joined by how they are spelled, which decides most of them. What is left, one text a spelling, is put in a fixed order and
compared: a text joins every class whose first text it equals, and classes with a text in common become one (the grader's equality is no
equivalence: `10` is `10 feet` and `10 inches`, for a unit may be left out). Two texts are equal when either is right where the other is the
ground truth: `7 \cdot 8` is no answer where 56 is asked for, and no vote for it.

The comparisons of a problem are at most classes × texts, and no more than `COMPARISONS`. Numbers and words are compared at once, formulas
in a worker of the pool, with its limits on time and memory.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import count
from typing import Any

from sharpen.grading.extract import clean
from sharpen.grading.math import LONGEST_ANSWER, NO_VALUE, canonical, compare
from sharpen.grading.numbers import exact, quantity
from sharpen.grading.parameters import KEY
from sharpen.grading.plain import number_of
from sharpen.grading.spelling import normal, spell
from sharpen.grading.timing import TimeUpError
from sharpen.grading.verdict import Mode, Verdict
from sharpen.records import Problem

KIND = "votes"
"""What the pool knows a comparison by; no problem of a user's is of this kind."""

COMPARISONS = 5_000
"""Of one problem. 64 samples need 2,016 at most; of thousands of samples, what is left is told apart by its spelling."""

_IDLE_SPACE = re.compile(r"(?<![A-Za-z]) | (?![A-Za-z])")
_PLAIN = re.compile(r"-?\d+(?:/\d+)?")

_log = logging.getLogger(__name__)


def spelled(answer: str, kind: str = "math", *, ignore_case: bool = False) -> str:
    r"""An answer's spelling: equal spellings are one vote, whatever else is.

    A number without a known unit is the number: `18`, `18.0` and `18 apples` are `18`. Other mathematics is its text without what changes
    only its looks: `x + 1` and `x+1`, `\dfrac{x}{2}` and `\frac{x}{2}`. Answers of other kinds, such as programs, are their text.

    Args:
        answer: as it was found in the completion.
        kind: of the problem.
        ignore_case: whether capitals count as small letters; for the kind `exact`.
    """
    if kind == "math":
        number = quantity(answer)
        return str(number.value) if number is not None and number.unit is None else _IDLE_SPACE.sub("", spell(answer))
    if kind == "numeric":
        value = exact(clean(normal(answer)))
        return _IDLE_SPACE.sub("", spell(answer)) if value is None else str(value)
    return answer.casefold() if ignore_case else answer


def votes(
    items: Sequence[tuple[Problem, Sequence[str | None]]], grade_all: Callable[[Sequence[tuple[Problem, str]]], Sequence[Verdict]]
) -> list[tuple[str | None, ...]]:
    """The answers of several problems as votes: of one problem, equal strings are votes for one answer.

    Args:
        items: problems, each with the answers that were found in its completions; None is no vote.
        grade_all: a pool's, which compares what is not decided by spelling.

    Returns:
        For each problem its answers, each as the spelling of the simplest that it equals: numbers before others, then the shortest. The
        order of the answers changes nothing.
    """
    chosen: list[dict[str, str]] = []
    asked: list[tuple[Problem, str]] = []
    places: list[tuple[int, list[str]]] = []
    for place, (problem, answers) in enumerate(items):
        given = problem.meta.get(KEY, {})
        spelling = {one: _spelled(one, problem.kind, given) for one in sorted({one for one in answers if one is not None})}
        chosen.append(spelling)
        texts: dict[str, str] = {}
        for one, key in spelling.items():
            texts.setdefault(key, one)  # of the same spelling, always the first by the alphabet
        order = sorted(texts, key=lambda key: (not _PLAIN.fullmatch(key), len(key), key))
        if len(order) > 1 and problem.kind in _SAME and not (_never_equal(given) and all(map(_PLAIN.fullmatch, order))):
            # A plain number is compared as it is spelled, for its text may have a word to it.
            shown = [key if _PLAIN.fullmatch(key) else texts[key] for key in order]
            meta = {"kind": problem.kind, KEY: dict(given)}
            asked.append((Problem(id=problem.id, prompt="", answer="", kind=KIND, meta=meta), json.dumps(shown)))
            places.append((place, order))
    for (place, order), verdict in zip(places, grade_all(asked) if asked else [], strict=True):
        if verdict.outcome != "right" or verdict.extracted is None:
            _log.warning("Problem %s: its answers are votes by their spelling alone: %s.", items[place][0].id, verdict.reason)
            continue
        first = dict(zip(order, (order[one] for one in json.loads(verdict.extracted)), strict=True))
        chosen[place] = {one: first[key] for one, key in chosen[place].items()}
    return [tuple(None if one is None else spelling[one] for one in answers) for spelling, (_, answers) in zip(chosen, items, strict=True)]


def judge(problem: Problem, text: str) -> Verdict:
    """What the pool calls for the kind `KIND`: the class of each of the texts in a JSON list, as the place of its first text."""
    texts, given = json.loads(text), problem.meta[KEY]
    same = _SAME[problem.meta["kind"]]
    return Verdict("right", "compared", json.dumps(classes(texts, lambda one, other: same(one, other, given))))


def classes(texts: Sequence[str], same: Callable[[str, str], bool], *, most: int = COMPARISONS) -> list[int]:
    """The class of each text, as the place of the first text in it.

    Args:
        texts: in the order in which they are compared.
        same: whether two of them are equal; it need not be transitive.
        most: comparisons; texts that are left then are classes of their own.
    """
    root = list(range(len(texts)))
    leaders: list[int] = []
    used = count(1)
    for place, text in enumerate(texts):
        found = [leader for leader in leaders if next(used) <= most and same(texts[leader], text)]
        if not found:
            leaders.append(place)
            continue
        root[place] = found[0]
        for other in found[1:]:
            leaders.remove(other)
            root = [found[0] if one == other else one for one in root]
    return root


def _spelled(answer: str, kind: str, given: Mapping[str, Any]) -> str:
    return spelled(answer, kind, ignore_case=kind == "exact" and bool(given.get("ignore_case")))


def _never_equal(given: Mapping[str, Any]) -> bool:
    """Whether two plain numbers that differ are never equal: there is no tolerance."""
    return given.get("mode", "strict") == "strict" and not given.get("absolute") and not given.get("relative")


def _same_mathematics(one: str, other: str, given: Mapping[str, Any]) -> bool:
    mode: Mode = given.get("mode", "strict")
    if any(len(text) > LONGEST_ANSWER or NO_VALUE.search(text) for text in (one, other)):
        return False
    if mode == "strict" and _PLAIN.fullmatch(one) and _PLAIN.fullmatch(other):
        return False
    left, right = canonical(one), canonical(other)
    return all(compare(gold, answer, mode, by_library=False)[0] for gold, answer in ((left, right), (right, left)))


def _same_number(one: str, other: str, given: Mapping[str, Any]) -> bool:
    values: list[Fraction] = []
    for text in (one, other):
        try:
            value = number_of(text)
        except TimeUpError:
            return False
        if value is None:
            return False
        values.append(value)
    allowed = max(Fraction(given.get("absolute", 0)), Fraction(given.get("relative", 0)) * min(map(abs, values)))
    return abs(values[0] - values[1]) <= allowed


_SAME: Mapping[str, Callable[[str, str, Mapping[str, Any]], bool]] = {"math": _same_mathematics, "numeric": _same_number}
"""The kinds whose answers may be equal though they are spelled otherwise."""
