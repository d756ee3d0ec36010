r"""Is a mathematical answer equal to the ground truth?

Two declared modes:

- `strict`: equal values. A number equals itself however it is written (`\frac12`, `0.5`, `50\%`), and `28` is not `28\%`. Roundings are
  wrong: `0.333` is not `\frac13`. So is a calculation in place of a plain number: `7 * 8` is not an answer where `56` is asked for.
- `paper`: with the tolerance of DeepSeekMath's evaluation: also numbers that differ by at most 1e-3, x/100 or 100x for x, and calculations.

Plain numbers are compared as fractions, exactly; anything else is parsed by math-verify, and compared number by number to 12 digits or by
its symbolic comparison. Each comparison has `TIME_LIMIT` seconds in the main thread and no limit in another one; `GradingPool` grades
anywhere, with limits on time and memory.
"""

from __future__ import annotations

import functools
import logging
import re
from fractions import Fraction
from typing import Any

from sharpen.grading.extract import clean, extract
from sharpen.grading.numbers import exact, normal
from sharpen.grading.timing import TimeUpError, time_limit
from sharpen.grading.verdict import Mode, Verdict

TIME_LIMIT = 5.0
LONGEST_ANSWER = 1000
RELATIVE_TOLERANCE = 1e-12
PAPER_TOLERANCE = 1e-3

_UPRIGHT_CONSTANT = re.compile(r"\\(?:mathrm|operatorname)\{([ei])\}")
_CALCULATION = re.compile(r"[\d)}]\s*(?:[-+*/×÷]|\\times|\\cdot|\\div)\s*[\d(\\.]")
_SEVERAL = re.compile(r"[,;<>]|\\[lg]eq?\b|\b(?:and|or)\b")
_TEXT = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox)\s*\{([^{}]*)\}")
_NO_VALUE = re.compile(r"\\[hv]?phantom\b|(?<!\\)%\s*[\w\\(]|^\s*(?:\\neq?\b|\\not\b|≠|\\text\s*\{\s*not\b|not\b)")
_OR = re.compile(r"\\text\s*\{\s*\(?or\s*\}|\(?\bor\b|\(?或者?")
_SEVERAL_VALUES = re.compile(r",|;|\\pm|\\text|\b(?:and|or)\b|或|和")
_WORDS = re.compile(r"[A-Za-z]+(?:[ -][A-Za-z]+)*")


def grade_math(gold: str, text: str, *, mode: Mode = "strict") -> Verdict:
    r"""Judge a completion's final answer.

    Args:
        gold: the ground truth, with or without dollar signs: `72`, `\frac{1}{2}`, `1331 and 1728`.
        text: the completion.
        mode: what counts as equal; see the module's docstring.
    """
    if (fault := gold_fault(gold)) is not None:
        return Verdict("unscorable", fault, None)
    answer, how = extract(text)
    if answer is None:
        return Verdict("wrong", how, None)
    if len(answer) > LONGEST_ANSWER:
        return Verdict("wrong", f"the answer has {len(answer)} characters, more than {LONGEST_ANSWER}", answer)
    if (trick := _NO_VALUE.search(answer)) and not _NO_VALUE.search(gold):
        return Verdict("wrong", f"{how}: no value: {trick[0].strip()}", answer)
    if _OR.search(answer) and not _SEVERAL_VALUES.search(gold):
        values = [part.strip("() ") for part in _OR.split(answer)]
        if not all(_compare(_canonical(gold), _canonical(value), mode)[0] for value in values):
            return Verdict("wrong", f"{how}: several answers, {' or '.join(values)}"[:200], answer)
        answer = values[0]
    equal, reason = _compare(_canonical(gold), _canonical(answer), mode)
    return Verdict("right" if equal else "wrong", f"{how}: {reason}", answer)


@functools.lru_cache(maxsize=65536)
def gold_fault(gold: str) -> str | None:
    """Why nothing can be judged by this ground truth; None when it can be read."""
    gold = _canonical(gold)
    if not gold:
        return "the ground truth is empty"
    if exact(gold) is not None or _words(gold) is not None:
        return None
    try:
        with time_limit(TIME_LIMIT):
            parsed = _parse(gold)
    except TimeUpError as late:
        return f"the ground truth '{gold}' takes longer than {late.seconds:g} s to parse"
    except MemoryError:
        return f"the ground truth '{gold}' takes more memory than there is"
    return f"the ground truth '{gold}' cannot be parsed" if parsed is None else None


