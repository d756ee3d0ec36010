"""Sampling a completion step by step: a step ends at a token that holds its separator, by default a line's end.

The engine that samples steps is one more `TorchEngine` on the same model, whose stop ids are the model's own and those of the separator: so
a step costs its own tokens and nothing is cut off afterwards. A blank line is a step of its own, unless its ends are one token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from sharpen.errors import ModelError
from sharpen.rollout.engine import Engine, Sampling
from sharpen.rollout.torch_engine import TorchEngine

State = Literal["open", "finished", "cut"]
"""Of a completion: it may go on; it has ended by itself; the limit has cut it."""


class Step(NamedTuple):
    """A sampled step: its tokens, the separator's or the stop token included, and what the completion is with it."""

    tokens: tuple[int, ...]
    state: State


def step_ends(tokenizer: Any, separator: str = "\n") -> frozenset[int]:
    """The ids of all tokens that hold the separator.

    Raises:
        ModelError: none does; only a separator that stands within one token can be stopped at.
    """
    ids = list(range(len(tokenizer)))
    texts = tokenizer.batch_decode([[i] for i in ids], skip_special_tokens=False)
    ends = frozenset(i for i, text in zip(ids, texts, strict=True) if separator in text)
    if not ends or not separator:
        raise ModelError(
            f"step separator {separator!r}: no token of '{tokenizer.name_or_path}' holds it.",
            fix="Give a separator that is part of one token, such as a line's end.",
        )
    return ends


class Stepper:
    """Samples next steps.

    Args:
        engine: stops at `stop_ids` and at the ends of steps.
        stop_ids: the model's own, that end a completion.
        max_step_tokens: limit of a step; one that reaches it ends there, and the next goes on in the middle of it.
        max_new_tokens: limit of a completion.
        temperature: of sampling.
        top_p: nucleus share.
    """

    def __init__(
        self,
        engine: Engine,
        stop_ids: Sequence[int],
        *,
        max_step_tokens: int,
        max_new_tokens: int,
        temperature: float = 1.0,
        top_p: float = 1.0,
    ) -> None:
        self.engine, self.stop_ids = engine, frozenset(stop_ids)
        self.max_step_tokens, self.max_new_tokens = min(max_step_tokens, max_new_tokens), max_new_tokens
        self.temperature, self.top_p = temperature, top_p

    @classmethod
    def of_model(cls, model: Any, tokenizer: Any, stop_ids: Sequence[int], *, separator: str, max_rows: int, **limits: Any) -> Stepper:
        """A stepper on a Hugging Face model; `limits` as in the class."""
        engine = TorchEngine(model, sorted({*stop_ids, *step_ends(tokenizer, separator)}), max_rows=max_rows)
        return cls(engine, stop_ids, **limits)

    def sample(
        self, prompts: Sequence[tuple[int, ...]], completions: Sequence[tuple[int, ...]], seeds: Sequence[Sequence[int]]
    ) -> list[list[Step]]:
        """Next steps of open completions, one a seed.

        Args:
            prompts: P of them.
            completions: what of each completion there is so far, shorter than `max_new_tokens`.
            seeds: of each, one a step.
        """
        out: list[list[Step]] = [[] for _ in prompts]
        limits = [min(self.max_step_tokens, self.max_new_tokens - len(completion)) for completion in completions]
        for limit in sorted(set(limits), reverse=True):  # all but those near the completion's limit have one limit, and so are one batch
            places = [p for p, own in enumerate(limits) if own == limit]
            sampling = Sampling(max_new_tokens=limit, temperature=self.temperature, top_p=self.top_p)
            contexts = [(*prompts[p], *completions[p]) for p in places]
            for p, group in zip(places, self.engine.sample(contexts, [seeds[p] for p in places], sampling), strict=True):
                out[p] = [Step(one.tokens, self._state(len(completions[p]), one.tokens)) for one in group]
        return out

    def _state(self, before: int, tokens: tuple[int, ...]) -> State:
        if tokens[-1] in self.stop_ids:
            return "finished"
        return "cut" if before + len(tokens) >= self.max_new_tokens else "open"
