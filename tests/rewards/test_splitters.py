"""Steps of a completion: where they end in the text, and at which tokens."""

from __future__ import annotations

import string
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from sharpen.errors import RewardError
from sharpen.records import Completion
from sharpen.rewards import splitters
from sharpen.rewards.settings import StepSettings
from sharpen.rewards.splitters import SPLITTERS, Step, pieces, split, split_tokens, splitter
from tiny import IM_END, tiny_tokenizer

CHARACTERS = tiny_tokenizer()


def bytes_tokenizer(*merges: tuple[str, str]) -> Tokenizer:
    """Byte-level: a Chinese character is three tokens, unless merged."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate([*alphabet, *("".join(pair) for pair in merges)])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=list(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def words_tokenizer() -> Tokenizer:
    """Sentencepiece's way: `▁and` is ` and` within a text and `and` at its beginning; what it lacks is written in bytes."""
    words = ["▁", "▁and", "▁so", "▁1", ".", "\n", "1", "a"]
    vocabulary = {token: i for i, token in enumerate([*(f"<0x{i:02X}>" for i in range(256)), *words])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], byte_fallback=True))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(content=" ", left=1)]
    )
    return tokenizer


BYTES = bytes_tokenizer(("Ċ", "Ċ"), (".", "Ċ"), ("Ġ", "T"), ("ä", "º"), ("ĊĊ", "ĊĊ"))
WORDS = words_tokenizer()


def by_characters(ids) -> str:
    return CHARACTERS.decode(list(ids), skip_special_tokens=False)


def by_bytes(ids) -> str:
    return BYTES.decode(list(ids))


def by_words(ids) -> str:
    return WORDS.decode(list(ids))


def completion(text: str, *, stopped: bool = True) -> Completion:
    ids = tuple(CHARACTERS(text, add_special_tokens=False)["input_ids"]) + ((IM_END,) if stopped else ())
    return Completion(tokens=ids, sampling_logprobs=(0.0,) * len(ids), text=text, finish_reason="stop" if stopped else "length")


def texts_of(name: str, text: str, **marker) -> list[str]:
    """The steps' texts, cut at the very character."""
    ends = [0, *splitter(name, **marker)(text), len(text)]
    return [part.strip() for start, end in pairwise(ends) if (part := text[start:end]).strip()]


# --- tokens --------------------------------------------------------------------------------------------------------------------------


def test_lines_are_steps_and_the_end_token_belongs_to_the_last() -> None:
    # a character a token: "1+1=2\n" is tokens 0 to 5, "2+2=4" tokens 6 to 10, and the stop token is 11
    assert split(completion("1+1=2\n2+2=4"), by_characters) == [Step(5, "1+1=2"), Step(11, "2+2=4")]


def test_without_a_boundary_there_is_one_step() -> None:
    for ends in SPLITTERS.values():
        assert split(completion("1+1=2"), by_characters, ends) == [Step(5, "1+1=2")]
        assert split(completion("1+1=2", stopped=False), by_characters, ends) == [Step(4, "1+1=2")]
        assert split(completion(""), by_characters, ends) == [Step(0, "")]
        assert split(completion("  \n \n\n"), by_characters, ends) == [Step(6, "")]


def test_an_unfinished_step_ends_where_the_limit_cut_it() -> None:
    assert split(completion("1+1=2\n2+", stopped=False), by_characters) == [Step(5, "1+1=2"), Step(7, "2+")]
    # cut right after a line's end: there is no unfinished step
    assert split(completion("1+1=2\n", stopped=False), by_characters) == [Step(5, "1+1=2")]


def test_blank_steps_join_the_one_before_and_leading_ones_the_first() -> None:
    assert split(completion("a\n\nb\n"), by_characters) == [Step(2, "a"), Step(5, "b")]
    assert split(completion("a\n\nb\n", stopped=False), by_characters) == [Step(2, "a"), Step(4, "b")]
    assert split(completion("\n\na\nb"), by_characters) == [Step(3, "a"), Step(5, "b")]


def test_a_token_with_two_ends_ends_one_step() -> None:
    ids = BYTES.encode("a\n\n\n\nb.\nc").ids
    assert [BYTES.id_to_token(i) for i in ids] == ["a", "ĊĊĊĊ", "b", ".Ċ", "c"]
    for name in ("lines", "sentences"):  # `.` and the line's end are two ends as well
        assert split_tokens(ids, by_bytes, splitter(name), stopped=False) == [Step(1, "a"), Step(3, "b."), Step(4, "c")]
    assert split_tokens(ids, by_bytes, splitter("blank_lines"), stopped=False) == [Step(1, "a"), Step(4, "b.\nc")]


