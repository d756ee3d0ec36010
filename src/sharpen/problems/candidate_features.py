"""What can be told of a candidate from the texts alone: the question's and the candidate's own.

A feature never sees the ground truth, how a candidate was made, its place among the six, or the other five.
"""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

from sharpen.problems.worked import NUMBER, Worked, number, parse

_UNITS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_SPELLED: dict[str, str] = {
    **{word: str(i) for i, word in enumerate(_UNITS, start=2)},
    **{word: str(10 * i) for i, word in enumerate(_TENS, start=2)},
    **dict.fromkeys(("half", "halves", "twice", "double", "doubles", "doubled", "couple", "pair", "pairs", "both"), "2"),
    **dict.fromkeys(("third", "thirds", "triple", "triples", "tripled", "thrice"), "3"),
    **dict.fromkeys(("quarter", "quarters", "fourth", "fourths"), "4"),
    **dict.fromkeys(("fifth", "fifths"), "5"),
    **dict.fromkeys(("dozen", "dozens"), "12"),
    **dict.fromkeys(("hundred", "hundreds"), "100"),
    **dict.fromkeys(("thousand", "thousands"), "1000"),
}
"""Numbers that a question states in words."""

_IMPLIED: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("half", "halves"), ("1/2",)),
    **dict.fromkeys(("third", "thirds"), ("1/3",)),
    **dict.fromkeys(("quarter", "quarters", "fourth", "fourths"), ("1/4",)),
    **dict.fromkeys(("fifth", "fifths"), ("1/5",)),
    **dict.fromkeys(("percent", "cents", "cent"), ("100",)),
    **dict.fromkeys(("day", "days", "daily"), ("24", "7")),
    **dict.fromkeys(("week", "weeks", "weekly"), ("7", "4", "52")),
    **dict.fromkeys(("month", "months", "monthly"), ("30", "12", "4")),
    **dict.fromkeys(("year", "years", "yearly", "annual"), ("12", "52", "365")),
    **dict.fromkeys(("hour", "hours", "hourly", "minute", "minutes"), ("60",)),
    **dict.fromkeys(("foot", "feet", "inches"), ("12",)),
    **dict.fromkeys(("yard", "yards"), ("3",)),
}
"""Numbers that a word of the question may bring into a solution."""

_CUES: dict[str, str] = {
    "total": r"total|altogether|all|sum|combined|together|both",
    "left": r"left|remain\w*|after|still|without|less|fewer|difference|discount|off|lost|gave|minus|change|already",
    "each": r"each|per|every|apiece",
    "times": r"times|twice|double\w*|triple\w*|percent|of",
    "shared": r"half|third|quarter|split|divide\w*|average|equally|shared?",
}
_CUE_PATTERNS = {name: re.compile(rf"\b(?:{words})\b") for name, words in _CUES.items()}
_OPERATIONS = "+-*/"
_SUMS = frozenset("+-")
_ROLES = {
    "times": re.compile(r"(?:times|-fold)"),
    "rate": re.compile(r"(?:[\w-]+ ){0,3}?(?:each|per|every|apiece|an? (?:hour|day|week|month|year|minute|piece))\b"),
    "difference": re.compile(r"(?:[\w-]+ )?(?:more|additional|extra|older|longer|taller|less|fewer|younger|shorter)\b"),
    "share": re.compile(r"(?:%|percent|/ ?\d)"),
    "time": re.compile(r"(?:hours?|days?|weeks?|months?|years?|minutes?)\b"),
}
"""What a number of the question is, by the words after it."""
_NUMERAL = re.compile(rf"({NUMBER.pattern})[ -]?|\b({'|'.join(_SPELLED)})\b[ -]?")

FEATURES = (
    "equations that hold",
    "all equations hold",
    "answer is the last result",
    "operands of known origin",
    "all operands of known origin",
    "numbers of the question used",
    "all numbers of the question used",
    "numbers used more often than stated",
    "results used later",
    "all results used later",
    "operand in its sentence",
    "steps",
    "steps per number of the question",
    "length",
    "whole answer",
    "whole results",
    "answer stands in the question",
    "answer to largest number",
    "answer far from the numbers",
    "results below one",
    "sums of unlike size",
    "products of large numbers",
    "money added to no money",
    "money times money",
    "money from nothing",
    "last line speaks of what is asked",
    "money answers a question for money",
    *(f"{operation} of a number for '{role}'" for role in _ROLES for operation in _OPERATIONS),
    *(f"{operation} where the line says '{cue}'" for cue in _CUES for operation in _OPERATIONS),
)

