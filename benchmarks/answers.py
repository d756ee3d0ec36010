"""Answers whose verdict is known without a grader: ground truths, pairs of them that differ, near misses, and cases of our own.

That two answers differ is told here in a way of its own, which shares nothing with the graders: plain numbers as fractions, formulas by
evaluation to 30 digits, texts by their letters. What it cannot tell is left out and never counted.
"""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import mpmath

CASES = Path(__file__).parents[1] / "tests" / "grading" / "cases"
SETS = {
    "MATH-500": "math500.jsonl",
    "GSM8K": "gsm8k/test.jsonl",
    "AIME 2024": "aime24.jsonl",
    "MGSM-zh": "mgsm_zh.jsonl",
    "CMATH": "cmath.jsonl",
}
PAIRS = 5000
NEAR_MISSES = 500
DIGITS = 30
AGREEING = 25


class Case(NamedTuple):
    """A completion and whether it should be accepted: `kind` says what is tried, `why` the reason."""

    kind: str
    gold: str
    text: str
    right: bool
    why: str


@dataclass(frozen=True)
class Reading:
    """What an answer says: the brackets around its values, and the values, or else its letters."""

    brackets: str = ""
    values: tuple[Any, ...] = ()
    letters: str = ""


def golds(folder: Path, name: str) -> list[str]:
    """The ground truths of a data set, as its file has them; of GSM8K, what follows the last ####."""
    lines = (folder / SETS[name]).read_text(encoding="utf-8").splitlines()
    return [str(json.loads(line)["answer"]).rpartition("####")[2].strip() for line in lines]


