"""The built-in reward functions.

A reward function is any callable

    fn(prompts: list[str], completions: list[str], **columns) -> list[float | None]

with one value a completion, None where it has no say; it may be a coroutine function. The columns are lists too: `answer` (the ground
truth), `problem_id`, `verdict` (the problem's own grader: right, wrong, unscorable), `finish_reason` (stop, length), `completion_ids`
(the token ids) and every key of the problems' `meta`. A function takes the columns that it names, and all with `**columns`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sharpen.errors import RewardError

Rewards = Sequence[float | None]
RewardFunction = Callable[..., Any]

COLUMNS = ("prompts", "completions", "completion_ids", "finish_reason", "answer", "problem_id", "verdict")
"""What every reward function may ask for, beside the keys of `meta`."""

_TAGS = ("<think>", "</think>", "<answer>", "</answer>")
_THINK_THEN_ANSWER = re.compile(r"\s*<think>.*</think>\s*<answer>.*</answer>\s*", re.DOTALL)


def accuracy(*, verdict: Sequence[str], finish_reason: Sequence[str], require_stop: bool = False) -> Rewards:
    """1 for a right answer and 0 for a wrong one; None where it cannot be judged.

    The accuracy reward of DeepSeek-R1-Zero (arXiv:2501.12948 §2.2.2).

    Args:
        verdict: the grader's, one a completion.
        finish_reason: one a completion.
        require_stop: a right answer counts only if its completion ended by itself; one cut at the length limit is worth 0.
    """
    worth = {"right": 1.0, "wrong": 0.0, "unscorable": None}
    rewards = [worth[one] for one in verdict]
    if require_stop:
        cut = [reason != "stop" for reason in finish_reason]
        rewards = [0.0 if reward and late else reward for reward, late in zip(rewards, cut, strict=True)]
    return rewards


def format_think(*, completions: Sequence[str], opened: bool = False) -> Rewards:
    """1 for `<think>…</think>` followed by `<answer>…</answer>`, each tag exactly once and nothing but space outside; else 0.

    The format reward of DeepSeek-R1-Zero (arXiv:2501.12948 §2.2.2 and Table 1).

    Args:
        completions: the texts.
        opened: the prompt's template ends in `<think>`, so a completion begins inside.
    """
    return [float(_is_think_then_answer("<think>" + text if opened else text)) for text in completions]


def finished(*, finish_reason: Sequence[str]) -> Rewards:
    """1 for a completion that ended by itself, 0 for one cut at the length limit."""
    return [float(reason == "stop") for reason in finish_reason]


def overlong(*, completion_ids: Sequence[Sequence[int]], limit: int, cache: int) -> Rewards:
    """DAPO's soft penalty for length: 0 up to `limit - cache` tokens, from there down in a line to -1 at `limit` and beyond.

    Source: DAPO (arXiv:2503.14476) Eq. 13. With limit 100 and cache 20: 80 tokens 0, 81 -0.05, 90 -0.5, 100 -1, 110 -1.

    Args:
        completion_ids: the token ids of each.
        limit: in tokens.
        cache: tokens before the limit in which the penalty grows.

    Raises:
        RewardError: a cache below 1 or above the limit.
    """
    if not 1 <= cache <= limit:
        raise RewardError(f"Reward function 'overlong': expected a cache of 1 to {limit} tokens, got {cache}.", fix="Set its parameters.")
    return [-min(1.0, max(0.0, (len(ids) - (limit - cache)) / cache)) for ids in completion_ids]


def boxed(*, completions: Sequence[str]) -> Rewards:
    r"""1 for a completion with an answer in `\boxed{…}`, its braces closed and something inside; else 0."""
    return [float(_has_box(text)) for text in completions]


BUILT_IN: Mapping[str, RewardFunction] = {
    "accuracy": accuracy,
    "boxed": boxed,
    "finished": finished,
    "format_think": format_think,
    "overlong": overlong,
}


def _is_think_then_answer(text: str) -> bool:
    return all(text.count(tag) == 1 for tag in _TAGS) and _THINK_THEN_ANSWER.fullmatch(text) is not None


def _has_box(text: str) -> bool:
    for box in re.finditer(r"\\boxed\s*\{", text):
        depth = 1
        for end in re.finditer(r"\\.|[{}]", text[box.end() :], re.DOTALL):
            depth += {"{": 1, "}": -1}.get(end[0], 0)
            if depth == 0:
                if text[box.end() : box.end() + end.start()].strip():
                    return True
                break
    return False
