r"""What is written down and not worked out: `7 * 8` where 56 is asked for, a sum that nobody summed, and the question again.

Values are compared, not forms, so that a formula of the question may well equal the answer. Only where it is plain that nothing was done is
an answer refused: what remains is a policy to state (docs/grading.md), not a fault that can be graded away.
"""

from __future__ import annotations

import functools
import re

from sharpen.grading import split
from sharpen.grading.expressions import Node, number
from sharpen.grading.extract import formulas
from sharpen.grading.numbers import quantity
from sharpen.grading.spelling import spell

_UNDONE = re.compile(r"\\(?:sum|prod|int|iint|oint|lim|det)(?![A-Za-z])|\\begin\s*\{vmatrix\}")
_EQUALS = split.by("=")
_TO_CARRY_OUT = ("+", "*", "floor", "ceil", "abs", "max", "min", "gcd", "lcm")
_DECIMAL = re.compile(r"[-+]?[\d.,{}]+\s*(?:\\?%)?")
_SENTENCE_END = re.compile(r"(?<=[.?!])\s+|\n+")
FEWEST_WORDS = 4
"""Of a sentence whose repetition does not count."""


def is_calculation(node: Node) -> bool:
    r"""Whether a constant has sums or products to carry out, other than a mixed number's (`2 + \frac13`) and scientific notation's."""
    if node.op == "+" and _is_mixed(node):
        return False
    if node.op == "*" and node.args[1].op == "^" and node.args[1].args[0] == number(10) and node.args[0].op == "number":
        return False
    if node.op == "*" and any(arg.holds("pi") for arg in node.args):  # an angle, where degrees are asked for
        return any(is_calculation(arg) for arg in node.args)
    return node.op in _TO_CARRY_OUT or any(is_calculation(arg) for arg in node.args)


def _is_mixed(node: Node) -> bool:
    whole, *rest = node.args
    whole = whole.args[0] if whole.op == "negative" else whole
    if len(rest) != 1 or rest[0].op != "/" or any(part.op != "number" for part in (whole, *rest[0].args)):
        return False
    top, bottom = (part.value for part in rest[0].args)
    return whole.value.denominator == top.denominator == bottom.denominator == 1 and 0 <= top < bottom


def undone(answer: str, gold: str) -> str | None:
    """The sum, product, integral, limit or determinant that an answer leaves to be worked out, and the ground truth does not."""
    sides, _ = split.cut(spell(answer), _EQUALS)
    found = _UNDONE.search(sides[-1])
    return found[0] if found and not _UNDONE.search(gold) else None


def repeats_formula(prompt: str, answer: str, gold: str) -> bool:
    r"""Whether an answer is a formula of the question, word for word, and not the ground truth as it is written.

    `\sqrt{242}` where that is to be simplified; a decimal or a letter may well stand in the question by chance.
    """
    said = _spaceless(answer)
    if said == _spaceless(gold) or len(said) < 3 or _DECIMAL.fullmatch(said) or (said.isalpha() and quantity(answer) is None):
        return False
    return said in _formulas_of(prompt)


@functools.lru_cache(maxsize=4096)
def _formulas_of(prompt: str) -> frozenset[str]:
    """The formulas of a question, their sides, and what stands between its spaces, in one spelling."""
    found = formulas(prompt)
    sides = [side for formula in found for side in re.split(r"=|\\equiv", formula)]
    return frozenset(_spaceless(text) for text in (*found, *sides, *prompt.split()))


def _spaceless(text: str) -> str:
    return "".join(spell(text).split()).rstrip(".,;?!")


def own_words(prompt: str, text: str) -> str:
    """A completion without the sentences of the question that it repeats word for word: their numbers are not its answer."""
    for sentence in _sentences(prompt):
        if sentence in text:
            text = text.replace(sentence, " ")
    return text


@functools.lru_cache(maxsize=4096)
def _sentences(prompt: str) -> tuple[str, ...]:
    """The question and its sentences, the longest first, without short ones, which an answer may well share."""
    found = {prompt.strip(), *_SENTENCE_END.split(prompt.strip())}
    return tuple(sorted((one for one in found if len(one.split()) >= FEWEST_WORDS), key=len, reverse=True))
