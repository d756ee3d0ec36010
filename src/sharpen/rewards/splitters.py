r"""Cutting a completion into steps: where steps end in its text, and which of its tokens hold those ends.

Tokens are what is cut; the text is never encoded again. A step ends at the token that holds its last character, and the last step at the
completion's last token: the stop token, or the one at which the length limit cut it. What is only white space joins the step before it, or
the first step where there is none before. A token that holds two ends ends one step.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Literal, NamedTuple

from sharpen.errors import RewardError, nearest
from sharpen.records import Completion

Decode = Callable[[Sequence[int]], str]
Ends = Callable[[str], list[int]]
"""Text → where its steps end: the place after each step's last character."""

WINDOW = 8  # pieces that are decoded before a token to see what it adds to the text
CUT = "\ufffd"  # what a part of a character is decoded to


class Step(NamedTuple):
    """The place of a step's last token, and its text."""

    end: int
    text: str


def lines(text: str) -> list[int]:
    """A step is a line."""
    return [found.end() for found in re.finditer(r"\n", text)]


def blank_lines(text: str) -> list[int]:
    """A step is a paragraph: blank lines end it."""
    return [found.end() for found in re.finditer(r"\n(?:[^\S\n]*\n)+", text)]


_SENTENCE = re.compile(
    r"""
    (?P<latin> [.!?]+ ) [*_]* ["'”’)\]}»$]* [*_]* (?= \s | $ )
    | [。！？]+ ["'”’」』）】》]*
    | ．(?! \s*[\d０-９] )
    | \n
    """,
    re.VERBOSE,
)
# What comes next carries the sentence on: a small letter, a sign of punctuation, or an operator.
_GOES_ON = re.compile(r"[^\S\n]+(?:\*(?!\*)|[a-zа-яß-ÿ,;:+/=<>≤≥≠×÷·^|−–-])")
_ALWAYS_SHORT = re.compile(r"(?:^|[\s(\[“\"'])(?:e\.g|i\.e|cf|vs|viz|Mr|Mrs|Ms|Dr|Prof|St|Gen|Sr|Jr|approx|resp)$")
_SHORT_BEFORE_NUMBER = re.compile(r"(?:^|[\s(\[])(?:[Nn]os?|[Ff]igs?|[Ee]qs?|[Ss]ec|[Cc]h|[Vv]ol|[Pp]p?|[Tt]hm|[Aa]rt|ca|ex|Ex)$")
_INITIALS = re.compile(r"(?:^|[\s(])(?:[A-Z]\.)+[A-Z]$")
_LIST_NUMBER = re.compile(r"(?:^|\n)[^\S\n]*(?:[#>*_-]+[^\S\n]*)?(?:(?:step|part|case)[^\S\n]+)?\(?(?:\d{1,3}|[a-z]|[ivx]{1,4})$", re.I)


def sentences(text: str) -> list[int]:
    """A step is a sentence of English or Chinese, or a line.

    A full stop ends none within a number (3.14), after an abbreviation (e.g., Dr., Fig. 2) or initials (U.S.), after the number that begins
    a line (1.), or where the text goes on with a small letter, a comma or an operator.
    """
    return [found.end() for found in _SENTENCE.finditer(text) if found["latin"] is None or _ends(text, found)]


def _ends(text: str, found: re.Match[str]) -> bool:
    """Whether a full stop, exclamation or question mark, followed by white space, ends a sentence."""
    if _GOES_ON.match(text, found.end()):
        return False
    if found["latin"] != ".":
        return True
    before = text[max(0, found.start() - 24) : found.start()]
    numbered = re.match(r"\s+[\d(#]", text[found.end() : found.end() + 4])
    short = _ALWAYS_SHORT.search(before) or _INITIALS.search(before) or (numbered and _SHORT_BEFORE_NUMBER.search(before))
    return not short and not _LIST_NUMBER.search(before)


_DIGITS = "0-9０-９一二三四五六七八九十"
_STEP_WORD = rf"(?:step[^\S\n]*\d+|步骤[^\S\n]*[{_DIGITS}]+|第[^\S\n]*[{_DIGITS}]+[^\S\n]*步)"
STEP = re.compile(rf"^[^\S\n]*(?:[#>*_-]+[^\S\n]*)?{_STEP_WORD}", re.I | re.M)
NUMBER = re.compile(r"^[^\S\n]*(?:[>*_]+[^\S\n]*)?\(?\d{1,3}[.)、．](?!\d)", re.M)
TAG = re.compile(r"(?<!\w)ки(?!\w)")

Place = Literal["begin", "end"]


def marked(text: str) -> list[int]:
    """A step has a mark: it ends in `ки` (Math-Shepherd's), or begins with `Step 1` (步骤 1, 第一步), or else with `1.`.

    The first of these that the text has decides. What stands before the first mark that begins a step is a step as well.
    """
    if TAG.search(text):
        return by_pattern(TAG, "end")(text)
    return by_pattern(STEP if STEP.search(text) else NUMBER, "begin")(text)