_WORD = re.compile(r"[a-z]+")
_ENDING = re.compile(r"(?:ing|ed|es|s)$")
_RATIO = re.compile(r"(\d+)\s*/\s*(\d+)")
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*(?:%|percent)")
_MONEY = re.compile(rf"\$\s*({NUMBER.pattern})|({NUMBER.pattern})\s*(?:dollars|cents)")
_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_STOP = frozenset(
    (
        *("a", "an", "the", "of", "to", "in", "on", "at", "for", "with", "from", "by", "as", "and", "or", "if", "so", "then", "there"),
        *("he", "she", "it", "they", "his", "her", "their", "that", "this", "which", "who", "how", "many", "much"),
        *("is", "are", "was", "were", "be", "has", "have", "had", "will", "would", "do", "does", "did"),
    )
)


@dataclass(frozen=True, slots=True)
class Reading:
    """What a question's text says, read once for its six candidates.

    Attributes:
        stated: its numbers, in digits and in words, and how often.
        implied: numbers that a solution may bring in: a week's 7, fractions, percentages, and 1.
        money: its amounts of money.
        contexts: for each stated number the words of the sentences that it stands in.
        asked: the words of the last sentence.
        asks_money: whether that asks for money.
    """

    stated: Counter[Fraction]
    implied: frozenset[Fraction]
    money: frozenset[Fraction]
    contexts: dict[Fraction, frozenset[str]]
    roles: dict[Fraction, frozenset[str]]
    asked: frozenset[str]
    asks_money: bool


@functools.lru_cache(maxsize=4096)
def read(question: str) -> Reading:
    """The reading of a question."""
    sentences = _SENTENCE.split(question.strip())
    stated: Counter[Fraction] = Counter()
    contexts: dict[Fraction, frozenset[str]] = {}
    roles: dict[Fraction, frozenset[str]] = {}
    for sentence in sentences:
        words = _words(sentence)
        for value in _stated(sentence):
            stated[value] += 1
            contexts[value] = contexts.get(value, frozenset()) | words
        for value, role in _roles(sentence):
            roles[value] = roles.get(value, frozenset()) | {role}
    low = sentences[-1].lower()
    return Reading(
        stated=stated,
        implied=_implied(question.lower()),
        money=frozenset(amount for found in _MONEY.findall(question) if (amount := number(found[0] or found[1])) is not None),
        contexts=contexts,
        roles=roles,
        asked=_words(low),
        asks_money=bool(re.search(r"how much (?!\w+er\b)|\$|dollars|cost|money|\bpay\b|earn|spend", low)) and "how many" not in low,
    )


def features(question: str, candidate: str) -> list[float]:
    """The values of `FEATURES` for a candidate answer, before standardising; zeros where the text is no worked solution."""
    worked = parse(candidate)
    if worked is None or not worked.steps:
        return [0.0] * len(FEATURES)
    reading = read(question)
    return [
        *_arithmetic(worked),
        *_origins(worked, reading),
        *_shape(worked, reading),
        *_units(worked, reading),
        *_by_role(worked, reading),
        *_cues(worked),
    ]


def equations_that_hold(candidate: str) -> float:
    """The share of a candidate's equations that hold; 0 where it is no worked solution or has none."""
    worked = parse(candidate)
    return _share([step.holds for step in worked.steps]) if worked is not None and worked.steps else 0.0


def _stated(text: str) -> list[Fraction]:
    values = [value for found in NUMBER.findall(text) if (value := number(found)) is not None]
    return values + [Fraction(_SPELLED[word]) for word in _WORD.findall(text.lower()) if word in _SPELLED]


def _roles(sentence: str) -> list[tuple[Fraction, str]]:
    """Each number of a sentence with each of its roles."""
    found: list[tuple[Fraction, str]] = []
    low = sentence.lower()
    for match in _NUMERAL.finditer(low):
        value = number(match[1]) if match[1] else Fraction(_SPELLED[match[2]])
        if value is None:
            continue
        rest = low[match.end() : match.end() + 60]
        found += [(value, role) for role, pattern in _ROLES.items() if pattern.match(rest)]
        if re.search(r"\b(?:each|every|per)(?: [\w-]+){0,3} \$?$", low[: match.start()]):
            found.append((value, "rate"))
        if match[2] in ("twice", "double", "triple", "thrice", "doubled", "tripled"):
            found.append((value, "times"))
        if match[2] in ("half", "third", "quarter"):
            found.append((value, "share"))
    return found


def _implied(low: str) -> frozenset[Fraction]:
    values = {Fraction(value) for word in set(_WORD.findall(low)) & _IMPLIED.keys() for value in _IMPLIED[word]}
    for top, bottom in _RATIO.findall(low):
        if int(bottom):
            values |= {Fraction(int(top), int(bottom)), 1 - Fraction(int(top), int(bottom))}
    for share in _PERCENT.findall(low):
        percent = Fraction(share) / 100
        values |= {percent, 1 - percent, 1 + percent, 100 - 100 * percent, 100 + 100 * percent, Fraction(100)}
    return frozenset(values | {Fraction(1)})


