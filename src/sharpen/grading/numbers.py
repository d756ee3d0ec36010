"""Reading plain numbers exactly: integers, decimals, fractions, mixed numbers and percentages, with separators, currency and units."""

from __future__ import annotations

import functools
import itertools
import math
import re
from fractions import Fraction
from typing import NamedTuple

from sharpen.grading.numerals import number_in_words
from sharpen.grading.spelling import DOLLAR, normal
from sharpen.grading.units import CURRENCY_SIGNS, DEGREE, TABLE, Unit, may_be_unit, read_unit

LONGEST_NUMBER = 200
"""Characters. A longer text is no plain number, and is not looked at."""

_SPACING = re.compile(r"\\[!,;:]\s*|\\(?:left|right|displaystyle|quad)(?![A-Za-z])")
_UNIT = re.compile(r"\s*(\\(?:text|textrm|mbox|mathrm|rm)\s*\{[^{}\d%]*\}(?:\^\{?\d\}?)?)\s*$")
_DEGREES = re.compile(r"\s*(?:\^\s*\{?\s*\\circ\s*\}?|°)\s*([CF]?)\s*$")
_WORDS = re.compile(r"(?<=[\d}])\s+([A-Za-z]{2,}(?:\^\{?[23]\}?)?(?:[ /.-]+[A-Za-z]+(?:\^\{?[23]\}?)?)*)\s*$")
_CHINESE = re.compile(r"(?<=[\d}])\s*([\u4e00-\u9fff]{1,8})\s*$")
_NO_CHINESE_UNIT = re.compile("[和或又至到比与及是分之不非错没未否无负半]")
_PERCENT = re.compile(
    r"\s*\\?\s*(?:\\?(?:text|textrm|mbox|mathrm|rm)\s*\{\s*)?(?:(?P<mille>per\s?mille?|‰)|\\?%|per\s?cents?|percentages?|pct)(?:\s*\})?\s*$",
    re.IGNORECASE,
)
_TIME_OF_DAY = re.compile(r"[ap]\.?m\.?", re.IGNORECASE)
_MAGNITUDES = {"dozen": 12, "ten": 10, "hundred": 100, "thousand": 10**3, "lakh": 10**5, "million": 10**6, "crore": 10**7}
_MAGNITUDES |= {"billion": 10**9, "trillion": 10**12}
_ORDINALS = {"half": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7, "eighth": 8, "ninth": 9, "tenth": 10}
_ORDINALS |= {f"{name}th": size for name, size in _MAGNITUDES.items() if name not in ("dozen", "ten", "lakh", "crore")}
_SCALES = (
    {name: Fraction(size) for name, size in _MAGNITUDES.items()}
    | {f"{name}s": Fraction(size) for name, size in _MAGNITUDES.items()}
    | {name: Fraction(1, size) for name, size in _ORDINALS.items()}
    | {f"{name}s": Fraction(1, size) for name, size in _ORDINALS.items()}
    | {"halves": Fraction(1, 2)}
)
_CHINESE_SCALES = {"百万": 10**6, "千万": 10**7, "万": 10**4, "亿": 10**8, "千": 1000, "百": 100}
_BESIDE_ZERO = re.compile(r"\s*\b(below|above) zero\b", re.IGNORECASE)
_CURRENCY = re.compile(rf"([-+]?)\s*([${DOLLAR}€£¥₹]|(?:USD|EUR|GBP|RMB)\b)\s*(?=[-+]?[\d.\\])")
_CURRENCIES = CURRENCY_SIGNS | {DOLLAR: TABLE["$"], "GBP": TABLE["£"], "RMB": TABLE["¥"], "USD": TABLE["$"], "EUR": TABLE["€"]}

_PLAIN = r"(?:\d{1,3}(?:(?:,|\{,\})\d{3})+|\d{1,3}(?: \d{3})+|\d+)(?:\.\d*)?|\.\d+"
_NUMBER = re.compile(_PLAIN)
_RATIO = re.compile(rf"(?P<top>{_PLAIN})\s*/\s*(?P<bottom>{_PLAIN})")
_LATEX = re.compile(r"(?P<whole>\d+)?\s*\\[dtc]?frac\s*(?:\{\s*(?P<a>-?\d+)\s*\}|(?P<b>\d))\s*(?:\{\s*(?P<c>\d+)\s*\}|(?P<d>\d))")
_SCIENTIFIC = re.compile(
    rf"(?P<factor>{_PLAIN})\s*(?:(?:\\times|\\cdot|×|\*)\s*10\s*(?:\^|\*\*)\s*(?:\{{\s*(?P<a>-?\d{{1,3}})\s*\}}|(?P<b>-?\d{{1,3}}))"
    r"|[eE](?P<c>[-+]?\d{1,3}))"
)
_MIXED = re.compile(r"(?P<whole>\d+)\s+(?P<a>\d+)\s*/\s*(?P<c>\d+)")
_RECURRING = re.compile(r"(\d*)\.(\d*)(?:\\(?:overline|bar)\s*\{\s*(\d+)\s*\}|\\dot\s*\{?\s*(\d)\s*\}?)")
_ELLIPSIS = re.compile(r"(\d*\.\d{3,40})\s*(?:\\(?:ldots|dots|cdots)|\.\.\.|…)")
_REPEATED = re.compile(r"(\d*)\.(\d*?)(\d+?)\3{2,}")


class Quantity(NamedTuple):
    """A number and its unit; None for no unit, or for one that is not known."""

    value: Fraction
    unit: Unit | None


