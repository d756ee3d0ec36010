"""Figures of completions, worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from sharpen.evaluation.behaviours import Behaviours, Figure, figures, reflective_words, sums_of_numbers, sums_of_texts


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Wait, let me check.", 2),
        ("WAIT: a mistake? However, alternatively, retry and recheck.", 6),
        ("a waiter unchecked, checkmate, checksum, check_sum, check2", 0),
        ("double-check this", 1),
        ("等等，这里不对，重新验算一下", 4),
        ("我们check一下wait", 2),
        ("try again, then start over", 2),
        ("The answer is 42.", 0),
        ("", 0),
    ],
)
def test_reflective_words_are_whole_in_english_and_anywhere_in_chinese(text: str, count: int) -> None:
    assert reflective_words(text) == count


def row(**given: Any) -> dict[str, Any]:
    usual = {
        "group_id": "1/0/0", "level": "2", "correct": True, "reward": 1.0, "finish_reason": "stop", "length": 4, "answer": "4",
        "completion": "Wait, 2 + 2 is 4", "tokens": [1, 2, 3, 4], "sampling_logprobs": [-0.5, -0.5, -1.0, -2.0],
    }  # fmt: skip
    return usual | given


def found(sums: Any) -> dict[tuple[str, str], tuple[float, int]]:
    return {(one.measure, one.of): (one.value, one.count) for one in figures(sums, "training", 1)}


def test_numbers() -> None:
    cut = {"correct": False, "reward": 0.0, "finish_reason": "length", "length": 10, "answer": None}
    rows = [
        row(),
        row(**cut),
        row(group_id="1/1/0", level="10", length=6),
        row(group_id="1/1/0", level="10", reward=None),
        row(group_id="1/2/0", level=None, **cut),
        row(group_id="1/2/0", level=None, **cut),
    ]
    figure = found(sums_of_numbers(rows))
    assert figure["accuracy", "all"] == (0.5, 6)
    assert figure["accuracy", "level 2"] == (0.5, 2)
    assert figure["accuracy", "level 10"] == (1.0, 2)
    assert (figure["accuracy", "finished"], figure["accuracy", "cut"]) == ((1.0, 3), (0.0, 3))
    assert figure["length", "all"] == (44 / 6, 6)
    assert figure["length", "right"] == (14 / 3, 3)
    assert figure["length", "wrong"] == (10.0, 3)
    assert figure["cut", "wrong"] == (1.0, 3)
    assert figure["no_answer", "all"] == (0.5, 6)
    # of three groups, one differs, one has one scorable reward and is right, one is equal and wrong
    assert figure["zero_variance", "all"] == (pytest.approx(2 / 3), 3)
    assert figure["zero_variance", "right"] == figure["zero_variance", "wrong"] == (pytest.approx(1 / 3), 3)
    assert ("zero_variance", "all") not in found(sums_of_numbers(rows, groups=False))


def test_texts() -> None:
    rows = [
        row(),
        row(
            correct=False, length=30, tokens=[7, 8] * 15, completion="这是一个完全用中文写的推理过程", sampling_logprobs=[float("nan")] * 30
        ),
        row(correct=False, length=0, tokens=[], completion="", sampling_logprobs=[]),
    ]
    figure = found(sums_of_texts(rows, language="en", formats=[lambda text: "4" in text]))
    assert figure["reflective_words", "right"] == (1.0, 1)
    assert figure["reflective_words", "all"] == (1 / 3, 3)
    assert figure["reflective_rate", "all"] == (pytest.approx(1000 / 34), 34)
    assert figure["entropy", "all"] == (1.0, 4)  # 0.5 + 0.5 + 1 + 2 over four tokens; NaN was not sampled
    assert figure["format_errors", "all"] == (2 / 3, 3)
    assert figure["other_language", "right"] == (0.0, 1)
    assert figure["other_language", "wrong"] == (1.0, 1)  # an empty chain of thought is in no language
    assert figure["repetition", "wrong"] == (pytest.approx(9 / 11 / 2), 2)  # of eleven 20-grams, two are different
    assert ("entropy", "all") not in found(sums_of_texts(rows, language="en", sampled=False))
    assert ("format_errors", "all") not in found(sums_of_texts(rows, language="en"))


def test_levels_are_in_the_order_of_their_numbers() -> None:
    names = ["level 10", "level 2", "all", "level hard"]
    kept = Behaviours(figures=tuple(Figure(place="training", step=1, measure="accuracy", of=name, value=0.5, count=2) for name in names))
    assert kept.levels() == ["level 2", "level 10", "level hard"]
    assert kept.series("accuracy", "level 2") == {1: (0.5, 2)}
    assert kept.series("accuracy", "level 2", "held-out") == {}
