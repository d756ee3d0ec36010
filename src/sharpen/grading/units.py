r"""Units of measure: what `cm^2`, `kilometers per hour`, `美元` or `平方米` measure, and by what factor two of them differ.

A unit that is not known here (`apples`) says nothing: it is dropped; `may_be_unit` tells which words may be one. Two known ones are the
same when they measure the same kind of thing; then values are converted (2 m is 200 cm), and otherwise they are different answers
(10 inches is not 10 feet; nor is it $10).
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from fractions import Fraction

from sharpen.grading.numerals import number_in_words

_F = Fraction


@dataclass(frozen=True, slots=True)
class Unit:
    """A known unit.

    Attributes:
        dimensions: what it measures, with exponents: `(("length", 1), ("time", -1))` for a speed. Empty for a pure number.
        factor: how many base units it is: metres, kilograms, seconds, radians apart (`degree`), or one of a currency.
    """

    dimensions: tuple[tuple[str, int], ...]
    factor: Fraction

    def times(self, other: Unit, exponent: int = 1) -> Unit:
        """The product with a power of another unit."""
        sums = dict(self.dimensions)
        for name, power in other.dimensions:
            sums[name] = sums.get(name, 0) + power * exponent
        return Unit(tuple(sorted((name, power) for name, power in sums.items() if power)), self.factor * other.factor**exponent)


NUMBER = Unit((), _F(1))
DEGREE = Unit((("angle", 1),), _F(1))

_BASE: dict[str, tuple[str, dict[str, Fraction]]] = {
    "length": (
        "length",
        {
            "m meter metre 米": _F(1),
            "km kilometer kilometre 千米 公里": _F(1000),
            "cm centimeter centimetre 厘米": _F(1, 100),
            "dm decimeter decimetre 分米": _F(1, 10),
            "mm millimeter millimetre 毫米": _F(1, 1000),
            "in inch inches 英寸": _F(254, 10000),
            "ft foot feet 英尺": _F(3048, 10000),
            "yd yard 码": _F(9144, 10000),
            "mi mile 英里": _F(1609344, 1000),
        },
    ),
    "mass": (
        "mass",
        {
            "kg kilogram 千克 公斤": _F(1),
            "g gram 克": _F(1, 1000),
            "mg milligram 毫克": _F(1, 10**6),
            "ton tonne t 吨": _F(1000),
            "斤": _F(1, 2),
            "lb lbs pound 磅": _F(45359237, 10**8),
            "oz ounce 盎司": _F(45359237, 16 * 10**8),
        },
    ),
    "time": (
        "time",
        {
            "s sec second 秒 秒钟": _F(1),
            "min minute 分钟": _F(60),
            "h hr hour 小时 时": _F(3600),
            "day 天 日": _F(86400),
            "week 周 星期": _F(7 * 86400),
            "month 个月 月": _F(1),
            "year yr 年": _F(12),
        },
    ),
    "dollar": ("dollar", {"$ dollar usd 美元 美金": _F(1), "cent ¢ 美分": _F(1, 100)}),
    "euro": ("euro", {"€ euro eur 欧元": _F(1)}),
    "sterling": ("sterling", {"£ gbp 英镑": _F(1)}),
    "yuan": ("yuan", {"¥ yuan rmb cny 元 块 块钱": _F(1), "角": _F(1, 10), "分": _F(1, 100)}),
    "rupee": ("rupee", {"₹ rupee": _F(1)}),
    "angle": ("angle", {"degree deg 度": _F(1)}),
    "celsius": ("celsius", {"celsius 摄氏度": _F(1)}),
    "fahrenheit": ("fahrenheit", {"fahrenheit": _F(1)}),
}


def _table() -> dict[str, Unit]:
    out: dict[str, Unit] = {}
    for dimension, entries in _BASE.values():
        for names, factor in entries.items():
            for name in names.split():
                # A month has no fixed number of days, so months and years measure a time of their own.
                calendar = name in ("month", "year", "yr", "个月", "月", "年")
                out[name] = Unit((("calendar" if calendar else dimension, 1),), factor)
    litre = Unit((("length", 3),), _F(1, 1000))
    for names, factor in (("l liter litre 升", _F(1)), ("ml milliliter millilitre 毫升", _F(1, 1000))):
        out |= {name: Unit(litre.dimensions, litre.factor * factor) for name in names.split()}
    out["mph"] = out["mile"].times(out["hour"], -1)
    out["kph"] = out["kmh"] = out["km"].times(out["hour"], -1)
    for prefix, power in (("平方", 2), ("立方", 3)):
        out |= {prefix + name: NUMBER.times(out[name], power) for name in ("米", "千米", "厘米", "分米", "毫米", "公里")}
    return out


TABLE = _table()
CURRENCY_SIGNS = {
    "$": TABLE["$"],
    "€": TABLE["€"],
    "£": TABLE["£"],
    "¥": TABLE["¥"],
    "₹": TABLE["₹"],
    "usd": TABLE["usd"],
    "eur": TABLE["eur"],
}
_ATOM = re.compile(r"([A-Za-z$€£¥₹¢]+|[\u4e00-\u9fff]+)\.?(?:\^\{?(-?\d)\}?|(\d))?")
_POWERS = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
_AFTER = {"squared": 2, "cubed": 3}
_DRESS = re.compile(r"\\text\s*\{([^{}]*)\}")
_FRACTION = re.compile(r"\\frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}")
_SYMBOLS_OF_OTHERS = "N J W V A K F Hz kHz MHz GHz Pa kPa eV keV MeV kW MW kWh Wh mV kV mA mol sr lm lx Bq dB KB MB GB TB"
_SYMBOLS = frozenset(_SYMBOLS_OF_OTHERS.split())
_PLAIN_WORD = re.compile(r"[A-Za-z][A-Za-z'’]*[.,]?|[$€£¥₹¢]|[\u4e00-\u9fff]+")
_BETWEEN = re.compile(r"[\s/·*.^{}()\d-]+|\\cdot")
_OPERATIONS = (
    "plus minus times over mod modulo add adds added subtract subtracted divide divided multiply multiplied multiplies sum squared "
    "cubed doubled tripled quadrupled halved double triple half third quarter root roots square cube power factorial choose "
    "negative positive e i pi sqrt cbrt sin cos tan cot sec csc sinh cosh tanh arcsin arccos arctan log ln lg exp cis abs floor "
    "ceil max min gcd lcm infinity inf alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron rho sigma "
    "tau upsilon phi chi psi omega percent percentage percents percentages pct permille mille "
)
_JOINTS = (
    "and or but nor if then than so because to by of out from with without except at least most about below above under between "
    "beyond not no never none neither cannot is isn isn't are aren't was wasn't were be been being can can't could may might must "
    "should would will won't do does doesn't don't did didn't has have had equals equal exceeds maybe perhaps probably possibly "
    "likely unlikely unsure actually rather instead wait it this that "
)
_JUDGEMENTS = "wrong false incorrect untrue invalid impossible mistaken mistake error rejected excluded ruled denied refuted"
_NOT_NOUNS = frozenset(f"{_OPERATIONS} {_JOINTS} {_JUDGEMENTS}".split())
_AFTER_NOUN = frozenset({"of", "from", "with", "at", *_POWERS})
_TWO_LETTERS = frozenset({"an", "us", "pm", "am", "tv", "pc", "ph", "hp"})


def may_be_unit(text: str) -> bool:
    """Whether the words after a number may be its unit: a known one, or plain nouns.

    No unit are operations, functions and letters of mathematics (`2 pi`, `2 xy`, `2 doubled`), and the words of a sentence or a judgement
    (`5 is wrong`, `5 at least`).
    """
    if not text.strip() or read_unit(text) is not None:
        return True
    words = [word for word in _BETWEEN.split(text) if word]
    if len(words) > 1:  # square inches, cups of flour
        words = [word for word in words[:1] if word.lower() not in _POWERS] + [
            word for word in words[1:] if word.lower() not in _AFTER_NOUN
        ]
    return bool(words) and all(_may_be_unit(word.rstrip(".,")) for word in words)


def _may_be_unit(word: str) -> bool:
    lower = word.lower().replace("’", "'")
    if word in _SYMBOLS or _lookup(word) is not None or not word.isascii():
        return True
    if lower in _NOT_NOUNS or _PLAIN_WORD.fullmatch(word) is None or number_in_words(lower) is not None:
        return False
    if len(word) < 3:
        return lower in _TWO_LETTERS or lower in ("a", "u")
    return len(word) > 3 or (re.search("[aeiou]", lower) is not None and not set(lower) <= set("abcxyz"))


@functools.lru_cache(maxsize=4096)
def read_unit(text: str) -> Unit | None:
    r"""The unit that a text names, `cm^2`, `square centimeters`, `km/h`; None when it names none that is known."""
    if not text or len(text) > 60:
        return None
    text = _FRACTION.sub(r"\1/\2", _DRESS.sub(r"\1", text)).replace(r"\cdot", " ").replace("每", "/")
    top, *bottoms = re.sub(r"\bper\b", "/", text).split("/")
    unit = _product(top)
    for bottom in bottoms:
        below = _product(bottom)
        unit = unit.times(below, -1) if unit and below else None
    return unit


def _product(text: str) -> Unit | None:
    """A product of units such as `square cm` or `kg m^2`; None when a word of it is not known."""
    unit, power = NUMBER, 1
    words = text.replace("^ ", "^").replace(" ^", "^").split()
    if not words:
        return None
    for word in words:
        if word.lower() in _POWERS:
            power = _POWERS[word.lower()]
            continue
        if word.lower() in _AFTER and unit.dimensions:
            unit = unit.times(unit, _AFTER[word.lower()] - 1)
            continue
        atom = _ATOM.fullmatch(word)
        found = _lookup(atom[1]) if atom else None
        if atom is None or found is None:
            return None
        unit, power = unit.times(found, power * int(atom[2] or atom[3] or 1)), 1
    return unit if power == 1 else None


def _lookup(name: str) -> Unit | None:
    if (unit := TABLE.get(name)) is not None:
        return unit
    lower = name.lower()
    if len(lower) == 1:  # M and G are no metres and grams; L is a litre
        return TABLE["l"] if name == "L" else None
    singular = lower.removesuffix("s")
    return TABLE.get(lower) or (TABLE.get(singular) if len(singular) > 1 else None)
