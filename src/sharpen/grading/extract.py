r"""Finding the final answer in a completion.

What a completion thinks between `<think>` and `</think>` is no answer, and an unfinished thought means that there is none. In the rest, or
in the last `<answer>…</answer>` where there is one, the answer is, in this order:

1. the last `\boxed{…}`. Boxes in a row, `\boxed{3}, \boxed{5}` or `\boxed{3} and \boxed{5}`, are one answer of several parts. Different
   boxes as alternatives, `\boxed{41} or \boxed{42}`, are no answer; `I first thought \boxed{41} but \boxed{42}` is 42;
2. what follows the last `####`;
3. what follows the last `answer is`, `Answer:`, `答案是` or `答案：`, to the end of its sentence;
4. all between the answer tags;
5. the last number, or the formula in dollar signs that it stands in.

In a sentence, a value that its clause denies or only bounds ("it is not 5", "at least 5", "5 is wrong") is no answer.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from sharpen.grading.denials import HEDGE, is_refused
from sharpen.grading.numbers import exact, is_magnitude
from sharpen.grading.spelling import normal
from sharpen.grading.units import read_unit

_TAGGED = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>", re.DOTALL)
_BRACE = re.compile(r"\\(?:boxed|fbox)\s*\{|\\.|[{}]", re.DOTALL)
_IN_A_ROW = re.compile(r"(?:[\s$,;&、.]|\\[()\[\]]|\\q?quad|\\text\s*\{|\}|\band\b|和|与|及|\b[A-Za-z]\s*=)*")
_ALTERNATIVE = re.compile(r"\bor\b|\beither\b|或", re.IGNORECASE)
_HASHES = re.compile(r"####\s*([^\n]+)")
_VALUE_HEAD = re.compile(r"[-+$\\(.\d]")
_DELIMITER = re.compile(r"(?<!\\)\$")
_HEAD = r"(?:\banswer\**\s*(?:is|would be|must be|:|=)|答案\**\s*(?:应该|应)?(?:是|为|等于|:))(?:\s|[*:])*"
_PHRASE = re.compile(rf"{_HEAD}([^\n]*)", re.IGNORECASE)
_PHRASE_HEAD = re.compile(_HEAD, re.IGNORECASE)
_DENIAL = re.compile(r"(?:not\b|n['’]t\b|never\b|neither\b)(?:.*?\bbut\b(?P<instead>.*))?", re.IGNORECASE)
_DENIED = re.compile(r"答案\**\s*(?:并)?不(?:应该)?(?:是|为|等于)")
_CLAUSE_END = re.compile(r"(?<!\\)[.!?;](?:\s|$)|。|；|(?:,\s*)?\b(?:because|since|so|which|where)\b|因为|所以", re.IGNORECASE)
_FORMULA = re.compile(r"\$\$(.+?)\$\$|\$([^$\n]+)\$|\\\(((?:(?!\\\().)+?)\\\)|\\\[((?:(?!\\\[).)+?)\\\]", re.DOTALL)
_NUMBER = re.compile(
    r"(?<![A-Za-z0-9.^_{\\])(?>(?:(?<![)\]}])-(?:\\?\$)?|\\?\$-?)?"
    r"(?:\\[dt]?frac\s*(?:\{\s*-?\d+\s*\}|\d)\s*(?:\{\s*\d+\s*\}|\d)|\d+[ ]\d+/\d+"
    r"|(?:\d{1,3}(?:(?:,|\{,\})\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+)"
    r"(?:\s*/\s*\d+)?(?:\s*(?:\\?%|(?:per\s?cents?|percentage|pct|per\s?mille?)\b))?)(?!\})",
    re.IGNORECASE,
)
_DIGIT = re.compile(r"\d")
_UNIT = re.compile(
    r"\s{0,3}((?:(?:per|square|cubic) |/)?[A-Za-z]{1,12}(?:\^\{?[23]\}?)?(?:(?: per |/| )[A-Za-z]{1,12}(?:\^\{?[23]\}?)?){0,2})"
)
_CHINESE_UNIT = re.compile(r"\s{0,3}([\u4e00-\u9fff]{1,4})")
_LONGEST_STATEMENT = 1000
_OR_BEFORE = re.compile(r"\d[^.!?\n]{0,25}[.;]?\s*(?:\b(?:or|maybe|perhaps|possibly)\b|或)\s*$", re.IGNORECASE)
_NOT_WORDS = re.compile(
    r"\\text\s*\{[^{}]*\}|\\(?:begin|end)\s*\{[A-Za-z]*\*?\}|\\[A-Za-z]+|\b(?:and|or|pi|sqrt|sin|cos|tan|log|ln|exp|mod|per\s?cents?|percentage|pct)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"[A-Za-z]{2,}|[\u4e00-\u9fff]")
_AROUND = " \t\n\r*`"
_AT_THE_END = ".,;:。 "
_SPACES = (r"\,", r"\;", r"\:", r"\!", r"\ ")
_WRAPPERS = (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"))


class Extraction(NamedTuple):
    """The answer, None when there is none, and how it was found or why not."""

    answer: str | None
    how: str


_DENIED_VALUE = Extraction(None, "no answer: only what the answer is not")


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
    if found is None and tagged and (whole := clean(scope)) and not is_prose(whole):
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
    if not tagged and (phrase := next(_phrases(normal(scope)), None)) is not None:
        return clean(phrase)
    return scope.strip()


def in_boxes(text: str) -> Extraction | None:
    """What the boxes in a row at the end of a completion's answer say, or why they say nothing; None without a box."""
    said = after_thinking(normal(text)) or ""
    tagged = _TAGGED.findall(said)
    return _boxed(tagged[-1] if tagged else said)


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
    open_braces: list[re.Match[str] | None] = []
    found: list[Box] = []
    for brace in _BRACE.finditer(text):
        if brace[0] == "}":
            opening = open_braces.pop() if open_braces else None
            if opening and not (found and found[-1].start > opening.start()):
                found.append(Box(opening.start(), brace.end(), text[opening.end() : brace.start()]))
        elif brace[0].endswith("{") and brace[0] != r"\{":
            open_braces.append(brace if brace[0] != "{" else None)
    return found


