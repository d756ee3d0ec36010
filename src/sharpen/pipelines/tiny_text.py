"""What the tiny model reads and is shown: problems of the source `multi_step`, of its training split only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from sharpen.problems.multi_step import LEVELS, Item, draw
from sharpen.problems.templates import Template, render
from sharpen.streams import generator

ROW = 64
"""Tokens in a row of text."""

MISTAKES = 0.12
"""The share of wrong results in the demonstrations. The model errs as often as they do, though it has read how to do better: that is what
reinforcement learning can undo within minutes, as it does in models that have learned from what people write."""

_OFF_BY = (-10, -2, -1, 1, 2, 10)


def problems(seed: int, stream: str, *, mistakes: float = 0.0) -> Iterator[Item]:
    """Problems without end, a level after the other; none is held out.

    Args:
        seed: of the choice.
        stream: what they are for.
        mistakes: the share of steps whose result is wrong, and carried on.
    """
    slip = _slip(generator(seed, "tiny", stream, "mistakes"), mistakes) if mistakes else None
    levels = [draw(level, "train", generator(seed, "tiny", stream, level), slip) for level in LEVELS]
    while True:
        for level in levels:
            yield next(level)[1]


def text(tokenizer: Any, seed: int, rows: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Equations, a line each, in rows cut anywhere: the steps of problems without their questions and answers.

    A model learns to calculate several times as fast when it sees the equations alone first, where the numbers to be used stand beside the
    sign, than when it has to learn to find them in a question at the same time.

    Yields:
        Tokens [rows, ROW] and their loss mask; every token is learned.
    """
    source, held = problems(seed, "text"), list[int]()
    while True:
        while len(held) < rows * ROW:
            equations = next(source).solution.rpartition("\n")[0] + "\n"
            held += tokenizer(equations, add_special_tokens=False)["input_ids"]
        tokens = torch.tensor(held[: rows * ROW]).view(rows, ROW)
        held = held[rows * ROW :]
        yield tokens, torch.ones_like(tokens, dtype=torch.bool)


def demonstrations(tokenizer: Any, seed: int, rows: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Solved problems as chats, for supervised fine-tuning, with a mistake in some of the steps.

    Yields:
        Tokens [rows, longest] and their loss mask; the solution and the end token are learned, and the question is not.
    """
    source = problems(seed, "demonstrations", mistakes=MISTAKES)
    while True:
        chats = []
        for item in islice(source, rows):
            prompt = render(item.question, Template(), tokenizer)
            chats.append((prompt, [*tokenizer(item.solution, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]))
        width = max(len(prompt) + len(solution) for prompt, solution in chats)
        tokens = torch.full((rows, width), tokenizer.pad_token_id)
        mask = torch.zeros(rows, width, dtype=torch.bool)
        for row, (prompt, solution) in enumerate(chats):
            end = len(prompt) + len(solution)
            tokens[row, :end] = torch.tensor([*prompt, *solution])
            mask[row, len(prompt) : end] = True
        yield tokens, mask


def _slip(random: Any, mistakes: float) -> Callable[[int], int]:
    def slip(value: int) -> int:
        return value if random.random() >= mistakes else max(0, value + int(random.choice(_OFF_BY)))

    return slip
