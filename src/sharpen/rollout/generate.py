"""Sampling by transformers' own `generate`, for models that have no forward pass of ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from sharpen.rollout import sampler
from sharpen.rollout.engine import Sampled, Sampling


class Generate:
    """See `sharpen.rollout.engine.Engine`.

    Args:
        module: a Hugging Face causal language model.
        stop_ids: a completion ends at the first of these.
        max_rows: completions sampled at once.
    """

    def __init__(self, module: Any, stop_ids: frozenset[int], max_rows: int) -> None:
        self.module, self.stop_ids, self.max_rows = module, stop_ids, max_rows

    def sample(
        self, prompts: Sequence[tuple[int, ...]], seeds: Sequence[Sequence[int]], sampling: Sampling, tell: Callable[[int], None]
    ) -> list[list[Sampled]]:
        """See `sharpen.rollout.engine.Engine.sample`."""
        rows = [(p, seed) for p, group in enumerate(seeds) for seed in group]
        out: list[list[Sampled]] = [[] for _ in prompts]
        was_training = self.module.training
        self.module.eval()
        try:
            for start in range(0, len(rows), self.max_rows):
                batch = rows[start : start + self.max_rows]
                for (p, _), one in zip(batch, self._batch([prompts[p] for p, _ in batch], [s for _, s in batch], sampling), strict=True):
                    out[p].append(one)
                tell(len(batch))
        finally:
            self.module.train(was_training)
        return out

    def _batch(self, prompts: list[tuple[int, ...]], seeds: list[int], sampling: Sampling) -> list[Sampled]:
        """One completion of each prompt."""
        from transformers import GenerationConfig, LogitsProcessorList

        device, width = next(self.module.parameters()).device, max(map(len, prompts))
        tokens = torch.tensor([[0] * (width - len(prompt)) + list(prompt) for prompt in prompts], device=device)
        mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=device)
        chooser = _Chooser(sampler.uniforms(seeds, sampling.max_new_tokens).to(device), sampling)
        config = GenerationConfig(
            max_new_tokens=sampling.max_new_tokens,
            do_sample=False,  # the chooser has chosen
            eos_token_id=sorted(self.stop_ids) or None,
            pad_token_id=0,
        )
        written = self.module.generate(
            tokens, attention_mask=mask, generation_config=config, logits_processor=LogitsProcessorList([chooser])
        )[:, width:].tolist()
        logprobs = torch.stack(chooser.logprobs, dim=1).tolist()
        return [self._sampled(ids, row) for ids, row in zip(written, logprobs, strict=True)]

    def _sampled(self, ids: list[int], logprobs: list[float]) -> Sampled:
        end = next((i + 1 for i, token in enumerate(ids) if token in self.stop_ids), None)
        length = len(ids) if end is None else end
        return Sampled(tuple(ids[:length]), tuple(logprobs[:length]), "length" if end is None else "stop")


class _Chooser:
    """Chooses each row's token from its own random numbers, and leaves `generate` no other choice."""

    def __init__(self, draws: Tensor, sampling: Sampling) -> None:
        self.draws, self.sampling = draws, sampling
        self.logprobs: list[Tensor] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        tokens, logprobs = sampler.choose(scores, self.draws[:, len(self.logprobs)], self.sampling)
        self.logprobs.append(logprobs)
        return torch.full_like(scores, -torch.inf).scatter_(1, tokens[:, None], 0.0)