def test_a_step_ends_at_the_token_that_holds_its_last_character() -> None:
    ids = BYTES.encode("No. Then").ids  # `ĠT` is one token, and begins the second sentence
    assert split_tokens(BYTES.encode("So. Then").ids, by_bytes, splitter("sentences"), stopped=False) == [Step(2, "So."), Step(6, "Then")]
    # A mark within a token: the token is that of the end before it, so its beginning is lost to the step that it begins.
    merged = bytes_tokenizer(("Ċ", "S"))
    ids = merged.encode("a\nStep 1\nStep 2").ids
    got = split_tokens(ids, lambda some: merged.decode(list(some)), splitter("marked"), stopped=False)
    assert got == [Step(1, "a\nS"), Step(7, "tep 1\nS"), Step(len(ids) - 1, "tep 2")]


def test_characters_of_several_tokens() -> None:
    text = "先算一。\n再算二！三"
    ids = BYTES.encode(text).ids
    assert len(ids) == 3 * 9  # three bytes a character, one for the line's end, and two of 二 are merged
    assert pieces(ids, by_bytes)[:6] == ["", "", "先", "", "", "算"]
    # 。 is tokens 9 to 11 and the line's end, token 12, joins it; 再算二！ has 3 + 3 + 2 + 3 tokens
    assert split_tokens(ids, by_bytes, splitter("sentences"), stopped=False) == [Step(12, "先算一。"), Step(23, "再算二！"), Step(26, "三")]


def test_spaces_that_depend_on_the_neighbour() -> None:
    ids = [WORDS.token_to_id(token) for token in ("▁and", "▁so", "▁1", "\n", "▁and", ".", "\n", "▁so")]
    assert by_words(ids) == "and so 1\n and.\n so"
    assert by_words(ids[1:2]) == "so"  # its space is lost when it stands alone
    assert pieces(ids, by_words) == ["and", " so", " 1", "\n", " and", ".", "\n", " so"]
    assert split_tokens(ids, by_words, stopped=False) == [Step(3, "and so 1"), Step(6, "and."), Step(7, "so")]


def test_bytes_that_are_no_characters() -> None:
    broken = [BYTES.token_to_id(token) for token in ("å", "a", "Ċ", "ħ", "å")]
    assert "".join(pieces(broken, by_bytes)) == by_bytes(broken)
    assert [step.end for step in split_tokens(broken, by_bytes, stopped=False)] == [2, 4]


def test_long_texts_are_decoded_in_windows() -> None:
    ids = BYTES.encode("数学" * 2000).ids
    longest = 0

    def decode(some) -> str:
        nonlocal longest
        longest = max(longest, len(some) if len(some) < len(ids) else 0)
        return by_bytes(some)

    assert "".join(pieces(ids, decode)) == "数学" * 2000
    assert longest <= 3 * (splitters.WINDOW + 1)


TEXTS = st.lists(st.sampled_from([*"ab1.!? \n\t:*)", "Step 1:", "ки", "\n\n", "。", "二", "e.g. ", "3.14"]), max_size=40).map("".join)


@pytest.mark.parametrize("name", SPLITTERS)
@given(text=TEXTS, stopped=st.booleans())
@settings(max_examples=150, deadline=None)
def test_steps_cover_all_tokens_once(name: str, text: str, stopped: bool) -> None:
    ids = [*BYTES.encode(text).ids, *([0] if stopped or not text else [])]
    stopped = stopped or not text
    steps = split_tokens(ids, by_bytes, splitter(name), stopped=stopped)
    ends = [step.end for step in steps]
    assert all(one < other for one, other in pairwise(ends))
    assert ends[0] >= 0
    assert ends[-1] == len(ids) - 1
    assert "".join("".join(step.text.split()) for step in steps) == "".join(text.split())
    assert all(step.text for step in steps) or not text.strip()


@given(ids=st.lists(st.integers(0, 263), max_size=24))
@settings(max_examples=200, deadline=None)
def test_pieces_are_the_whole_for_any_tokens(ids: list[int]) -> None:
    assert "".join(pieces(ids, by_words)) == by_words(ids)
    assert "".join(pieces([i % 261 for i in ids], by_bytes)) == by_bytes([i % 261 for i in ids])
    assert len(pieces(ids, by_words)) == len(ids)