def exact(text: str) -> Fraction | None:
    r"""The number that the text is, exactly; None when it is not one plain number.

    `7,425,000`, `0.5`, `3/4`, `\frac34`, `1\frac{3}{4}`, `28\%`, `28 percent`, `\$18`, `10\text{ inches}`, `18 dollars` and `90^\circ` are
    numbers; so are `1.2 \times 10^5`, `0.\overline{3}` and `3万`. A unit is dropped, a percentage is the hundredth part (`28\%` is 7/25),
    and `5 million` is 5,000,000.
    """
    found = quantity(text)
    return None if found is None else found.value


@functools.lru_cache(maxsize=65536)
def quantity(text: str) -> Quantity | None:
    """The number that the text is, as `exact` reads it, with its unit."""
    if len(text) > LONGEST_NUMBER:
        return None
    if _NUMBER.fullmatch(text):
        value = _unsigned(text)
        return None if value is None else Quantity(value, None)
    text = _SPACING.sub("", normal(text).replace("\\ ", " ").replace("~", " ")).replace("\\$", DOLLAR).strip()
    text, unit = _without_currency(text)
    text = text.replace("$", "")
    factor = Fraction(1)
    if degrees := _DEGREES.search(text):
        text, unit = text[: degrees.start()], {"C": TABLE["celsius"], "F": TABLE["fahrenheit"]}.get(degrees[1], DEGREE)
    elif percent := _PERCENT.search(text):
        text, factor = text[: percent.start()], Fraction(1, 1000 if percent["mille"] else 100)
    else:
        text, factor, named = _without_unit(text)
        unit = named or unit
    value = _unsigned(text[1:].strip() if text[:1] in ("-", "+") else text)
    return None if value is None else Quantity((-1 if text.startswith("-") else 1) * factor * value, unit)


def _without_currency(text: str) -> tuple[str, Unit | None]:
    sign = _CURRENCY.match(text)
    return (sign[1] + text[sign.end() :], _CURRENCIES[sign[2]]) if sign else (text, None)


def _without_unit(text: str) -> tuple[str, Fraction, Unit | None]:
    """The text before its unit, what the unit multiplies (a million for `5 million dollars`, else 1), and the unit when it is known."""
    found = _CHINESE.search(text) or _UNIT.search(text) or _WORDS.search(text)
    if found is None:
        return text, Fraction(1), None
    name = re.sub(r"\\[a-z]+\s*\{([^{}]*)\}", r"\1", found[1]).strip()
    if name and not name.isascii():
        return (text, Fraction(1), None) if _NO_CHINESE_UNIT.search(name) else (text[: found.start()], *_chinese_unit(name))
    beside = _BESIDE_ZERO.search(name)
    factor = Fraction(-1 if beside and beside[1].lower() == "below" else 1)
    name = _BESIDE_ZERO.sub("", name)
    words = name.split()
    scales = list(itertools.takewhile(lambda word: word.lower() in _SCALES, words))
    rest = " ".join(words[len(scales) :])
    if (rest and not may_be_unit(rest)) or _TIME_OF_DAY.fullmatch(rest) or not (words or beside) or number_in_words(name) is not None:
        return text, Fraction(1), None
    return text[: found.start()], factor * math.prod(_SCALES[word.lower()] for word in scales), read_unit(rest)


def is_only_unit(words: str) -> bool:
    """Whether the words after a value may be its unit, and change nothing about it: no `thousand`, no `tenths`."""
    return may_be_unit(words) and not any(word.lower() in _SCALES for word in words.split())


def is_magnitude(word: str) -> bool:
    """Whether a word after a number multiplies it: `5 thousand`, `2 dozen`."""
    return word.lower().removesuffix("s") in _MAGNITUDES


def _chinese_unit(name: str) -> tuple[Fraction, Unit | None]:
    for word, scale in () if read_unit(name) else _CHINESE_SCALES.items():
        if name.startswith(word):
            return Fraction(scale), read_unit(name.removeprefix(word))
    return Fraction(1), read_unit(name)


def _unsigned(text: str) -> Fraction | None:
    try:
        if _NUMBER.fullmatch(text):
            return _plain(text)
        if ratio := _RATIO.fullmatch(text):
            return _plain(ratio["top"]) / _plain(ratio["bottom"])
        if latex := _LATEX.fullmatch(text):
            return int(latex["whole"] or 0) + Fraction(int(latex["a"] or latex["b"]), int(latex["c"] or latex["d"]))
        if scientific := _SCIENTIFIC.fullmatch(text):
            return _plain(scientific["factor"]) * Fraction(10) ** int(scientific["a"] or scientific["b"] or scientific["c"])
        if mixed := _MIXED.fullmatch(text):
            return int(mixed["whole"]) + Fraction(int(mixed["a"]), int(mixed["c"]))
        if recurring := _RECURRING.fullmatch(text):
            return _recurring(recurring[1], recurring[2], recurring[3] or recurring[4])
        if (ellipsis := _ELLIPSIS.fullmatch(text)) and (repeated := _REPEATED.fullmatch(ellipsis[1])):
            return _recurring(repeated[1], repeated[2], repeated[3])
    except (ValueError, ZeroDivisionError):  # a number of more digits than Python converts, or a division by zero
        return None
    return None


def _recurring(whole: str, once: str, again: str) -> Fraction:
    """A recurring decimal: `0.1` and then 6 without end is 1/6."""
    places = 10 ** len(once)
    return int(whole or 0) + Fraction(int(once or 0), places) + Fraction(int(again), (10 ** len(again) - 1) * places)


def _plain(text: str) -> Fraction:
    return Fraction(text.replace("{,}", "").replace(",", "").replace(" ", "").removesuffix("."))
