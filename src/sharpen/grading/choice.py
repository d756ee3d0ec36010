"""Multiple choice: the ground truth is a letter."""

from __future__ import annotations

import re

from sharpen.grading.extract import clean, declared
from sharpen.grading.spelling import normal
from sharpen.grading.verdict import Verdict

_DRESS = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox)\s*\{([^{}]*)\}")
_LETTER = re.compile(r"\(?([A-Z])(?:\)|[.:](?!\w)|$|(?=\s*(?:because|since|,)))")
_IN_PARENTHESES = re.compile(r"\(([A-Z])\)")
_ALONE = re.compile(r"^[^\w\n]*([A-Z])(?:[.):][ \t].*|[^\w\n]*)$", re.MULTILINE)
_SEVERAL = re.compile(r"\(?\b[A-Z]\b\)?\s*(?:,|/|\bor\b|\band\b|或|和)\s*\(?\b[A-Z]\b")


def grade_choice(gold: str, text: str) -> Verdict:
    r"""Judge the letter that a completion chooses: `\boxed{B}`, `(B)`, `The answer is B.`, `答案：B`, `B. Paris`.

    Args:
        gold: a capital letter.
        text: the completion.
    """
    right = _undressed(gold)
    right = right.strip("().")
    if not re.fullmatch("[A-Z]", right):
        return Verdict("unscorable", f"the ground truth '{gold}' is not a capital letter", None)
    said = _undressed(declared(text))
    if _SEVERAL.match(said):
        return Verdict("wrong", f"no answer: several letters, {said[:40]}", None)
    letter = _LETTER.match(said)
    letters = [letter[1]] if letter else _IN_PARENTHESES.findall(said) or _ALONE.findall(said)
    if not letters:
        return Verdict("wrong", "no answer: no letter is chosen", None)
    return Verdict("right" if letters[-1] == right else "wrong", f"chose {letters[-1]}", letters[-1])


def _undressed(text: str) -> str:
    return clean(_DRESS.sub(r"\1", clean(normal(text))))
