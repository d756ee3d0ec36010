r"""Finding the final answer in a completion.

What a completion thinks between `<think>` and `</think>` is no answer, and an unfinished thought means that there is none. In the rest, or
in the last `<answer>…</answer>` where there is one, the answer is, in this order:

1. the last `\boxed{…}`. Boxes in a row, `\boxed{3}, \boxed{5}` or `\boxed{3} and \boxed{5}`, are one answer of several parts. Different
   boxes as alternatives, `\boxed{41} or \boxed{42}`, are no answer; `I first thought \boxed{41} but \boxed{42}` is 42;
2. what follows the last `####`;
3. what follows the last `answer is`, `Answer:`, `答案是` or `答案：`, to the end of its sentence;
4. all between the answer tags;
5. the last number, or the formula in dollar signs that it stands in.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from sharpen.grading.numbers import exact
from sharpen.grading.spelling import normal
from sharpen.grading.units import read_unit

_TAGGED = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>", re.DOTALL)
_BRACE = re.compile(r"\\(?:boxed|fbox)\s*\{|\\.|[{}]", re.DOTALL)
_IN_A_ROW = re.compile(r"(?:[\s$,;&、.]|\\[()\[\]]|\\q?quad|\\text\s*\{|\}|\band\b|和|与|及|\b[A-Za-z]\s*=)*")
_ALTERNATIVE = re.compile(r"\bor\b|\beither\b|或", re.IGNORECASE)
_HASHES = re.compile(r"####\s*(?=[-+$\\(.\d])([^\n]+)")
_PHRASE = re.compile(
    r"(?:\banswer\**\s*(?:is|would be|must be|:|=)|答案\**\s*(?:应该|应)?(?:是|为|等于|:))[^\S\n]*\n?(?:[^\S\n]|[*:])*",
    re.IGNORECASE,
)
_CLAUSE_END = re.compile(r"[.!?;](?:\s|$)|。|；|(?:,\s*)?\b(?:because|since|so|which|where)\b|因为|所以", re.IGNORECASE)
_FORMULA = re.compile(r"\$\$(.+?)\$\$|\$([^$\n]+)\$|\\\(((?:(?!\\\().)+?)\\\)|\\\[((?:(?!\\\[).)+?)\\\]", re.DOTALL)
_NUMBER = re.compile(
    r"(?<![A-Za-z0-9.^_{\\])(?>(?:(?<![)\]}])-(?:\\?\$)?|\\?\$-?)?"
    r"(?:\\[dt]?frac\s*(?:\{\s*-?\d+\s*\}|\d)\s*(?:\{\s*\d+\s*\}|\d)|\d+[ ]\d+/\d+"
    r"|(?:\d{1,3}(?:(?:,|\{,\})\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+)"
    r"(?:\s*/\s*\d+)?(?:\s*(?:\\?%|(?:percent|percentage|pct)\b))?)(?!\})",
    re.IGNORECASE,
)
_UNIT = re.compile(r"\s{0,3}((?:(?:per|square|cubic) |/)?[A-Za-z]{1,12}(?:\^\{?[23]\}?)?(?:(?: per |/| )[A-Za-z]{1,12}(?:\^\{?[23]\}?)?){0,2})")
_CHINESE_UNIT = re.compile(r"\s{0,3}([\u4e00-\u9fff]{1,4})")
_OR_BEFORE = re.compile(r"\d[^.!?\n]{0,25}(?:\bor\b|或)\s*$", re.IGNORECASE)
_NOT_WORDS = re.compile(
    r"\\text\s*\{[^{}]*\}|\\[A-Za-z]+|\b(?:and|or|pi|sqrt|sin|cos|tan|log|ln|exp|mod|percent|percentage|pct)\b", re.IGNORECASE
)
_WORD = re.compile(r"[A-Za-z]{2,}|[\u4e00-\u9fff]")
_LATEX_SPACE = re.compile(r"^(?:\\[,;:! ]\s*)+|(?<!\\)(?:\\[,;:!])+$")
DEEPEST_DRESS = 20
_WRAPPERS = (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"))


class Extraction(NamedTuple):
    """The answer, None when there is none, and how it was found or why not."""

    answer: str | None
    how: str


def extract_answer(text: str) -> str | None:
    """The final answer of a completion, None when it gives none; the module's docstring says where it is looked for."""
    return extract(text).answer


def extract(text: str) -> Extraction:
    """The final answer of a completion, and how it was found or why there is none."""
    said = after_thinking(normal(text))
    if said is None:
        return Extraction(None, "no answer: the thinking is not finished")
    tagged = _TAGGED.findall(said)
    scope = tagged[-1] if tagged else said
    found = _boxed(scope) or _marked(scope)
    if found is None and tagged and (whole := clean(scope)) and not _is_prose(whole):
        found = Extraction(whole, "the answer tags")
    return found or _last_value(scope)


def declared(text: str) -> str:
    r"""What a completion declares as its answer, word for word, for graders of any kind of text.

    That is the content of the last `<answer>…</answer>`, of the last `\boxed{…}`, what follows the last "answer is" on its line, or else
    all that is said after thinking; empty when the thinking is not finished.
    """
    said = after_thinking(text)
    if said is None:
        return ""
    tagged = _TAGGED.findall(said)
    scope = tagged[-1] if tagged else said
    if spans := boxes(scope):
        return spans[-1].content.strip()
    if not tagged and (rest := _after_phrase(normal(scope))) is not None:
        return clean(rest)
    return scope.strip()


