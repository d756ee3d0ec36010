r"""Is a mathematical answer equal to the ground truth?

Two declared modes:

- `strict`: equal values. A number equals itself however it is written (`\frac12`, `0.5`, `50\%`), and `28` is not `28\%`. Roundings are
  wrong: `0.333` is not `\frac13`. So is a calculation in place of a plain number: `7 * 8` is not an answer where `56` is asked for.
- `paper`: with the tolerance of DeepSeekMath's evaluation: also numbers that differ by at most 1e-3, x/100 or 100x for x, and calculations.

Plain numbers are compared as fractions, exactly. Anything else is read by our own grammar (`reading.py`) and compared by value
(`equality.py`, `numeric.py`); what that does not know is left to math-verify (`library.py`), with `TIME_LIMIT` seconds for each comparison.
docs/grading.md has the policies and the measured rates of error.
"""

from __future__ import annotations

import functools
import re

from sharpen.grading import library
from sharpen.grading.equality import UndecidedError, equal, near
from sharpen.grading.extract import clean, extract, is_prose
from sharpen.grading.finished import is_calculation, undone
from sharpen.grading.forms import Foreign, Form, Named, Parts, Value, Words
from sharpen.grading.numbers import is_only_unit, quantity
from sharpen.grading.numeric import TooLargeError
from sharpen.grading.reading import read, read_words
from sharpen.grading.spelling import normal, spell
from sharpen.grading.timing import TimeUpError, time_limit
from sharpen.grading.verdict import Mode, Verdict

TIME_LIMIT = 5.0
LONGEST_ANSWER = 1000

NO_VALUE = re.compile(
    r"\\[hv]?phantom\b|\\(?:text)?color\s*\{\s*white\s*\}|(?<!\\)%\s*[\w\\(]|^\s*(?:\\neq?\b|\\not\b|≠|\\text\s*\{\s*not\b|not\b)"
)
_OR = re.compile(r"\\text\s*\{\s*\(?or\s*\}|\(?\bor\b|\(?或者?")
_SEVERAL_VALUES = re.compile(r",|;|\\pm|\\text|\b(?:and|or)\b|或|和")
_TEXT = re.compile(r"\\text\s*\{([^{}]*)\}")
_LETTERS = re.compile(r"(?:\\text\s*\{\s*)?\(?([A-Za-z]{1,30})\)?\.?\s*\}?")


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
    if (trick := NO_VALUE.search(answer)) and not NO_VALUE.search(gold):
        return Verdict("wrong", f"{how}: no value: {trick[0].strip()}", answer)
    if _OR.search(answer) and not _SEVERAL_VALUES.search(gold):
        values = [part.strip("() ") for part in _OR.split(answer)]
        if not all(compare(canonical(gold), canonical(value), mode)[0] for value in values):
            return Verdict("wrong", f"{how}: several answers, {' or '.join(values)}"[:200], answer)
        answer = values[0]
    same, reason = compare(canonical(gold), canonical(answer), mode)
    return Verdict("right" if same else "wrong", f"{how}: {reason}", answer)


@functools.lru_cache(maxsize=65536)
def gold_fault(gold: str) -> str | None:
    """Why nothing can be judged by this ground truth; None when it can be read."""
    gold = canonical(gold)
    if not gold:
        return "the ground truth is empty"
    if len(gold) > LONGEST_ANSWER:
        return f"the ground truth has {len(gold)} characters, more than {LONGEST_ANSWER}"
    if quantity(gold) is not None or read_words(gold) is not None:
        return None
    try:
        with time_limit(TIME_LIMIT):
            return None if _is_read(gold) else f"the ground truth '{gold}' cannot be parsed"
    except TimeUpError as late:
        return f"the ground truth '{gold}' takes longer than {late.seconds:g} s to parse"
    except MemoryError:
        return f"the ground truth '{gold}' takes more memory than there is"
    except Exception as error:
        return f"the ground truth '{gold}' cannot be parsed: {type(error).__name__}: {error}"[:200]


def _is_read(gold: str) -> bool:
    """Whether our grammar reads a ground truth, or else math-verify."""
    form = read(gold)
    return form is not None and (not _holds_foreign(form) or library.parse(spell(gold)) is not None)


def _holds_foreign(form: Form) -> bool:
    return isinstance(form, Foreign) or (isinstance(form, Parts) and any(_holds_foreign(item) for item in form.items))


@functools.lru_cache(maxsize=65536)
def compare(gold: str, answer: str, mode: Mode, *, shortcuts: bool = True, by_library: bool = True) -> tuple[bool, str]:
    """Whether two answers are equal, and why.

    Args:
        gold: the ground truth, cleaned.
        answer: the answer, cleaned.
        mode: what counts as equal.
        shortcuts: decide equal texts, plain numbers and words at once; without, everything goes the long way, which a test compares with.
        by_library: ask math-verify about what only it reads, which may take seconds; without, such answers are not equal.
    """
    if not answer:
        return False, "the answer is empty"
    if shortcuts:
        if gold == answer:
            return True, "the ground truth itself"
        numbers = quantity(gold), quantity(answer)
        if numbers[0] is not None and numbers[1] is not None and None in (numbers[0].unit, numbers[1].unit):
            same = numbers[0].value == numbers[1].value or (mode == "paper" and near(numbers[0].value, numbers[1].value))
            return same, "the same number" if same else "another number"
        words = read_words(gold), read_words(answer)
        if words[0] is not None and words[1] is not None:
            return words[0] == words[1], "the same words" if words[0] == words[1] else "other words"
    try:
        with time_limit(TIME_LIMIT):
            return _compare_forms(gold, answer, mode, by_library)
    except TimeUpError as late:
        return False, f"comparing takes longer than {late.seconds:g} s"
    except Exception as error:
        return False, f"comparing fails: {type(error).__name__}: {error}"[:200]


def _compare_forms(gold: str, answer: str, mode: Mode, by_library: bool) -> tuple[bool, str]:
    ours, theirs = read(gold), read(answer)
    if ours is None or theirs is None:
        return False, "the answer is empty"
    if isinstance(ours, Words) != isinstance(theirs, Words) and (both := [_LETTERS.fullmatch(spell(text)) for text in (gold, answer)]):
        # Three letters may be a product or a name: what the other is, tells.
        same_letters = both[0] is not None and both[1] is not None and both[0][1].lower() == both[1][1].lower()
        return same_letters, "the same words" if same_letters else "other words"
    if mode == "strict":
        value = theirs.value if isinstance(theirs, Named) else theirs
        if isinstance(ours, Value) and ours.node.op == "number" and isinstance(value, Value) and is_calculation(value.node):
            return False, "a calculation that is not carried out"
        if (left := undone(answer, gold)) is not None:
            return False, f"{left} is not carried out"
    try:
        same = equal(ours, theirs, mode)
    except TooLargeError:
        return False, "a number that is too large to compute"
    except UndecidedError:
        if not by_library:
            return False, "only math-verify could tell"
        spelled = spell(answer)
        words = [text.strip() for text in _TEXT.findall(spelled) if text.strip() not in gold]
        if is_prose(spelled) or not all(is_only_unit(text) for text in words):  # math-verify would take a formula out of it
            return False, "the answer cannot be parsed"
        parsed = library.parse(spelled)
        if parsed is None:
            return False, "the answer cannot be parsed"
        same = library.equal(library.parse(spell(gold)), parsed)
    return same, "equal" if same else "not equal"


def canonical(text: str) -> str:
    """An answer as `compare` takes it."""
    return clean(normal(text))
