"""Multiple choice: the ground truth is a letter."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from sharpen.grading.extract import clean, declared, in_boxes
from sharpen.grading.numbers import normal
from sharpen.grading.verdict import Verdict

_DRESS = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox)\s*\{([^{}]*)\}")
_LETTER = re.compile(r"\(?([A-Z])(?:\)|[.:](?!\w)|$|(?=\s*(?:because|since|,)))")
_IN_PARENTHESES = re.compile(r"\(([A-Z])\)")
_ALONE = re.compile(r"^[^\w\n]*([A-Z])(?:[.):][ \t].*|[^\w\n]*)$", re.MULTILINE)
_SEVERAL = re.compile(r"\(?\b[A-Z]\b\)?\s*(?:,|/|\bor\b|\band\b|或|和)\s*\(?\b[A-Z]\b")

_DENIAL = re.compile(r"not\b|n['’]t\b|neither\b", re.IGNORECASE)
_A_WORD = re.compile(r"(?!(?:and|or)\b)\w{2,}")


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
    boxed = in_boxes(text)
    if boxed is not None and boxed.answer is None:
        return Verdict("wrong", boxed.how, None)
    said = _undressed(boxed.answer if boxed is not None and boxed.answer is not None else declared(text))
    if _SEVERAL.match(said) or _DENIAL.match(said):
        return Verdict("wrong", f"no answer: several letters, or none, {said[:40]}", None)
    letter = _LETTER.match(said)
    found = list(_IN_PARENTHESES.finditer(said)) or list(_ALONE.finditer(said))
    if _is_a_list(said, found[:4] if letter else found[-4:], 0 if letter else -2):
        return Verdict("wrong", "no answer: the choices are listed and none is chosen", None)
    letter = letter or (found[-1] if found else None)
    if letter is None:
        return Verdict("wrong", "no answer: no letter is chosen", None)
    return Verdict("right" if letter[1] == right else "wrong", f"chose {letter[1]}", letter[1])


def _is_a_list(said: str, found: Sequence[re.Match[str]], pair: int) -> bool:
    """Whether letters only list the choices: four in the order of the alphabet, or the two from place `pair` on with no word between."""
    if len(found) < 2:
        return False
    first, second = found[pair], found[pair + 1]
    between = said[first.end() : second.start()]
    codes = [ord(one[1]) for one in found]
    in_order = len(codes) == 4 and {after - before for before, after in pairwise(codes)} in ({1}, {-1})
    return in_order or (first[1] != second[1] and not _A_WORD.search(between))


def _undressed(text: str) -> str:
    return clean(_DRESS.sub(r"\1", clean(normal(text))))
