"""Numbers in words: `twenty-one`, `two hundred and five`, `十二`, `百分之二十五`, `四分之三`."""

from __future__ import annotations

import re
from fractions import Fraction

_SMALL = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
_UNITS = _SMALL.split()
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_VALUES = {word: number for number, word in enumerate(_UNITS)} | {word: 20 + 10 * number for number, word in enumerate(_TENS)}
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9}
_WORDS = re.compile(r"[a-z]+(?:[ -]+[a-z]+)*")
LONGEST = 60
"""Characters. Longer texts are not read."""

_DIGITS = {"零": 0, "〇": 0, "一": 1, "二": 2, "两": 2, "三": 3, "四": 4, "五": 5, "六": 6, "七": 7, "八": 8, "九": 9}
_STEPS = {"十": 10, "百": 100, "千": 1000}
_MYRIADS = {"万": 10**4, "亿": 10**8}
_CHINESE = re.compile("[零〇一二两三四五六七八九十百千万亿]+")


def number_in_words(text: str) -> Fraction | None:
    """The number that English or Chinese words name; None when they name none."""
    if not text or len(text) > LONGEST:
        return None
    return _english(text.lower()) if text.isascii() else _chinese(text)


def _english(text: str) -> Fraction | None:
    """A number below 10^12 in English words."""
    negative, text = text.startswith(("minus ", "negative ")), re.sub(r"^(?:minus|negative) ", "", text)
    if not _WORDS.fullmatch(text):
        return None
    total = group = 0
    before = "nothing"
    for word in re.split("[ -]+", text):
        if word in _VALUES:
            small = _VALUES[word] < 10
            if before == "unit" or (before == "ten" and (not small or _VALUES[word] == 0)):
                return None
            group += _VALUES[word]
            before = "ten" if word in _TENS else "unit"
        elif word == "hundred" and before == "unit" and 0 < group < 10:
            group, before = group * 100, "scale"
        elif word in _SCALES and group:
            total, group, before = total + group * _SCALES[word], 0, "scale"
        elif word == "and" and before == "scale":
            before = "and"
        else:
            return None
    if before in ("and", "nothing"):
        return None
    return Fraction(-(total + group) if negative else total + group)


def _chinese(text: str) -> Fraction | None:
    """A number, `百分之…` or `…分之…` in Chinese numerals or digits."""
    bottom, parted, top = text.partition("分之")
    if not parted:
        negative = text.startswith("负")
        value = _chinese_integer(text.removeprefix("负"))
        return None if value is None else -value if negative else value
    numbers = Fraction(100) if bottom == "百" else _chinese_integer(bottom), _chinese_integer(top)
    if numbers[0] is None or numbers[1] is None or numbers[0] == 0:
        return None
    return numbers[1] / numbers[0]


def _chinese_integer(text: str) -> Fraction | None:
    if re.fullmatch(r"[0-9]{1,30}(?:\.[0-9]{1,30})?", text):
        return Fraction(text)
    whole, point, decimals = text.partition("点")
    if point:
        value = _chinese_integer(whole)
        if value is None or not decimals or any(digit not in _DIGITS for digit in decimals):
            return None
        return value + Fraction(int("".join(str(_DIGITS[digit]) for digit in decimals)), 10 ** len(decimals))
    if not _CHINESE.fullmatch(text):
        return None
    if all(character in _DIGITS for character in text):
        return Fraction(int("".join(str(_DIGITS[character]) for character in text)))
    total = group = digit = 0
    for character in text:
        if character in _DIGITS:
            digit = _DIGITS[character]
        elif character in _STEPS:
            group, digit = group + (digit or 1) * _STEPS[character], 0
        else:
            total, group, digit = (total + group + digit) * _MYRIADS[character], 0, 0
    return Fraction(total + group + digit)