# --- texts ---------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "steps",
    [
        ["One.", "Two!", "Three?", "Four"],
        ["It is 3.14 long.", "Then 2.5."],
        ["The sum is 5.", "Then 6."],
        ["Take fruit, e.g. Granny Smith, i.e. apples.", "Eat."],
        ["Dr. Lee and Mrs. Wu paid.", "See Fig. 2 and Eq. (3).", "No. 5 is odd.", "No.", "It is not."],
        ["In the U.S. Army he rose.", "It was 5 p.m.", "Then he ate etc.", "Then slept."],
        ["1, 2, ..., 9 are digits.", "Sum 1 + 2 + ... + n.", "Well...", "Yes."],
        ["5! = 120 and 4! * 5 too.", "Good."],
        ['He said "Go."', "Then (at last.)", "**Done.**", "End"],
        ["1. Add 2 and 3.", "Get 5.\n", "2) Stop.\n", "Step 3. End it."],
        ["They cost $3.", "He has $4.50.", "$x=3.$", "So"],
        ["7*3=21\n", "21+12=33\n", "Answer: 33"],
        ["First 先算。", "Then it is 5.", "再算。"],
    ],
)
def test_sentences(steps: list[str]) -> None:
    text = "".join(step if step.endswith("\n") else step + " " for step in steps)
    assert texts_of("sentences", text) == [step.strip() for step in steps]


@pytest.mark.parametrize(
    "steps",
    [["小明有3.5元。", "他用了2元！", "还剩多少？", "“1.5元。”", "对"], ["圆周率是3．14，面积是5．", "所以对。"], ["他说：「好。」", "完"]],
)
def test_chinese_sentences_need_no_space(steps: list[str]) -> None:
    assert texts_of("sentences", "".join(steps)) == steps


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("Let us see.\nStep 1: Add\n2. that\nStep 2: End", ["Let us see.", "Step 1: Add\n2. that", "Step 2: End"]),
        ("### Step 1\na\n**Step 2:** b", ["### Step 1\na", "**Step 2:** b"]),
        ("1. Add 3.5\n2) Take\n  3. End 4.\n4.5 is left", ["1. Add 3.5", "2) Take", "3. End 4.\n4.5 is left"]),
        ("a = 1 ки\nb = 2 ки\nStep 1: c ки", ["a = 1 ки", "b = 2 ки", "Step 1: c ки"]),
        ("ученики\nпроверки", ["ученики\nпроверки"]),
        ("步骤1：加\n步骤 2：减\n", ["步骤1：加", "步骤 2：减"]),
        ("第一步，加\n第二步，减", ["第一步，加", "第二步，减"]),
        ("no mark\nat all", ["no mark\nat all"]),
    ],
)
def test_marked(text: str, steps: list[str]) -> None:
    assert texts_of("marked", text) == steps


def test_a_marker_of_ones_own() -> None:
    assert texts_of("marked", "a <s> b <s> c", marker="<s>") == ["a", "<s> b", "<s> c"]
    assert texts_of("marked", "a <s> b <s> c", marker="<s>", marker_place="end") == ["a <s>", "b <s>", "c"]
    assert texts_of("marked", "a\n- b\n- c", marker="^- ") == ["a", "- b", "- c"]


def test_paragraphs() -> None:
    assert texts_of("blank_lines", "a\nb\n\nc\n \t\n\n\nd\n") == ["a\nb", "c", "d"]
    assert texts_of("blank_lines", "a\r\n\r\nb") == ["a", "b"]
    # a blank line of two tokens is the step's before it
    assert split(completion("a\n\nb"), by_characters, splitter("blank_lines")) == [Step(2, "a"), Step(4, "b")]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"name": "line"}, "Unknown splitter 'line'. Did you mean 'lines'"),
        ({"name": "lines", "marker": "x"}, "takes no marker"),
        ({"name": "marked", "marker": "("}, "not a regular expression"),
        ({"name": "marked", "marker": "x*"}, "finds empty text"),
    ],
)
def test_splitters_that_cannot_be(given: dict[str, str], said: str) -> None:
    with pytest.raises(RewardError, match=said):
        splitter(**given)
    recipe = {"splitter" if key == "name" else key: value for key, value in given.items()}
    with pytest.raises(ValueError, match=said):
        StepSettings(**recipe)


def test_every_printable_text_has_a_step() -> None:
    assert split(completion(string.printable[:95], stopped=False), by_characters)[-1].end == 94
