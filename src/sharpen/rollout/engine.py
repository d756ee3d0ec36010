"""What a rollout engine is: prompts in, sampled token ids with their log-probabilities out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from sharpen.records import FinishReason


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How completions are sampled.

    Attributes:
        max_new_tokens: the limit of a completion, in tokens.
        temperature: logits are divided by it; 0 is greedy (for evaluation only).
        top_p: nucleus share; below 1 for evaluation only, since the trainer's log-probabilities are of the whole distribution.
    """

    max_new_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0


class Sampled(NamedTuple):
    """One completion as the engine gives it: ids (the stop id included), log π of each at the temperature, and why it ended."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: FinishReason


class Engine(Protocol):
    """Samples G completions of each prompt."""

    def sample(
        self,
        prompts: Sequence[tuple[int, ...]],
        seeds: Sequence[Sequence[int]],
        sampling: Sampling,
        on_progress: Callable[[int], None] | None = None,
    ) -> list[list[Sampled]]:
        """Sample completions.

        Args:
            prompts: token ids, P of them.
            seeds: for each prompt, one seed a completion; a completion depends on its prompt, its seed and the weights alone.
            sampling: limits and temperature.
            on_progress: called with the number of completions that have just finished.

        Returns:
            For each prompt its completions, in the order of its seeds.
        """
        ...
