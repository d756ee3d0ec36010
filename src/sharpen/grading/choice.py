"""Multiple choice: the ground truth is a letter, and an answer that letter or the text of its option."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sharpen.grading.extract import after_thinking, clean, declared
from sharpen.grading.math import LONGEST_ANSWER, compare
from sharpen.grading.spelling import normal
from sharpen.grading.verdict import Verdict

_DRESS = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox)\s*\{([^{}]*)\}")
_LETTER = re.compile(r"(?:(?:option|choice)\s+)?\(?([A-Z])(?:\)|[.:](?!\w)|$|(?=\s*(?:because|since|,)))", re.ASCII)
_IN_PARENTHESES = re.compile(r"\(([A-Z])\)")
_ALONE = re.compile(r"^[^\w\n]*([A-Z])(?:[.):][ \t].*|[^\w\n]*)$", re.MULTILINE)
_SEVERAL = re.compile(r"\(?\b[A-Z]\b\)?\s*(?:,|/|\bor\b|\band\b|或|和)\s*\(?\b[A-Z]\b", re.ASCII)
_CHOSEN = re.compile(r"(?:选择?|\b(?:option|choice)\b(?: is)?)\s*[:：]?\s*\(?([A-Z])(?![A-Za-z])")
_SMALL = re.compile(r"\(?([a-z])\)?\.?")


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
    stated = declared(text)
    said = _undressed(stated)
    if _SEVERAL.match(said):
        return Verdict("wrong", f"no answer: several letters, {said[:40]}", None)
    letter = _letter(said, text) or _by_text(stated, choices)
    if letter is None:
        return Verdict("wrong", "no answer: no option is chosen", None)
    return Verdict("right" if letter == right else "wrong", f"chose {letter}", letter)


def _letter(said: str, text: str) -> str | None:
    """The letter that is chosen: at the head of what is declared, or else after 选, in parentheses or alone on its line."""
    if head := _LETTER.match(said):
        return head[1]
    if small := _SMALL.fullmatch(said):
        return small[1].upper()
    for pattern in (_CHOSEN, _IN_PARENTHESES, _ALONE):
        if letters := pattern.findall(normal(after_thinking(text) or "") if pattern is _CHOSEN else said):
            return str(letters[-1])
    return None


def _by_text(said: str, choices: Sequence[str]) -> str | None:
    """The letter of the one option that is meant by its text or value."""
    said = clean(normal(said))
    if not said or len(said) > LONGEST_ANSWER:
        return None
    plain = [" ".join(_undressed(text).casefold().split()) for text in (said, *choices)]
    found = [place for place, option in enumerate(plain[1:]) if option == plain[0]]
    if not found:
        found = [place for place, option in enumerate(choices) if len(option) <= LONGEST_ANSWER and compare(clean(option), said, "strict")[0]]
    return chr(ord("A") + found[0]) if len(found) == 1 else None


def _undressed(text: str) -> str:
    return clean(_DRESS.sub(r"\1", clean(normal(text))))
