"""The peer of `train_step.py`: one GRPO update as most trainers make it, with every sequence padded.

A sequence is `[prompt, padded on the left | completion]`, and each reads its own prompt. Micro-batches of whole sequences;
log-probabilities by `log_softmax` over the completion's positions alone; the reference without gradient; one AdamW step in the weights'
own type.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


class PaddedStep:
    """A model, its frozen copy and its optimiser.

    Args:
        model: a Hugging Face causal language model; trained in place.
        micro_batch: sequences of one forward pass.
        beta: of the KL term; 0 leaves the reference out.
        learning_rate: of AdamW.
    """

    def __init__(self, model: Any, *, micro_batch: int, beta: float, learning_rate: float) -> None:
        self.model, self.micro_batch, self.beta = model, micro_batch, beta
        self.reference = copy.deepcopy(model).requires_grad_(False) if beta else None
        self.adam = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.0, fused=True)

    def update(self, prompts: Sequence[tuple[int, ...]], completions: Sequence[Sequence[tuple[int, ...]]], rewards: Tensor) -> float:
        """One update; the gradient norm before clipping.

        Args:
            prompts: P of them.
            completions: P groups of G, all of one length.
            rewards: float [P, G].
        """
        device = self.model.device
        width = max(len(p) for p in prompts)
        rows = [(p, c) for p, group in zip(prompts, completions, strict=True) for c in group]
        ids = torch.tensor([(0,) * (width - len(p)) + p + c for p, c in rows], device=device)
        mask = torch.tensor([(0,) * (width - len(p)) + (1,) * (len(p) + len(c)) for p, c in rows], device=device)
        spread = rewards.std(dim=1, keepdim=True)
        advantages = ((rewards - rewards.mean(dim=1, keepdim=True)) / (spread + 1e-4)).flatten().to(device)
        new = len(rows[0][1])
        for start in range(0, len(rows), self.micro_batch):
            part = slice(start, start + self.micro_batch)
            self._backward(ids[part], mask[part], advantages[part], new, len(rows))
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.adam.step()
        self.adam.zero_grad(set_to_none=True)
        return float(norm)

    def _backward(self, ids: Tensor, mask: Tensor, advantages: Tensor, new: int, total: int) -> None:
        reference = None
        if self.reference is not None:
            with torch.no_grad():
                reference = logprobs(self.reference, ids, mask, new)
        current = logprobs(self.model, ids, mask, new)
        ratio = (current - current.detach()).exp()
        weighted = advantages[:, None]
        loss = -torch.minimum(ratio * weighted, ratio.clamp(0.8, 1.2) * weighted)
        if reference is not None:
            gap = reference - current
            loss = loss + self.beta * (gap.exp() - gap - 1)
        (loss.mean(dim=1).sum() / total).backward()


def logprobs(model: Any, ids: Tensor, mask: Tensor, new: int) -> Tensor:
    """log π of each completion token, float32 [B, T]; only its positions go through the language-model head."""
    positions = (mask.cumsum(dim=1) - 1).clamp(min=0)
    out = model(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=False, logits_to_keep=new + 1)
    chosen = out.logits[:, :-1].log_softmax(dim=-1).gather(2, ids[:, -new:, None]).squeeze(2)
    return chosen.float()
