from __future__ import annotations

import pytest

from sharpen.errors import RewardError
from sharpen.rewards.functions import accuracy, boxed, finished, format_think, overlong, repetition


def test_accuracy_follows_the_grader():
    assert accuracy(verdict=["right", "wrong", "unscorable"], finish_reason=["stop", "stop", "stop"]) == [1.0, 0.0, None]


def test_accuracy_can_ask_that_a_completion_ends_by_itself():
    verdict = ["right", "right", "wrong", "unscorable", "wrong"]
    finish_reason = ["stop", "length", "length", "length", "stop"]
    assert accuracy(verdict=verdict, finish_reason=finish_reason, require_stop=True) == [1.0, 0.0, 0.0, None, 0.0]
    assert accuracy(verdict=verdict, finish_reason=finish_reason) == [1.0, 1.0, 0.0, None, 0.0]


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        ("<think>3 + 5</think><answer>8</answer>", 1.0),
        ("\n<think>\n3 + 5\n</think>\n\n<answer>\n8\n</answer>\n", 1.0),
        ("<think></think><answer></answer>", 1.0),
        ("", 0.0),
        ("8", 0.0),
        ("<answer>8</answer>", 0.0),
        ("<think>3 + 5</think>8", 0.0),
        ("<think>3 + 5<answer>8</answer>", 0.0),  # never closed
        ("<answer>8</answer><think>3 + 5</think>", 0.0),  # the wrong way round
        ("<think>3<answer>8</answer></think>", 0.0),  # inside
        ("<think>3</think><think>5</think><answer>8</answer>", 0.0),  # thinks twice
        ("<think>3</think><answer>7</answer><answer>8</answer>", 0.0),  # answers twice
        ("<think>I write <answer> now</think><answer>8</answer>", 0.0),
        ("So: <think>3 + 5</think><answer>8</answer>", 0.0),  # text before
        ("<think>3 + 5</think> so <answer>8</answer>", 0.0),  # between
        ("<think>3 + 5</think><answer>8</answer> done", 0.0),  # after
        ("<Think>3 + 5</Think><answer>8</answer>", 0.0),
        ("<think>" * 5000 + "</think>" * 5000, 0.0),
    ],
)
def test_format_think(text, reward):
    assert format_think(completions=[text]) == [reward]


def test_format_think_after_a_template_that_opens_the_tag():
    texts = ["3 + 5</think><answer>8</answer>", "<think>3 + 5</think><answer>8</answer>"]
    assert format_think(completions=texts, opened=True) == [1.0, 0.0]
    assert format_think(completions=texts) == [0.0, 1.0]


def test_finished():
    assert finished(finish_reason=["stop", "length", "stop"]) == [1.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        (r"so \boxed{8}", 1.0),
        (r"\boxed{\frac{1}{2}}", 1.0),
        (r"\boxed {8}", 1.0),
        (r"\boxed{\{1,2\}}", 1.0),  # escaped braces are no braces
        (r"\boxed{} then \boxed{8}", 1.0),
        (r"\boxed{\boxed{8}", 1.0),  # the inner one is closed
        (r"\boxed{8", 0.0),
        (r"\boxed{\frac{1}{2}", 0.0),
        (r"\boxed{ }", 0.0),
        (r"\boxed 8", 0.0),
        ("boxed{8}", 0.0),
        ("", 0.0),
    ],
)
def test_boxed(text, reward):
    assert boxed(completions=[text]) == [reward]


@pytest.mark.parametrize(("length", "penalty"), [(80, 0.0), (81, -0.05), (90, -0.5), (100, -1.0), (110, -1.0)])
def test_the_penalty_for_length_is_soft(length, penalty):
    assert overlong(completion_ids=[[1] * length], limit=100, cache=20) == [pytest.approx(penalty)]


def test_a_cache_of_nothing_is_refused():
    with pytest.raises(RewardError, match="expected a cache of 1 to 100 tokens, got 0"):
        overlong(completion_ids=[[1]], limit=100, cache=0)


@pytest.mark.parametrize(
    ("ids", "n", "penalty"),
    [
        ([7, 8, 7, 8, 7], 2, -0.5),  # 78 87 78 87: two of four are different
        ([7, 7, 7, 7], 2, -2 / 3),  # 77 three times
        ([1, 2, 3, 4], 2, 0.0),
        ([1, 2, 1, 2], 1, -0.5),
        ([5] * 20, 20, 0.0),  # one n-gram
        ([5] * 21, 20, -0.5),
        ([5] * 19, 20, 0.0),  # none
        ([], 20, 0.0),
    ],
)
def test_repetition_is_penalised_by_its_share_of_n_grams(ids, n, penalty):
    assert repetition(completion_ids=[ids], n=n) == [pytest.approx(penalty)]


def test_n_grams_of_nothing_are_refused():
    with pytest.raises(RewardError, match="expected n of at least 1 token, got 0"):
        repetition(completion_ids=[[1]], n=0)
