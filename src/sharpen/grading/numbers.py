"""Reading plain numbers exactly: integers, decimals, fractions, mixed numbers and percentages, with separators, currency and units."""

from __future__ import annotations

import math
import re
from fractions import Fraction

LONGEST_NUMBER = 200
"""Characters. A longer text is no plain number, and is not looked at."""

_FULL_WIDTH = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {0x3000: " ", 0x2212: "-"}

_SPACING = re.compile(r"\\[!,;:]\s*|\\(?:left|right|displaystyle|quad)(?![A-Za-z])")
_UNIT = re.compile(r"\s*\\(?:text|textrm|mbox|mathrm|rm)\s*\{([^{}\d%]*)\}(?:\^\{?\d\}?)?\s*$")
_DEGREES = re.compile(r"\s*(?:\^\s*\{?\s*\\circ\s*\}?|°)\s*$")
_WORDS = re.compile(r"(?<=[\d}])\s+([A-Za-z]{2,}(?:[ /.-]+[A-Za-z]+)*)\s*$")
_PERCENT = re.compile(r"\s*(?:\\?%|\\?\s*(?:\\text\s*\{\s*)?(?:percent|percentage|pct)(?:\s*\})?)\s*$", re.IGNORECASE)
_NO_UNIT = re.compile(
    r"\b(?:and|or|to|by|of|out|plus|minus|times|over|mod|half|third|quarter|squared|cubed|factorial|percent|percentage|pct"
    r"|e|i|pi|sqrt|sin|cos|tan|cot|sec|csc|log|ln|exp)\b",
    re.IGNORECASE,
)
_SCALES = {"dozen": 12, "hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}

_PLAIN = r"(?:\d{1,3}(?:(?:,|\{,\})\d{3})+|\d+)(?:\.\d*)?|\.\d+"
_NUMBER = re.compile(_PLAIN)
_RATIO = re.compile(rf"(?P<top>{_PLAIN})\s*/\s*(?P<bottom>{_PLAIN})")
_LATEX = re.compile(r"(?P<whole>\d+)?\s*\\[dtc]?frac\s*(?:\{\s*(?P<a>-?\d+)\s*\}|(?P<b>\d))\s*(?:\{\s*(?P<c>\d+)\s*\}|(?P<d>\d))")
_SCIENTIFIC = re.compile(
    rf"(?P<factor>{_PLAIN})\s*(?:\\times|\\cdot|×|\*)\s*10\s*\^\s*(?:\{{\s*(?P<a>-?\d{{1,3}})\s*\}}|(?P<b>-?\d{{1,3}}))"
)
_MIXED = re.compile(r"(?P<whole>\d+)\s+(?P<a>\d+)\s*/\s*(?P<c>\d+)")


def normal(text: str) -> str:
    """The text with full-width characters (`５`, `：`, `％`) and the typographic minus as their ASCII counterparts."""
    return text.translate(_FULL_WIDTH)


def exact(text: str) -> Fraction | None:
    r"""The number that the text is, exactly; None when it is not one plain number.

    `7,425,000`, `0.5`, `3/4`, `\frac34`, `1\frac{3}{4}`, `28\%`, `28 percent`, `\$18`, `10\text{ inches}`, `18 dollars` and `90^\circ` are
    numbers; so is `1.2 \times 10^5`. A unit is dropped, a percentage is the hundredth part (`28\%` is 7/25), and `5 million` is 5,000,000.
    """
    if len(text) > LONGEST_NUMBER:
        return None
    text = _SPACING.sub("", normal(text).replace("\\ ", " ").replace("~", " ")).replace("\\$", "").replace("$", "").strip()
    text = _DEGREES.sub("", text)
    if percent := _PERCENT.search(text):
        text, factor = text[: percent.start()], Fraction(1, 100)
    else:
        text, factor = _without_unit(text)
    value = _unsigned(text[1:].strip() if text[:1] in ("-", "+") else text)
    return None if value is None else (-1 if text.startswith("-") else 1) * factor * value


def _without_unit(text: str) -> tuple[str, Fraction]:
    """The text before its unit, and what the unit multiplies: a million for `5 million dollars`, else 1."""
    unit = _UNIT.search(text) or _WORDS.search(text)
    if unit is None or _NO_UNIT.search(unit[1]):
        return text, Fraction(1)
    return text[: unit.start()], Fraction(math.prod(_SCALES.get(word, 1) for word in unit[1].lower().split()))


def _unsigned(text: str) -> Fraction | None:
    try:
        if _NUMBER.fullmatch(text):
            return _plain(text)
        if ratio := _RATIO.fullmatch(text):
            return _plain(ratio["top"]) / _plain(ratio["bottom"])
        if latex := _LATEX.fullmatch(text):
            return int(latex["whole"] or 0) + Fraction(int(latex["a"] or latex["b"]), int(latex["c"] or latex["d"]))
        if scientific := _SCIENTIFIC.fullmatch(text):
            return _plain(scientific["factor"]) * Fraction(10) ** int(scientific["a"] or scientific["b"])
        if mixed := _MIXED.fullmatch(text):
            return int(mixed["whole"]) + Fraction(int(mixed["a"]), int(mixed["c"]))
    except (ValueError, ZeroDivisionError):  # a number of more digits than Python converts, or a division by zero
        return None
    return None


def _plain(text: str) -> Fraction:
    return Fraction(text.replace("{,}", "").replace(",", "").removesuffix("."))
