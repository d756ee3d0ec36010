"""Multiple choice: the ground truth is a letter, and an answer that letter or, where the options are known, the text of its option."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from sharpen.grading.denials import HEDGE, is_refused
from sharpen.grading.extract import after_thinking, clean, declared, in_boxes
from sharpen.grading.math import LONGEST_ANSWER, compare
from sharpen.grading.spelling import normal
from sharpen.grading.verdict import Verdict

_DRESS = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox)\s*\{([^{}]*)\}")
_LETTER = re.compile(r"(?:(?:[Oo]ption|[Cc]hoice)\s+)?\(?([A-Z])(?:\)|[.:](?!\w)|$|(?=\s*(?:because|since|,|\(not\b)))", re.ASCII)
_IN_PARENTHESES = re.compile(r"\(([A-Z])\)")
_ALONE = re.compile(r"^[^\w\n]*([A-Z])(?:[.):][ \t].*|[^\w\n]*)$", re.MULTILINE)
_CHOSEN = re.compile(r"(?:选择?|\b(?:[Oo]ption|[Cc]hoice)\b(?: is)?)\s*[:：]?\s*\(?([A-Z])(?![A-Za-z])")
_ONE_LETTER = re.compile(r"\(?[A-Za-z]\)?\.?")
_SMALL = re.compile(r"\(?([a-z])\)?\.?")
_PICKED = re.compile(
    r"\b(?:pick|choose|chose|select|say|(?:go|going) with)(?: is)?[ :]{1,3}\(?([A-Z])(?=\)|[.,;:!?]|$|[ ](?:because|since|not|over)\b)",
    re.ASCII | re.MULTILINE,
)
_SEVERAL = re.compile(
    r"\(?\b[A-Z]\b[).]*\s*(?:[,/;]\s*(?:or\b|and\b)?|\bor\b|\band\b|或|和|(?<=\))(?=\(?[A-Z]\)))\s*\(?\b[A-Z]\b", re.ASCII
)
_INSTEAD = re.compile(r"\b(?:wait|no|actually|rather|instead|sorry|correction)\b[^A-Z\n]{0,20}$", re.IGNORECASE)
_DENIAL = re.compile(r"not\b|n['’]t\b|neither\b", re.IGNORECASE)
_A_WORD = re.compile(r"(?!(?:and|or)\b)\w{2,}")


def grade_choice(gold: str, text: str, *, choices: Sequence[str] = ()) -> Verdict:
    r"""Judge the option that a completion chooses: `\boxed{B}`, `(B)`, `The answer is B.`, `答案：B`, `故选B`, `B. Paris`, or `Paris`.

    Args:
        gold: a capital letter, or the text of one of `choices`.
        text: the completion.
        choices: the texts of options A, B, ...; with them, an option may be chosen by its text.
    """
    right = _undressed(gold).strip("().")
    if not re.fullmatch("[A-Z]", right):
        right = _by_text(gold, choices) or ""
    if not right or (choices and ord(right) - ord("A") >= len(choices)):
        options = f" nor one of the {len(choices)} options" if choices else ""
        return Verdict("unscorable", f"the ground truth '{gold}' is not a capital letter{options}", None)
    boxed = in_boxes(text)
    if boxed is not None and boxed.answer is None:
        return Verdict("wrong", boxed.how, None)
    stated = boxed.answer if boxed is not None and boxed.answer is not None else declared(text)
    said = _undressed(stated)
    if _SEVERAL.match(said) or _DENIAL.match(said):
        return Verdict("wrong", f"no answer: several letters, or none, {said[:40]}", None)
    found = _ends(list(_IN_PARENTHESES.finditer(said)) or list(_ALONE.finditer(said)))
    found = [one for one in found if not is_refused(said, *one.span(1))]
    head = _LETTER.match(said)
    head = None if head is None or is_refused(said, *head.span(1)) else head
    if head and (others := [one for one in found if one[1] != head[1]]):
        if HEDGE.search(said, head.end(), min(others[0].start(), head.end() + 200)):
            return Verdict("wrong", f"no answer: several letters, {head[1]} or {others[0][1]}", None)
        head = None if _INSTEAD.search(said, max(head.end(), others[-1].start() - 40), others[-1].start()) else head
    if _is_a_list(said, found[:4] if head else found[-4:], 0 if head else -2):
        return Verdict("wrong", "no answer: the choices are listed and none is chosen", None)
    by_text = None if _ONE_LETTER.fullmatch(said) else _by_text(stated, choices)
    letter = by_text or _letter(said, text, head or (found[-1] if found else None))
    if letter is None:
        return Verdict("wrong", "no answer: no option is chosen", None)
    return Verdict("right" if letter == right else "wrong", f"chose {letter}", letter)


def _letter(said: str, text: str, found: re.Match[str] | None) -> str | None:
    """The letter that is chosen: a small one alone, or the last one after 选 or "option", or else that which was found."""
    if small := _SMALL.fullmatch(said):
        return small[1].upper()
    outside = "" if found is not None and found.start() == 0 else normal(after_thinking(text) or "")
    chosen = list(_CHOSEN.finditer(outside)) or list(_PICKED.finditer(outside))
    if affirmed := [one[1] for one in _ends(chosen) if not is_refused(outside, *one.span(1))]:
        return affirmed[-1]
    return None if found is None else found[1]


def _ends(found: list[re.Match[str]]) -> list[re.Match[str]]:
    """The first and the last of many matches: nothing between them decides, and each costs time."""
    return found if len(found) <= 40 else found[:20] + found[-20:]


def _is_a_list(said: str, found: Sequence[re.Match[str]], pair: int) -> bool:
    """Whether letters only list the choices: four in the order of the alphabet, or the two from place `pair` on with no word between."""
    if len(found) < 2:
        return False
    first, second = found[pair], found[pair + 1]
    between = said[first.end() : second.start()]
    codes = [ord(one[1]) for one in found]
    in_order = len(codes) == 4 and {after - before for before, after in pairwise(codes)} in ({1}, {-1})
    return in_order or (first[1] != second[1] and not _A_WORD.search(between))


def _by_text(said: str, choices: Sequence[str]) -> str | None:
    """The letter of the one option that is meant by its text or value."""
    said = clean(normal(said))
    if not said or len(said) > LONGEST_ANSWER:
        return None
    plain = [" ".join(_undressed(text).casefold().split()) for text in (said, *choices)]
    found = [place for place, option in enumerate(plain[1:]) if option == plain[0]]
    if not found:
        found = [
            place for place, option in enumerate(choices) if len(option) <= LONGEST_ANSWER and compare(clean(option), said, "strict")[0]
        ]
    return chr(ord("A") + found[0]) if len(found) == 1 else None


def _undressed(text: str) -> str:
    return clean(_DRESS.sub(r"\1", clean(normal(text))))