def clean(text: str) -> str:
    """The text without the spaces, dollar signs, emphasis and full stops around it."""
    start, end, before = 0, len(text), None
    while before != (start, end):  # by places, for a copy of what is left at each turn would take time squared
        before = start, end
        while start < end and text[start] in _AROUND:
            start += 1
        while start < end and text[end - 1] in _AROUND:
            end -= 1
        while text.startswith(_SPACES, start, end):
            start += 2
        while text.endswith(_SPACES, start, end) and text[end - 3 : end - 2] != "\\":
            end -= 2
        while start < end and text[end - 1] in _AT_THE_END:
            end -= 1
        for left, right in _WRAPPERS:
            if end - start >= len(left + right) and text.startswith(left, start, end) and text.endswith(right, start, end):
                start, end = start + len(left), end - len(right)
    return text[start:end]


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
    answers = list(dict.fromkeys(clean(content) for content in dict.fromkeys(box.content for box in reversed(row))))
    if len({exact(answer) or answer for answer in answers}) == 1:
        answers = answers[-1:]
    elif alternatives:
        return Extraction(None, f"no answer: several different ones, {' or '.join(answers)}")
    answer = ", ".join(answers)
    return Extraction(answer, "the last box") if answer else Extraction(None, "no answer: the last box is empty")


def _marked(text: str) -> Extraction | None:
    """What follows `####` or a phrase such as "the answer is"."""
    hashes = [rest for rest in _HASHES.findall(text) if _VALUE_HEAD.match(rest) or not is_prose(rest)]
    if hashes and (answer := _stated(hashes[-1])):
        return Extraction(answer, "after ####")
    denied = _DENIED.search(text) is not None
    for rest in _phrases(text):
        denial = _DENIAL.match(rest)
        denied |= denial is not None
        affirmed = (denial["instead"] or "").strip() if denial else rest
        answer = _stated(affirmed) if affirmed else ""
        denied |= answer is None
        if answer:
            hedged = _hedged(affirmed)
            return Extraction(None, f"no answer: several different ones, {hedged}") if hedged else Extraction(answer, "after 'answer'")
    return _DENIED_VALUE if denied else None