def cases(name: str) -> list[Case]:
    """Cases of our own, written before any grader had judged them: `development` or `held_out`."""
    return [Case(**json.loads(line)) for line in (CASES / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def formulas(text: str) -> list[str]:
    """What stands in a question as mathematics, and the right sides of its equations."""
    found = [part for groups in re.findall(r"\$\$(.+?)\$\$|\$([^$]+)\$|\\\[(.+?)\\\]", text, re.DOTALL) for part in groups if part]
    sides = [formula.rpartition("=")[2] for formula in found]
    return [formula for formula in dict.fromkeys((*found, *sides)) if formula.strip()]


def pairs(folder: Path, *, count: int = PAIRS, seed: int = 0) -> list[Case]:
    """Pairs of ground truths that differ, half of them both from MATH-500, the other half from all sets together."""
    draw = random.Random(seed)
    known = {name: golds(folder, name) for name in SETS}
    everything = [gold for some in known.values() for gold in some]
    found: list[Case] = []
    while len(found) < count:
        among = known["MATH-500"] if len(found) % 2 else everything
        gold, other = draw.choice(among), draw.choice(among)
        if differ(gold, other):
            found.append(Case("another ground truth", gold, rf"\boxed{{{other}}}", False, "judged unequal without a grader"))
    return found


def near_misses(folder: Path, *, count: int = NEAR_MISSES, seed: int = 0) -> list[Case]:
    """Ground truths of MATH-500 and AIME with one thing changed: a sign, a digit, a factor, an exponent or an endpoint.

    Of each kind as many as of any other, where the ground truths have so many; three in four are of formulas.
    """
    draw = random.Random(seed)
    known = [gold for name in ("MATH-500", "AIME 2024") for gold in golds(folder, name)]
    formulas = [gold for gold in known if not re.fullmatch(r"-?[\d,.]+", gold)]
    found: dict[str, dict[tuple[str, str], Case]] = {way: {} for way in _WAYS}
    for way, change in _WAYS.items():
        for turn in range(4 * count):
            gold = draw.choice(known if turn % 4 == 0 else formulas)
            changed = change(gold, draw)
            if changed is not None and changed != gold and (way == "an endpoint" or differ(gold, changed)):
                case = Case(f"a near miss: {way}", gold, rf"\boxed{{{changed}}}", False, f"{way} is changed")
                found[way].setdefault((gold, changed), case)
    in_turns = [case for some in itertools.zip_longest(*(found[way].values() for way in _WAYS)) for case in some if case is not None]
    return in_turns[:count]


# --- changing one thing ----------------------------------------------------------------------------------------------------------------


def _place(pattern: str, text: str, draw: random.Random) -> re.Match[str] | None:
    found = list(re.finditer(pattern, text))
    return draw.choice(found) if found else None


def _sign(gold: str, draw: random.Random) -> str | None:
    place = _place(r"[-+]", gold, draw)
    if place:
        return gold[: place.start()] + ("-" if place[0] == "+" else "+") + gold[place.end() :]
    said = read(gold)
    return f"-{gold}" if said is not None and len(said.values) == 1 else None


def _digit(gold: str, draw: random.Random) -> str | None:
    place = _place(r"\d", gold, draw)
    return gold[: place.start()] + str((int(place[0]) + draw.randrange(1, 9)) % 10) + gold[place.end() :] if place else None


def _factor(gold: str, draw: random.Random) -> str | None:
    place = _place(r"\\pi(?![a-z])|\\sqrt(?!\[)|(?<![A-Za-z\\{^_])[a-z](?![A-Za-z])", gold, draw)
    if place:
        return f"{gold[: place.start()]} 7 {gold[place.start() :]}" if not re.search(r"\d\s*$", gold[: place.start()]) else None
    return str(int(gold) * draw.choice((2, 3, 10))) if re.fullmatch(r"\d+", gold) else None


def _exponent(gold: str, draw: random.Random) -> str | None:
    place = _place(r"\^\{?(\d)\}?|\\sqrt(?=\{|\d)", gold, draw)
    if place is None:
        return None
    return gold[: place.start()] + (rf"^{{{int(place[1]) + draw.choice((1, 2))}}}" if place[1] else r"\sqrt[3]") + gold[place.end() :]


def _endpoint(gold: str, draw: random.Random) -> str | None:
    """An end of an interval that is closed in place of open, or the other way round."""
    if not re.search(r"\\infty|\\cup|[\[(][^()\[\]]*,[^()\[\]]*[\])]", gold) or (
        gold.count("(") == gold.count(")") and "[" not in gold and "infty" not in gold
    ):
        return None
    turned = {"(": "[", "[": "(", ")": "]", "]": ")"}
    found = [
        place
        for place in re.finditer(r"[\[\]()]", gold)
        if "infty" not in (gold[place.end() : place.end() + 12] if place[0] in "[(" else gold[max(0, place.start() - 9) : place.start()])
    ]
    if not found:
        return None
    place = draw.choice(found)
    return gold[: place.start()] + turned[place[0]] + gold[place.end() :]


_WAYS = {"a sign": _sign, "a digit": _digit, "a factor": _factor, "an exponent": _exponent, "an endpoint": _endpoint}


# --- telling that two answers differ -------------------------------------------------------------------------------------------------


def differ(first: str, second: str) -> bool:
    """Whether two answers surely differ; False also where that cannot be told."""
    ours, theirs = read(first), read(second)
    if ours is None or theirs is None:
        return False
    if ours.letters or theirs.letters:
        return ours.letters != theirs.letters
    if len(ours.values) != len(theirs.values):
        return True
    if ours.brackets[:1] == theirs.brackets[:1] == "(":
        return not all(_same(a, b) for a, b in zip(ours.values, theirs.values, strict=True))
    left = list(theirs.values)
    for value in ours.values:
        place = next((place for place, other in enumerate(left) if _same(value, other)), None)
        if place is None:
            return True
        del left[place]
    return False


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Fraction) and isinstance(other, Fraction):
        return one == other
    values = [_number(value) for value in (one, other)]
    with mpmath.workdps(DIGITS):
        return bool(abs(values[0] - values[1]) <= mpmath.mpf(10) ** -AGREEING * max(1, abs(values[0]), abs(values[1])))


def _number(value: Any) -> Any:
    with mpmath.workdps(DIGITS):
        return mpmath.mpf(value.numerator) / value.denominator if isinstance(value, Fraction) else value


def read(text: str) -> Reading | None:
    """What an answer says; None where this simple reader cannot tell."""
    text = re.sub(r"\\\\|&", ",", text.replace("\\$", "").replace("$", "").replace("\\!", "").replace("{,}", ""))
    text = re.sub(r"\\left|\\right|\\displaystyle|\\ |\\;|\\,|\\quad|~", " ", text)
    text = re.sub(r"\\[dt]frac", r"\\frac", text)
    text = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text) if re.fullmatch(r"-?\d{1,3}(,\d{3})+(\.\d+)?", text.strip()) else text
    words = re.sub(r"\\(?:text|textbf|mbox|mathrm)\s*\{([^{}]*)\}", r"\1", text)
    named = words != text or re.search("[A-Za-z]{4}", words)
    if (named and re.fullmatch(r"[()\sA-Za-z'-]+", words.strip())) or re.fullmatch(r"\(?[A-Z]\)?", words.strip()):
        return Reading(letters="".join(words.split()).strip("()").lower())
    text = re.sub(r"\\(?:text|mbox|mathrm|textbf)\s*\{[^{}]*\}(?:\^\{?\d\}?)?", "", text)
    text = re.sub(r"\^\s*\{?\s*\\circ\s*\}?|\\begin\{[pb]matrix\}|\\end\{[pb]matrix\}", "", text)
    text = text.replace("\\in", "=").replace("=fty", "\\infty").strip()
    if re.search(r"\\pm|_|:|\\[lg]eq?|[<>]|\\overline|\\dots|\\ldots|\\binom|!", text):
        return None
    text = re.sub(r"\\cup", ",", text)
    if text.count("=") == 1:
        text = text.partition("=")[2]
    if "=" in text:
        return None
    brackets, inside = "", text.replace("\\{", "").replace("\\}", "")
    if "," in text:
        brackets = "".join(re.findall(r"[\[\]()]|\\[{}]", text)) if text[0] in "([" else "{"
        inside = re.sub(r"^[\[(]|[\])]$", "", text.replace("\\{", "").replace("\\}", "").strip())
        inside = re.sub(r"[\])]\s*,\s*[\[(]", ",", inside)
    values = [_value(part) for part in inside.split(",")]
    return None if any(value is None for value in values) else Reading(brackets, tuple(values))


