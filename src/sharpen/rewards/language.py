r"""Which share of a chain of thought is in one language.

What is no word of any language is left out first: tags, code, LaTeX (but what its `\text{…}` says counts), addresses, numbers, single
Latin and Greek letters, and the names of functions (`sin`, `mod`, `gcd`). The rest is cut into words, each in one script. Chinese,
Japanese, Thai, Lao, Khmer, Burmese and Tibetan are written without spaces; there every letter is a word.

A word in a script that the language is not written in is no word of it. Where other languages share the script (Latin, Cyrillic, Arabic,
Devanagari, …), py3langid judges piece by piece: one sentence, or as many in a row as make up `PIECE` bytes; all words of a piece count, or
none. A piece is foreign when the probability of the target language is below `FOREIGN`. Less than `SHORTEST` bytes are too few to tell, and
count. Chinese characters are Japanese in a piece with kana, and Chinese in one without.

Of 4,283 pieces of the solutions of GSM8K's test set and MATH-500, none is foreign to English; of 18 pieces in French, German, Spanish,
Italian and Dutch, all are.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from typing import Any

from sharpen.errors import MissingPackageError, RewardError, nearest

PIECE = 40
"""Letters of a piece, in bytes of UTF-8."""
SHORTEST = 20
"""Letters from which a language can be told, in bytes of UTF-8."""
FOREIGN = 0.05
"""Probability of the target language below which a piece is in another one."""

_OTHER_SCRIPTS: dict[str, tuple[str, ...]] = {
    "am": ("Ethiopic",), "ar": ("Arabic",), "as": ("Bengali",), "ba": ("Cyrillic",), "be": ("Cyrillic",), "bg": ("Cyrillic",),
    "bn": ("Bengali",), "dz": ("Tibetan",), "el": ("Greek",), "fa": ("Arabic",), "gu": ("Gujarati",), "he": ("Hebrew",),
    "hi": ("Devanagari",), "hy": ("Armenian",), "ja": ("Han", "Hiragana", "Katakana"), "ka": ("Georgian",), "kk": ("Cyrillic",),
    "km": ("Khmer",), "kn": ("Kannada",), "ko": ("Hangul",), "ky": ("Cyrillic",), "lo": ("Lao",), "mk": ("Cyrillic",),
    "ml": ("Malayalam",), "mn": ("Cyrillic",), "mr": ("Devanagari",), "my": ("Myanmar",), "ne": ("Devanagari",), "or": ("Oriya",),
    "pa": ("Gurmukhi",), "ps": ("Arabic",), "ru": ("Cyrillic",), "sa": ("Devanagari",), "si": ("Sinhala",), "sr": ("Cyrillic", "Latin"),
    "ta": ("Tamil",), "te": ("Telugu",), "tg": ("Cyrillic",), "th": ("Thai",), "tt": ("Cyrillic",), "ug": ("Arabic",),
    "uk": ("Cyrillic",), "ur": ("Arabic",), "zh": ("Han",),
}  # fmt: skip
_LATIN = (
    "af", "an", "az", "br", "bs", "ca", "cs", "cy", "da", "de", "en", "eo", "es", "et", "eu", "fi", "fo", "fr", "fy", "ga", "gd",
    "gl", "ha", "hr", "ht", "hu", "id", "ig", "is", "it", "jv", "ku", "la", "lb", "lg", "ln", "lt", "lv", "mg", "ms", "mt", "nl",
    "nn", "no", "oc", "om", "pl", "pt", "qu", "ro", "rw", "se", "sk", "sl", "sn", "so", "sq", "st", "sv", "sw", "tk", "tl", "tr",
    "uz", "vi", "vo", "wa", "xh", "yo", "zu",
)  # fmt: skip
SCRIPTS: dict[str, tuple[str, ...]] = {**dict.fromkeys(_LATIN, ("Latin",)), **_OTHER_SCRIPTS}
"""The scripts of each language that can be asked for, by its two letters (ISO 639-1)."""

_NO_SPACES = ("Han", "Hiragana", "Katakana", "Thai", "Lao", "Khmer", "Myanmar", "Tibetan")
_NO_WORD_ALONE = ("Latin", "Greek")
_FUNCTIONS = frozenset({
    "sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "arcsin", "arccos", "arctan", "log", "ln", "lg", "exp",
    "mod", "gcd", "lcm", "det", "dim", "ker", "deg", "lim", "sup", "inf",
})  # fmt: skip

_THOUGHT = re.compile(r"<think>(.*?)(?:</think>|\Z)", re.DOTALL)
# Spans are bounded, so that a text full of opened formulas does not take time that grows with its square.
_FORMULA = (
    r"\\begin\{(\w+\*?)\}.{0,2000}?\\end\{\1\}|\$\$.{1,1000}?\$\$|\\\[.{1,1000}?\\\]|\\\(.{1,1000}?\\\)"
    r"|\$(?! )(?:[^$\n\\]|\\.){1,1000}(?<![ \n\\])\$(?!\d)"
)
_LATEX = re.compile(_FORMULA, re.DOTALL)
_SAID = re.compile(r"\\(?:text|textbf|textit|textrm|mbox)\s*\{([^{}]*)\}")
_NO_WORDS = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]+`|\[asy\].*?(?:\[/asy\]|\Z)|<\|[^|<>\n]*\|>|</?[A-Za-z][\w-]*\s*/?>|(?:https?://|www\.)\S+|\\[A-Za-z]+",
    re.DOTALL,
)
_SENTENCE = re.compile(r"(?<=[.!?;:])\s|[\n。！？；।؟]")


def share(text: str, target: str) -> float:
    """The share of the words of a completion's chain of thought that are in the target language, from 0 to 1.

    A chain of symbols alone is in no other language: 1. An empty one is not there: 0.

    Args:
        text: the completion. Its chain of thought is what stands in `<think>…</think>`, or before a `</think>` that the prompt opened,
            or all of it where there are no such tags.
        target: one of `SCRIPTS`.

    Raises:
        RewardError: an unknown language.
        MissingPackageError: py3langid is not installed, and is needed to tell languages of one script apart.
    """
    if target not in SCRIPTS:
        raise RewardError(
            f"Reward function 'language': unknown target '{target}'.{nearest(target, SCRIPTS)}",
            fix=f"Give the two letters of ISO 639-1: {', '.join(sorted(SCRIPTS))}.",
        )
    thought = chain_of_thought(text)
    if not thought.strip():
        return 0.0
    sentences = [list(_words(sentence)) for sentence in _SENTENCE.split(_prose(thought))]
    total = sum(len(words) for words in sentences)
    if not total:
        return 1.0
    if target in ("zh", "ja"):
        return _of_han(sentences, target) / total
    return sum(_of_script(sentences, script, target) for script in SCRIPTS[target]) / total


def chain_of_thought(text: str) -> str:
    """What a completion thinks; see `share`."""
    before, closed, rest = text.partition("</think>")
    if closed and "<think>" not in before:  # the prompt opened it
        return "\n".join([before, *_THOUGHT.findall(rest)])
    return "\n".join(_THOUGHT.findall(text)) if "<think>" in text else text


def _prose(text: str) -> str:
    """The text without what is no word of any language."""
    text = re.sub("[\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]", "", text)
    text = _NO_WORDS.sub(lambda found: found[0] if found[0].startswith("\\") else " ", text)
    text = _LATEX.sub(lambda formula: " ".join(["", *_SAID.findall(formula[0]), ""]), text)
    return _NO_WORDS.sub(" ", text)


@functools.cache
def _pattern() -> Any:
    import regex

    scripts = sorted({script for scripts in SCRIPTS.values() for script in scripts} - {"Latin", "Greek"})
    letters = [
        rf"(?P<{script}>\p{{{script}}})" if script in _NO_SPACES else rf"(?P<{script}>\p{{{script}}}[\p{{{script}}}\p{{M}}]*)"
        for script in scripts
    ]
    # A letter next to a digit or an underscore is part of a name such as x_1; the quantifier gives nothing back.
    alone = [rf"(?<![\p{{L}}\d_])(?P<{script}>\p{{{script}}}[\p{{{script}}}\p{{M}}'’]*+)(?![\d_])" for script in _NO_WORD_ALONE]
    return regex.compile("|".join([*alone, *letters, r"(?P<Unknown>\p{L}[\p{L}\p{M}]*)"]))


def _words(sentence: str) -> Iterator[tuple[str, str]]:
    """(script, word) of each word."""
    for found in _pattern().finditer(sentence):
        script, word = found.lastgroup, found[0].strip("'’")
        if script in _NO_WORD_ALONE and (len(word) < 2 or word in _FUNCTIONS):
            continue
        if script != "Unknown" or len(word) > 1:
            yield script, word


def _of_han(sentences: Sequence[Sequence[tuple[str, str]]], target: str) -> int:
    """How many letters are Chinese or Japanese, piece by piece."""
    count = 0
    for piece in _pieces([[pair for pair in words if pair[0] in SCRIPTS["ja"]] for words in sentences]):
        kana = sum(script != "Han" for script, _ in piece)
        if target == "ja":
            count += len(piece) if kana else 0
        else:
            count += 0 if kana else len(piece)
    return count


def _of_script(sentences: Sequence[Sequence[tuple[str, str]]], script: str, target: str) -> int:
    """How many words of this script are of the target language, piece by piece."""
    pieces = _pieces([[pair for pair in words if pair[0] == script] for words in sentences])
    if sum(scripts == (script,) for scripts in SCRIPTS.values()) == 1 or sum(_bytes(piece) for piece in pieces) < SHORTEST:
        return sum(len(piece) for piece in pieces)
    return sum(len(piece) for piece in pieces if probability(" ".join(word for _, word in piece), target) >= FOREIGN)


def _pieces(sentences: Sequence[list[tuple[str, str]]]) -> list[list[tuple[str, str]]]:
    """Sentences in a row until there are `PIECE` bytes; a rest that is shorter joins the piece before it."""
    pieces: list[list[tuple[str, str]]] = []
    piece: list[tuple[str, str]] = []
    for words in sentences:
        piece = piece + words
        if _bytes(piece) >= PIECE:
            pieces.append(piece)
            piece = []
    if piece and pieces:
        pieces[-1] = pieces[-1] + piece
    elif piece:
        pieces.append(piece)
    return pieces


def _bytes(words: Sequence[tuple[str, str]]) -> int:
    return sum(len(word.encode()) for _, word in words)


def probability(text: str, target: str) -> float:
    """How probable it is, by py3langid among all of `SCRIPTS`, that a text is in the target language."""
    return float(dict(_identifier().rank(text))[target])


@functools.cache
def _identifier() -> Any:
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError as error:
        raise MissingPackageError("py3langid", needed_for="the reward function 'language'", install="pip install py3langid") from error
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    identifier.set_languages(sorted(SCRIPTS))
    return identifier