def _phrases(text: str) -> Iterator[str]:
    """What follows "the answer is" on its line, the last one first; said again on one line, it counts if a value follows."""
    heads = list(_PHRASE_HEAD.finditer(text))
    for place in reversed(range(len(heads))):
        start = heads[place].end()
        end = text.find("\n", start)
        begin = text[start : start + 200] if end < 0 else text[start : min(end, start + 200)]
        again = place > 0 and "\n" not in text[heads[place - 1].end() : heads[place].start()]
        if again and not re.search(r"[\d$\\]", begin) and is_prose(_CLAUSE_END.split(begin, maxsplit=1)[0]):
            continue
        if begin.strip():
            yield text[start:] if end < 0 else text[start:end]


def _stated(rest: str) -> str | None:
    """The value at the head of a sentence: its formula, its number, or else the whole clause; None when the value is denied."""
    formula = _FORMULA.match(rest)
    tail = _CLAUSE_END.split(rest[formula.end() :], maxsplit=1)[0] if formula else ""
    if formula and not _NUMBER.search(tail) and "$" not in tail:
        return None if is_refused(rest, *formula.span()) else clean(next(part for part in formula.groups() if part))
    clause = clean(_CLAUSE_END.split(rest, maxsplit=1)[0])
    if not is_prose(clause):
        return _DELIMITER.sub("", clause)
    found = list(_NUMBER.finditer(clause))
    numbers = [_with_unit(number) for number in found if not is_refused(clause, *number.span())]
    if found and not numbers:
        return None
    if not numbers or re.search(r"\b(?:and|or)\b|[和或]", clause):
        return numbers[0] if len(set(numbers)) == 1 else clause
    return numbers[-1 if "=" in clause else 0]


def _hedged(stated: str) -> str | None:
    """Two different numbers of which a sentence leaves open which is meant; None when it does not."""
    for hedge in HEDGE.finditer(stated[:_LONGEST_STATEMENT]):
        first = _last(_NUMBER, stated[: hedge.start()])
        second = _NUMBER.search(stated, hedge.end(), hedge.end() + 40)
        if first and second and not re.search(r"[.;\n]", stated[hedge.end() : second.start()]) and exact(first[0]) != exact(second[0]):
            return f"{first[0]} or {second[0]}"
    return None


def formulas(text: str) -> list[str]:
    """What stands between dollar signs or the LaTeX brackets of formulas, in order."""
    return [next(part for part in found.groups() if part) for found in _FORMULA.finditer(text)]


def _last_value(text: str) -> Extraction:
    """The last number, or the right side of the formula in dollar signs that holds it."""
    digit, found = _last(_DIGIT, text), _last(_FORMULA, text)
    if digit and found and found.start() < digit.start() < found.end():
        formula = next(part for part in found.groups() if part)
        if not is_prose(formula) and (value := clean(formula.rpartition("=")[2])):
            return _DENIED_VALUE if is_refused(text, *found.span()) else Extraction(value, "the last formula")
    number = _last(_NUMBER, text)
    if number is None:
        return Extraction(None, "no answer found")
    if _OR_BEFORE.search(text, max(0, number.start() - 40), number.start()):
        return Extraction(None, f"no answer: several numbers, the last of them {number[0]}")
    if is_refused(text, *number.span()):
        return _DENIED_VALUE
    return Extraction(clean(_with_unit(number)), "the last number")


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
    name = next((name for name in names if _is_taken_along(name)), None)
    return found[0] if name is None else f"{found[0]} {name}"


def _is_taken_along(name: str) -> bool:
    first, _, rest = name.partition(" ")
    if is_magnitude(first):
        return not rest or _is_taken_along(rest)
    return (len(name) > 1 or not name.isascii()) and name != "in" and read_unit(name) is not None


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    return next(iter(deque(pattern.finditer(text), maxlen=1)), None)


def is_prose(text: str) -> bool:
    """Whether a text has words, outside of LaTeX's commands and the names of functions."""
    return _WORD.search(_NOT_WORDS.sub(" ", text)) is not None