@functools.lru_cache(maxsize=65536)
def _compare(gold: str, answer: str, mode: Mode) -> tuple[bool, str]:
    """Whether two canonical answers are equal, and why."""
    if not answer:
        return False, "the answer is empty"
    if gold == answer:
        return True, "the ground truth itself"
    numbers = exact(gold), _number(answer)
    if numbers[0] is not None and numbers[1] is not None:
        equal = numbers[0] == numbers[1] or (mode == "paper" and _near(numbers[0], numbers[1]))
        return equal, "the same number" if equal else "another number"
    if mode == "strict" and numbers[0] is not None and _CALCULATION.search(answer.rpartition("=")[2]):
        return False, "a calculation that is not carried out"
    words = _words(gold), _words(answer)
    if words[0] is not None and words[1] is not None:
        return words[0] == words[1], "the same words" if words[0] == words[1] else "other words"
    try:
        with time_limit(TIME_LIMIT):
            parsed = _parse(answer)
            if parsed is None:
                return False, "the answer cannot be parsed"
            equal = _equal(_parse(gold), parsed, mode)
    except TimeUpError as late:
        return False, f"comparing takes longer than {late.seconds:g} s"
    except Exception as error:
        return False, f"comparing fails: {type(error).__name__}: {error}"[:200]
    return equal, "equal" if equal else "not equal"


def _canonical(text: str) -> str:
    return clean(_UPRIGHT_CONSTANT.sub(r"\1", normal(text)))


def _number(text: str) -> Fraction | None:
    """The number that an answer is, or that its equation ends in, `x = 5` or `6 * 7 = 42`."""
    left, _, right = text.rpartition("=")
    return exact(text) if not left or _SEVERAL.search(left) else exact(right)


def _words(text: str) -> str | None:
    r"""An answer of words, such as `\text{even}`, `(C)` or `Evelyn`, without its dress; None for anything that may be mathematics."""
    inner = _TEXT.sub(r"\1", text).strip().removeprefix("(").removesuffix(")").strip()
    if not _WORDS.fullmatch(inner) or (len(inner) < 4 and inner == text):
        return None
    return " ".join(inner.casefold().split())


def _near(gold: Any, answer: Any) -> bool:
    return any(abs(gold * factor - answer) <= PAPER_TOLERANCE for factor in (1, 100)) or abs(gold - 100 * answer) <= 100 * PAPER_TOLERANCE


@functools.cache
def _library() -> Any:
    """math-verify, without its log: what it would say there is in the grade."""
    import math_verify

    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    return math_verify


@functools.lru_cache(maxsize=4096)
def _parse(text: str) -> Any:
    """The answer as a SymPy object; None when it is not mathematics."""
    import sympy

    number = exact(text)
    if number is not None:
        return sympy.Rational(number.numerator, number.denominator)
    library = _library()
    # The box tells math-verify that all of the text is the answer; the time limit is ours.
    found = library.parse(rf"\boxed{{{text}}}", [library.LatexExtractionConfig()], fallback_mode="no_fallback", parsing_timeout=None)
    return found[0] if found else None


def _equal(gold: Any, answer: Any, mode: Mode) -> bool:
    """Whether two SymPy objects are equal, part by part where they have parts."""
    if _is_number(gold) and _is_number(answer):
        return _equal_numbers(gold, answer, mode)
    our_parts, their_parts = _parts(gold), _parts(answer)
    if our_parts and their_parts and our_parts[0] == their_parts[0]:
        kind, ours, theirs = our_parts[0], our_parts[1], their_parts[1]
        if len(ours) != len(theirs):
            return False
        return _same_elements(ours, theirs, mode) if kind == "set" else all(_equal(*pair, mode) for pair in zip(ours, theirs, strict=True))
    return bool(_library().verify(gold, answer, float_rounding=12, timeout_seconds=None))


def _same_elements(ours: tuple[Any, ...], theirs: tuple[Any, ...], mode: Mode) -> bool:
    """Whether each element has an equal of its own, in any order."""
    left = list(theirs)
    for one in ours:
        place = next((place for place, other in enumerate(left) if _equal(one, other, mode)), None)
        if place is None:
            return False
        del left[place]
    return True


def _parts(value: Any) -> tuple[str, tuple[Any, ...]] | None:
    """What kind of collection a value is, and its parts: an open interval `(1, 2)` is a pair; None when it has no parts."""
    import sympy

    if isinstance(value, sympy.Tuple):
        return "tuple", value.args
    if isinstance(value, sympy.Interval):
        return ("tuple" if value.is_open else f"interval {value.left_open} {value.right_open}"), (value.start, value.end)
    if isinstance(value, sympy.FiniteSet):
        return "set", value.args
    return None


def _is_number(value: Any) -> bool:
    import sympy

    return isinstance(value, sympy.Expr) and bool(value.is_number)


def _equal_numbers(gold: Any, answer: Any, mode: Mode) -> bool:
    """Whether two constants agree to 12 digits. Only relative: 1/2004! and 1/2006! are both nearly 0, and different."""
    import sympy

    if gold == answer:
        return True
    values = sympy.N(gold, 30), sympy.N(answer, 30)
    if not all(value.is_finite for value in values):  # every difference is within a tolerance relative to infinity
        return False
    if 0 in values:
        return bool(sympy.simplify(gold - answer) == 0) or (mode == "paper" and _near(*values))
    if abs(values[0] - values[1]) <= RELATIVE_TOLERANCE * max(abs(values[0]), abs(values[1])):
        return True
    return mode == "paper" and _near(*values)