_FUNCTIONS = ("sin", "cos", "tan", "cot", "sec", "csc", "ln", "log", "root", "sqrt")
_TOKEN = re.compile(r"\d+(?:\.\d+)?|\.\d+|[a-z]{2,}|[A-Za-z]|\*\*|[-+*/(),]")


def _value(text: str) -> Any:
    """The value of one formula: a fraction where it is a plain number, else a number of 30 digits; None where it has none."""
    text = text.strip()
    percent = text.endswith("\\%")
    text = text.removesuffix("\\%").strip()
    if re.fullmatch(r"-?(?:\d+(?:\.\d*)?|\.\d+)(?:/\d+)?", text):
        top, _, bottom = text.partition("/")
        return None if bottom and int(bottom) == 0 else Fraction(top.removesuffix(".")) / int(bottom or 1) / (100 if percent else 1)
    code = _code(text)
    if code is None:
        return None
    with mpmath.workdps(DIGITS):
        names = {
            letter: mpmath.mpf(place * place + 3 * place + 7) / 13
            for place, letter in enumerate("abcdfghjklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
        }
        names |= {name: getattr(mpmath, name) for name in ("sin", "cos", "tan", "cot", "sec", "csc", "ln", "log", "root", "sqrt")}
        names |= {"pi": +mpmath.pi, "e": +mpmath.e, "i": mpmath.mpc(0, 1), "infty": mpmath.mpf(10) ** 60, "mpf": mpmath.mpf}
        try:
            value = eval(code, {"__builtins__": {}}, names)
        except (SyntaxError, TypeError, NameError, ZeroDivisionError, ValueError, OverflowError):
            return None
        return value / (100 if percent else 1) if isinstance(value, mpmath.mpf | mpmath.mpc) else None


def _code(text: str) -> str | None:
    """The formula as Python, with every product written out."""
    text = re.sub(r"\\cdot|\\times", "*", text).replace("\\pi", " pi ").replace("\\infty", " infty ")
    text = re.sub(r"\\frac\s*(\d)\s*(\d)", r"\\frac{\1}{\2}", text)
    text = re.sub(r"\\frac\s*(\d)\s*\{", r"\\frac{\1}{", text)
    text = re.sub(r"(\\frac\s*\{[^{}]*\})\s*(\d)", r"\1{\2}", text)
    text = re.sub(r"\\sqrt\s*(\d)", r"\\sqrt{\1}", text)
    text = re.sub(r"\\(sin|cos|tan|cot|sec|csc|ln|log)\s*(?=[a-z\d])([a-z]|\d+)", r"\\\1(\2)", text)
    for _ in range(20):
        before = text
        text = re.sub(r"\\sqrt\s*\[(\d+)\]\s*\{([^{}]*)\}", r" root((\2),(\1))", text)
        text = re.sub(r"\\sqrt\s*\{([^{}]*)\}", r" sqrt(\1)", text)
        text = re.sub(r"\\frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}", r" ((\1)/(\2))", text)
        text = re.sub(r"\^\s*\{([^{}]*)\}", r"**(\1)", text)
        if text == before:
            break
    text = re.sub(r"\^\s*(\w)", r"**(\1)", text)
    text = re.sub(r"\\(sin|cos|tan|cot|sec|csc|ln|log)", r" \1", text)
    if re.search(r"[\\{}^|]", text):
        return None
    return "".join(_written_out(_TOKEN.findall(text))) if "".join(_TOKEN.findall(text)) == "".join(text.split()) else None


def _written_out(tokens: Sequence[str]) -> Iterator[str]:
    for place, token in enumerate(tokens):
        before = tokens[place - 1] if place else ""
        if before and (before[-1].isalnum() or before == ")") and before not in _FUNCTIONS and (token[0].isalnum() or token in "(."):
            yield "*"
        yield f"mpf('{token}')" if token[0].isdigit() or token[0] == "." else token
