"""Problems in, groups of completions out. Axes: P problems, G completions a group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sharpen.records import Completion, Group, Problem
from sharpen.rollout.engine import Engine, Sampled, Sampling
from sharpen.streams import derive


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """Samples groups for problems.

    Attributes:
        engine: what samples.
        tokenizer: a Hugging Face tokenizer, to turn ids into text.
        render: a problem's prompt tokens, template included.
        seed: the run's; each completion's stream is (seed, stream, step, group position, attempt, index).
    """

    engine: Engine
    tokenizer: Any
    render: Callable[[Problem], tuple[int, ...]]
    seed: int

    def sample(
        self,
        problems: Sequence[Problem],
        group_size: int,
        sampling: Sampling,
        *,
        stream: str = "rollout",
        step: int = 0,
        attempt: int = 0,
        first: int = 0,
        on_progress: Callable[[int], None] | None = None,
    ) -> list[Group]:
        """Sample G completions of each problem; the same problem twice makes two groups that draw apart.

        Args:
            problems: P of them.
            group_size: G.
            sampling: limits and temperature.
            stream: what the samples are for (`rollout`, `evaluation`, ...); each draws apart.
            step: of training, a part of the seeds and of the groups' ids.
            attempt: raised when groups of the same step are refilled.
            first: the position of the first problem, where these are a part of a longer list that is sampled piece by piece.
            on_progress: called with the number of completions that have just finished.
        """
        prompts = [self.render(problem) for problem in problems]
        seeds = [[derive(self.seed, stream, step, first + p, attempt, i) for i in range(group_size)] for p in range(len(problems))]
        sampled = self.engine.sample(prompts, seeds, sampling, on_progress)
        return [
            Group(
                id=f"{step}/{position}/{attempt}",
                problem=problem,
                prompt_tokens=prompt,
                completions=tuple(self._completion(one) for one in group),
            )
            for position, (problem, prompt, group) in enumerate(zip(problems, prompts, sampled, strict=True), start=first)
        ]

    def _completion(self, sampled: Sampled) -> Completion:
        text_ids = sampled.tokens[:-1] if sampled.finish_reason == "stop" else sampled.tokens
        return Completion(
            tokens=sampled.tokens,
            sampling_logprobs=sampled.logprobs,
            text=self.decode(text_ids),
            finish_reason=sampled.finish_reason,
        )

    def decode(self, ids: Sequence[int]) -> str:
        """Token ids as text, special tokens included."""
        text: str = self.tokenizer.decode(list(ids), skip_special_tokens=False)
        return text