def by_pattern(pattern: re.Pattern[str], place: Place) -> Ends:
    """A splitter by a mark of one's own, which begins a step or ends one."""
    if place == "end":
        return lambda text: [found.end() for found in pattern.finditer(text)]
    return lambda text: [found.start() for found in pattern.finditer(text) if found.start() > 0]


SPLITTERS: Mapping[str, Ends] = {"lines": lines, "blank_lines": blank_lines, "sentences": sentences, "marked": marked}


def splitter(name: str, *, marker: str | None = None, marker_place: Place = "begin") -> Ends:
    """The splitter of this name.

    Args:
        name: `lines`, `blank_lines`, `sentences` or `marked`.
        marker: for `marked`, a regular expression in place of the marks that it knows; `^` is the beginning of a line.
        marker_place: whether that begins a step or ends one.

    Raises:
        RewardError: an unknown name, a marker for another splitter, or one that is no regular expression or finds empty text.
    """
    if name not in SPLITTERS:
        raise RewardError(f"Unknown splitter '{name}'.{nearest(name, SPLITTERS)}", fix=f"Use {', '.join(SPLITTERS)}.")
    if marker is None:
        return SPLITTERS[name]
    if name != "marked":
        raise RewardError(f"The splitter '{name}' takes no marker.", fix='Set splitter = "marked", or leave the marker out.')
    try:
        pattern = re.compile(marker, re.MULTILINE)
    except re.error as error:
        raise RewardError(
            f"marker {marker!r}: not a regular expression: {error}.", fix="Escape signs that are meant as they are."
        ) from error
    if pattern.search("") is not None:
        raise RewardError(f"marker {marker!r}: it finds empty text, so every place would be a mark.", fix="Name what a mark looks like.")
    return by_pattern(pattern, marker_place)


def split(completion: Completion, decode: Decode, ends: Ends = lines) -> list[Step]:
    """A completion's steps; see the module.

    Args:
        completion: at least one token.
        decode: token ids → text.
        ends: a splitter.
    """
    return split_tokens(completion.tokens, decode, ends, stopped=completion.finish_reason == "stop")


def split_tokens(tokens: Sequence[int], decode: Decode, ends: Ends = lines, *, stopped: bool) -> list[Step]:
    """As `split`, of bare tokens; `stopped`: the last of them is the stop token, which is no text.

    Returns:
        At least one step; ends rise, and the last is the last token.
    """
    body = tokens[: len(tokens) - stopped]
    texts = pieces(body, decode)
    places = list(accumulate(map(len, texts)))
    steps: list[Step] = []
    start = at = 0
    for end in [*ends("".join(texts)), None]:
        if end is None:
            token = len(body) - 1
        else:
            while at < len(body) and places[at] < end:
                at += 1
            token = at
        text = "".join(texts[start : token + 1])
        if text.strip():
            steps.append(Step(token, text.strip()))
        elif steps and text:
            steps[-1] = Step(token, steps[-1].text)
        else:
            continue
        start = token + 1
    last = len(tokens) - 1
    return [*steps[:-1], Step(last, steps[-1].text)] if steps else [Step(last, "")]


def pieces(tokens: Sequence[int], decode: Decode) -> list[str]:
    """What each token adds to the text; a character that takes several tokens is the last one's. They concatenate to the whole text."""
    whole = decode(tokens) if tokens else ""
    alone = {token: decode((token,)) for token in set(tokens)}
    if "".join(out := [alone[token] for token in tokens]) == whole:
        return out
    if "".join(out := _by_windows(tokens, decode)) == whole:
        return out
    return _by_prefixes(tokens, decode, whole)


def _by_windows(tokens: Sequence[int], decode: Decode) -> list[str]:
    """What each adds to the text of the few before it; for parts of characters, and spaces that depend on the token before."""
    out: list[str] = []
    whole = deque([0], maxlen=WINDOW)  # the last places before which no character is in parts
    before = ""
    for t in range(len(tokens)):
        now = decode(tokens[whole[0] : t + 1])
        if (now.endswith(CUT) and t < len(tokens) - 1) or not now.startswith(before):
            out.append("")
            continue
        out.append(now[len(before) :])
        whole.append(t + 1)
        before = decode(tokens[whole[0] : t + 1])
    return out


def _by_prefixes(tokens: Sequence[int], decode: Decode, whole: str) -> list[str]:
    """What each adds to the text of all before it, as far as the whole has it too; exact for any tokenizer, in quadratic time."""
    lengths = [_shared(decode(tokens[: t + 1]), whole) for t in range(len(tokens) - 1)] + [len(whole)]
    lengths = list(accumulate(lengths, max))
    return [whole[start:end] for start, end in zip([0, *lengths], lengths, strict=False)]


def _shared(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    for i, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return i
    return min(len(one), len(other))