@functools.lru_cache(maxsize=65536)
def _words(text: str) -> frozenset[str]:
    """The words of a text that say something, without their endings."""
    return frozenset(_ENDING.sub("", word) for word in _WORD.findall(text.lower()) if word not in _STOP)


def _arithmetic(worked: Worked) -> list[float]:
    holds = [step.holds for step in worked.steps]
    return [_share(holds), float(all(holds)), float(number(worked.answer) == worked.steps[-1].value)]


def _origins(worked: Worked, reading: Reading) -> list[float]:
    """Where the operands come from, and what becomes of the numbers of the question and of the results."""
    earlier: set[Fraction] = set()
    known: list[bool] = []
    uses: Counter[Fraction] = Counter()
    fits: list[float] = []
    for step in worked.steps:
        words = _words(step.before + step.after)
        for value in step.operands:
            known.append(value in earlier or value in reading.implied or value in reading.stated)
            uses[value] += 1
            if value in reading.contexts and value not in earlier:
                fits.append(len(words & reading.contexts[value]) / max(1, len(words)))
        earlier.add(step.value)
    used = [value in uses for value in reading.stated]
    later = [step.value in uses for step in worked.steps[:-1]]
    return [
        _share(known),
        float(all(known)),
        _share(used),
        float(all(used)),
        sum(max(0, uses[value] - times) for value, times in reading.stated.items()) / max(1, len(reading.stated)),
        _share(later),
        float(all(later)),
        sum(fits) / len(fits) if fits else 0.0,
    ]


def _shape(worked: Worked, reading: Reading) -> list[float]:
    """Length, wholeness and size."""
    answer, steps = number(worked.answer) or Fraction(0), worked.steps
    ratio = _log(answer) - _log(max(reading.stated, default=Fraction(1)))
    gaps, products = [], []
    for step in steps:
        values = step.operands
        if step.operations and step.operations <= _SUMS:
            gaps.append(max(map(_log, values)) - min(map(_log, values)))
        elif "*" in step.operations:
            products.append(min(map(_log, values)))
    return [
        float(len(steps)),
        len(steps) / max(1, len(reading.stated)),
        math.log(len(worked.text)),
        float(answer.denominator == 1),
        _share([step.value.denominator == 1 for step in steps]),
        float(answer in reading.stated),
        ratio,
        abs(ratio),
        _share([abs(step.value) < 1 for step in steps]),
        max(gaps, default=0.0),
        max(products, default=0.0),
    ]


def _units(worked: Worked, reading: Reading) -> list[float]:
    """Whether money is added to money, multiplied by what is none, and asked for."""
    money, plain = set(reading.money), {value for value in reading.stated if value not in reading.money}
    unlike = squared = unfounded = 0
    for step in worked.steps:
        kinds = [(value in money, value in plain) for value in step.operands]
        sure = [is_amount for is_amount, is_other in kinds if is_amount != is_other]
        is_money = step.before.rstrip().endswith("$") or bool(re.match(r"\s*[\d,.]+\s*(?:dollars|cents)", step.after))
        unlike += step.operations <= _SUMS and any(sure) and not all(sure)
        squared += step.operations == {"*"} and sum(sure) > 1
        unfounded += is_money and not any(is_amount for is_amount, _ in kinds)
        (money if is_money else plain).add(step.value)
    last = worked.steps[-1]
    words = _words(last.before + last.after)
    return [
        float(unlike),
        float(squared),
        float(unfounded),
        len(words & reading.asked) / max(1, len(words)),
        float((last.value in money) == reading.asks_money),
    ]


def _by_role(worked: Worked, reading: Reading) -> list[float]:
    """How many steps have each operation with an operand of each role."""
    found: Counter[tuple[str, str]] = Counter()
    for step in worked.steps:
        roles = {role for value in step.operands for role in reading.roles.get(value, ())}
        found.update((role, operation) for role in roles for operation in step.operations)
    return [float(found[role, operation]) for role in _ROLES for operation in _OPERATIONS]


def _cues(worked: Worked) -> list[float]:
    """How many steps have each operation where their line has each cue."""
    found: Counter[tuple[str, str]] = Counter()
    for step in worked.steps:
        for cue in _cues_of(f"{step.before} {step.after}"):
            found.update((cue, operation) for operation in step.operations)
    return [float(found[cue, operation]) for cue in _CUES for operation in _OPERATIONS]


@functools.lru_cache(maxsize=65536)
def _cues_of(text: str) -> tuple[str, ...]:
    return tuple(cue for cue, pattern in _CUE_PATTERNS.items() if pattern.search(text.lower()))


def _log(value: Fraction) -> float:
    return math.log10(max(1e-6, abs(float(value))))


def _share(values: list[bool]) -> float:
    return sum(values) / len(values) if values else 1.0
