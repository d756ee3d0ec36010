"""A toy policy over steps of two tokens, with known chances: what a search does on it can be worked out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sharpen.grading import Verdict
from sharpen.records import Problem
from sharpen.rollout.engine import Sampled, Sampling
from sharpen.search.judges import Reader
from sharpen.search.steps import Stepper
from sharpen.streams import generator

STOP, LINE = 0, 1
LETTERS = {STOP: "", LINE: "\n", 2: "a", 3: "b", 4: "c", 9: "?"}
A, B, C, PROMPT = 2, 3, 4, 9

Policy = Callable[[str], dict[int, float]]
"""The completion's text so far → the chance of each next token."""


class ToyEngine:
    """Samples from a policy; see `sharpen.rollout.engine.Engine`."""

    def __init__(self, policy: Policy, stops: Sequence[int]) -> None:
        self.policy, self.stops = policy, stops
        self.calls: list[tuple[int, int]] = []  # rows and limit of each
        self.generated = 0

    def sample(self, prompts, seeds, sampling: Sampling, on_progress=None) -> list[list[Sampled]]:
        self.calls.append((sum(map(len, seeds)), sampling.max_new_tokens))
        return [[self._one(prompt, seed, sampling) for seed in own] for prompt, own in zip(prompts, seeds, strict=True)]

    def _one(self, prompt: tuple[int, ...], seed: int, sampling: Sampling) -> Sampled:
        draw, tokens = generator(seed), []
        while len(tokens) < sampling.max_new_tokens and not (tokens and tokens[-1] in self.stops):
            chances = self.policy(decode(prompt[prompt.index(PROMPT) + 1 :]) + decode(tokens))
            ids = list(chances)
            if sampling.temperature == 0:
                tokens.append(max(ids, key=lambda i: chances[i]))
            else:
                tokens.append(int(draw.choice(ids, p=[chances[i] for i in ids])))
        self.generated += len(tokens)
        stopped = tokens[-1] in self.stops
        return Sampled(tuple(tokens), (-0.5,) * len(tokens), "stop" if stopped else "length")


def decode(tokens: Sequence[int]) -> str:
    return "".join(LETTERS[token] for token in tokens)


def lines(levels: int, chances: dict[int, float]) -> Policy:
    """`levels` lines of one letter each, all with the same chances, then the end."""

    def policy(text: str) -> dict[int, float]:
        if text.count("\n") == levels:
            return {STOP: 1.0}
        return {LINE: 1.0} if text and text[-1] != "\n" else chances

    return policy


def grade(problem: Problem, text: str) -> Verdict:
    """The answer is the text's letters; none for an empty text."""
    answer = text.replace("\n", "") or None
    return Verdict("right" if answer == problem.answer else "wrong", "compared", answer)


def problems(count: int, answer: str = "bbb") -> list[Problem]:
    return [Problem(id=f"p{i}", prompt="?", answer=answer, kind="exact") for i in range(count)]


def render(problem: Problem) -> tuple[int, ...]:
    return (PROMPT,)


def reader() -> Reader:
    return Reader(decode, [STOP], grade)


def stepper(policy: Policy, *, max_step_tokens: int = 4, max_new_tokens: int = 12) -> Stepper:
    return Stepper(ToyEngine(policy, [STOP, LINE]), [STOP], max_step_tokens=max_step_tokens, max_new_tokens=max_new_tokens)


def share_of_b(problem: Problem, prompt: tuple[int, ...], completions: Sequence[Sequence[int]]) -> list[float]:
    """The share of b among the letters."""
    texts = [decode(tokens).replace("\n", "") for tokens in completions]
    return [text.count("b") / len(text) if text else 0.0 for text in texts]