def after_thinking(text: str) -> str | None:
    """What a completion says outside its thinking; None when a thought is not finished."""
    said = text.rpartition("</think>")[2]
    return None if "<think>" in said else said


class Box(NamedTuple):
    r"""A `\boxed{…}`: where it starts and ends, and what is in it."""

    start: int
    end: int
    content: str


def boxes(text: str) -> list[Box]:
    r"""Every `\boxed{…}` (or `\fbox{…}`) whose braces are closed and that holds no other box, in order."""
    open_braces: list[re.Match[str]] = []
    found: list[Box] = []
    for brace in _BRACE.finditer(text):
        if brace[0] == "}":
            opening = open_braces.pop() if open_braces else None
            if opening and opening[0] != "{" and not (found and found[-1].start > opening.start()):
                found.append(Box(opening.start(), brace.end(), text[opening.end() : brace.start()]))
        elif brace[0].endswith("{") and brace[0] != r"\{":
            open_braces.append(brace)
    return found


def clean(text: str) -> str:
    """The text without the spaces, dollar signs, emphasis and full stops around it."""
    for _ in range(DEEPEST_DRESS):
        before, text = text, _LATEX_SPACE.sub("", text.strip(" \t\n\r*`")).rstrip(".,;:。 ")
        for left, right in _WRAPPERS:
            if len(text) >= len(left + right) and text.startswith(left) and text.endswith(right):
                text = text[len(left) : len(text) - len(right)]
        if text == before:
            break
    return text


def _boxed(text: str) -> Extraction | None:
    """The last box, with those that stand in a row with it."""
    found = boxes(text)
    if not found:
        return None
    row = [found[-1]]
    alternatives = False
    for box in reversed(found[:-1]):
        between = text[box.end : row[-1].start]
        alternative = len(between) < 60 and not re.search(r"[.!?]\s|\n", between) and _ALTERNATIVE.search(between) is not None
        if not alternative and not (len(between) < 60 and _IN_A_ROW.fullmatch(between)):
            break
        alternatives |= alternative
        row.append(box)
    answers = list(dict.fromkeys(clean(box.content) for box in reversed(row)))
    if len({exact(answer) or answer for answer in answers}) == 1:
        answers = answers[-1:]
    elif alternatives:
        return Extraction(None, f"no answer: several different ones, {' or '.join(answers)}")
    answer = ", ".join(answers)
    return Extraction(answer, "the last box") if answer else Extraction(None, "no answer: the last box is empty")


def _marked(text: str) -> Extraction | None:
    """What follows `####` or a phrase such as "the answer is"."""
    if (hashes := _HASHES.findall(text)) and (answer := _stated(hashes[-1])):
        return Extraction(answer, "after ####")
    rest = _after_phrase(text)
    if rest is not None and (answer := _stated(rest)):
        return Extraction(answer, "after 'answer'")
    return None


def _after_phrase(text: str) -> str | None:
    """What follows the last "answer is", to the end of its line; None where there is nothing."""
    for phrase in reversed(list(_PHRASE.finditer(text))):
        if rest := text[phrase.end() :].partition("\n")[0].strip():
            return rest
    return None


def _stated(rest: str) -> str:
    """The value at the head of a sentence: its formula, its number, or else the whole clause."""
    formula = _FORMULA.match(rest)
    tail = _CLAUSE_END.split(rest[formula.end() :], maxsplit=1)[0] if formula else ""
    if formula and not _NUMBER.search(tail) and "$" not in tail:
        return clean(next(part for part in formula.groups() if part))
    clause = clean(_CLAUSE_END.split(rest, maxsplit=1)[0])
    if not _is_prose(clause):
        return clause.replace("$", "")
    numbers = [_with_unit(number) for number in _NUMBER.finditer(clause)]
    if not numbers or re.search(r"\b(?:and|or)\b|[和或]", clause):
        return numbers[0] if len(set(numbers)) == 1 else clause
    return numbers[-1 if "=" in clause else 0]


def _last_value(text: str) -> Extraction:
    """The last number, or the right side of the formula in dollar signs that holds it."""
    digits = list(re.finditer(r"\d", text))
    formulas = list(_FORMULA.finditer(text))
    if digits and formulas and formulas[-1].start() < digits[-1].start() < formulas[-1].end():
        formula = next(part for part in formulas[-1].groups() if part)
        if not _is_prose(formula) and (value := clean(formula.rpartition("=")[2])):
            return Extraction(value, "the last formula")
    numbers = list(_NUMBER.finditer(text))
    if not numbers:
        return Extraction(None, "no answer found")
    if _OR_BEFORE.search(text, max(0, numbers[-1].start() - 40), numbers[-1].start()):
        return Extraction(None, f"no answer: several numbers, the last of them {numbers[-1][0]}")
    return Extraction(clean(_with_unit(numbers[-1])), "the last number")


def _with_unit(found: re.Match[str]) -> str:
    """A number that stands in a sentence, with the unit after it when that is a known one of more than a letter."""
    text, place = found.string, found.end()
    if chinese := _CHINESE_UNIT.match(text, place):
        names = [chinese[1][:length] for length in range(len(chinese[1]), 0, -1)]
    elif words := _UNIT.match(text, place):
        pieces = words[1].split(" ")
        names = [" ".join(pieces[:length]) for length in range(len(pieces), 0, -1)]
    else:
        return found[0]
    name = next((name for name in names if (len(name) > 1 or not name.isascii()) and name != "in" and read_unit(name)), None)
    return found[0] if name is None else f"{found[0]} {name}"


def _is_prose(text: str) -> bool:
    return _WORD.search(_NOT_WORDS.sub(" ", text)) is not None
