"""Three plain graders: the same text, a number within a tolerance, and a regular expression."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from sharpen.grading import numeric
from sharpen.grading.extract import after_thinking, clean, declared, extract
from sharpen.grading.forms import Named, Value
from sharpen.grading.math import LONGEST_ANSWER, NO_VALUE, TIME_LIMIT
from sharpen.grading.numbers import exact
from sharpen.grading.reading import read
from sharpen.grading.spelling import normal
from sharpen.grading.timing import TimeUpError, time_limit
from sharpen.grading.verdict import Verdict

PATTERN_SECONDS = 1.0

_LARGEST_EXPONENT = 10_000  # a fraction holds all its digits


def grade_exact(gold: str, text: str, *, ignore_case: bool = False) -> Verdict:
    """Judge what a completion declares as its answer by its text alone; spaces, emphasis and full stops around it do not count.

    Args:
        gold: the ground truth.
        text: the completion.
        ignore_case: whether capitals count as small letters.
    """
    ours, theirs = (" ".join(clean(normal(part)).split()) for part in (gold, declared(text)))
    if not ours:
        return Verdict("unscorable", "the ground truth is empty", None)
    if not theirs:
        return Verdict("wrong", "no answer found", None)
    same = ours.casefold() == theirs.casefold() if ignore_case else ours == theirs
    return Verdict("right" if same else "wrong", "the same text" if same else "another text", theirs)


def grade_numeric(gold: str, text: str, *, absolute: float = 0.0, relative: float = 0.0) -> Verdict:
    """Judge the final number of a completion, within a tolerance.

    Args:
        gold: the ground truth, a number or a constant expression.
        text: the completion.
        absolute: the largest difference that is accepted.
        relative: the same as a share of the ground truth's size; the larger of the two counts.
    """
    ours = number_of(gold)
    if ours is None:
        return Verdict("unscorable", f"the ground truth '{gold}' is not a number", None)
    answer, how = extract(text)
    if answer is None:
        return Verdict("wrong", how, None)
    if (trick := NO_VALUE.search(answer)) and not NO_VALUE.search(gold):
        return Verdict("wrong", f"{how}: no value: {trick[0].strip()}", answer)
    try:
        theirs = number_of(answer)
    except TimeUpError as late:
        return Verdict("wrong", f"{how}: takes longer than {late.seconds:g} s", answer)
    if theirs is None:
        return Verdict("wrong", f"{how}: not a number", answer)
    allowed = max(Fraction(absolute), Fraction(relative) * abs(ours))
    gap = abs(ours - theirs)
    if gap <= allowed:
        return Verdict("right", f"{how}: within the tolerance" if gap else f"{how}: the same number", answer)
    return Verdict("wrong", f"{how}: off by {_size(gap)}, more than {_size(allowed)}", answer)


def _size(number: Fraction) -> str:
    try:
        return f"{float(number):.6g}"
    except OverflowError:
        return "more than 1e308"


def number_of(text: str) -> Fraction | None:
    """The real number that a text is: exactly where it is rational, to 50 digits for a constant such as a root; None for any other text.

    Raises:
        TimeUpError: computing it takes too long.
    """
    if len(text) > LONGEST_ANSWER:
        return None
    if (plain := exact(clean(normal(text)))) is not None:
        return plain
    with time_limit(TIME_LIMIT):
        return _value_of(clean(normal(text)))


def _value_of(text: str) -> Fraction | None:
    form = read(text)
    if isinstance(form, Named):
        form = form.value
    if not isinstance(form, Value):
        return None
    if form.node.op == "number":
        return form.node.value
    try:
        value = numeric.value(form.node)
        if getattr(value, "imag", 0) != 0:
            return None
        digits = numeric.context(numeric.DIGITS).nstr(value, 45)
        return Fraction(digits) if abs(int(digits.partition("e")[2] or 0)) <= _LARGEST_EXPONENT else None
    except (numeric.UndefinedError, numeric.TooLargeError, ValueError):
        return None


def grade_regex(gold: str, text: str, *, ignore_case: bool = False, whole_text: bool = False) -> Verdict:
    """Judge by a regular expression, which must match all of what a completion declares as its answer.

    Args:
        gold: the pattern, as the package `regex` reads it.
        text: the completion.
        ignore_case: whether capitals count as small letters.
        whole_text: search all that is said after thinking for the pattern, instead of matching the answer.
    """
    import regex

    if not gold:
        return Verdict("unscorable", "the pattern is empty", None)
    try:
        with time_limit(PATTERN_SECONDS):  # a short pattern can ask for any amount of memory, so it is left to a worker
            pattern = regex.compile(gold, regex.IGNORECASE if ignore_case else 0)
    except (TimeUpError, Exception) as error:
        why = f"it takes longer than {error.seconds:g} s" if isinstance(error, TimeUpError) else f"{type(error).__name__}: {error}"
        return Verdict("unscorable", f"the pattern '{gold[:100]}' cannot be compiled: {why}", None)
    said = (after_thinking(text) or "") if whole_text else clean(declared(text))
    if not said:
        return Verdict("wrong", "no answer found", None)
    try:
        with time_limit(2 * PATTERN_SECONDS):
            found: Any = (pattern.search if whole_text else pattern.fullmatch)(said, timeout=PATTERN_SECONDS)
    except TimeoutError:
        return Verdict("wrong", f"matching takes longer than {PATTERN_SECONDS:g} s", said[:LONGEST_ANSWER])
    shown = found[0] if found and whole_text else said[:LONGEST_ANSWER]
    return Verdict("right" if found else "wrong", "the pattern matches" if found else "the pattern does not match", shown)
