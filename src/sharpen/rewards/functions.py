"""The built-in reward functions.

A reward function is any callable

    fn(prompts: list[str], completions: list[str], **columns) -> list[float | None]

with one value a completion, None where it has no say; it may be a coroutine function. The columns are lists too: `answer` (the ground
truth), `problem_id`, `verdict` (the problem's own grader: right, wrong, unscorable), `finish_reason` (stop, length), `prompt_ids` and
`completion_ids` (the token ids) and every key of the problems' `meta`. A function takes the columns that it names, and all with
`**columns`. Beside the columns there are `trainer_state`, `log_extra` and `log_metric` (`sharpen.rewards.beside`). These are the names and
shapes of TRL, whose reward functions are taken as they are where prompts and completions are plain text. `model`, a reward model, is in
`sharpen.rewards.learned`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sharpen.errors import RewardError
from sharpen.rewards.language import share

Rewards = Sequence[float | None]
RewardFunction = Callable[..., Any]

COLUMNS = ("prompts", "completions", "prompt_ids", "completion_ids", "finish_reason", "answer", "problem_id", "verdict")
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


def language(*, completions: Sequence[str], target: str = "en") -> Rewards:
    """The share of the words of each chain of thought that are in the target language: the language consistency reward of DeepSeek-R1.

        reward = words in the target language / words

    Source: arXiv:2501.12948 §2.3.2. `sharpen.rewards.language` says what a word is and how its language is told. A chain of symbols alone
    is worth 1, an empty one 0.

    Args:
        completions: the texts.
        target: the language by its two letters (ISO 639-1), such as `en` or `zh`.

    Raises:
        RewardError: an unknown language.
        MissingPackageError: py3langid is not installed.
    """
    return [share(text, target) for text in completions]


def repetition(*, completion_ids: Sequence[Sequence[int]], n: int = 20) -> Rewards:
    """A penalty for repeating oneself: minus the share of n-grams of tokens that were there before, from 0 down to almost -1.

        reward = -(1 - different n-grams / n-grams)

    This is seq-rep-n of Welleck et al. (arXiv:1908.04319 §6) with its sign turned round; a penalty on repeated n-grams against gaming a
    reward for length is that of arXiv:2502.03373. Fewer than n tokens have no n-gram: 0. With n = 2, tokens 7 8 7 8 7 have the n-grams 78,
    87, 78, 87, of which two are different: -0.5.

    Honest mathematics repeats itself in short: with n = 4 the solutions of MATH-500 lose 0.16 on average, with n = 20 0.008.

    Args:
        completion_ids: the token ids of each.
        n: tokens of an n-gram.

    Raises:
        RewardError: n below 1.
    """
    if n < 1:
        raise RewardError(f"Reward function 'repetition': expected n of at least 1 token, got {n}.", fix="Set its parameters.")
    return [_repeated(ids, n) for ids in completion_ids]


def boxed(*, completions: Sequence[str]) -> Rewards:
    r"""1 for a completion with an answer in `\boxed{…}`, its braces closed and something inside; else 0."""
    return [float(_has_box(text)) for text in completions]


BUILT_IN: Mapping[str, RewardFunction] = {
    "accuracy": accuracy,
    "boxed": boxed,
    "finished": finished,
    "format_think": format_think,
    "language": language,
    "overlong": overlong,
    "repetition": repetition,
}


def _is_think_then_answer(text: str) -> bool:
    return all(text.count(tag) == 1 for tag in _TAGS) and _THINK_THEN_ANSWER.fullmatch(text) is not None


def _repeated(ids: Sequence[int], n: int) -> float:
    grams = len(ids) - n + 1
    return len({tuple(ids[start : start + n]) for start in range(grams)}) / grams - 1 if grams > 0 else 0.0


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
