"""Log-probabilities of chosen tokens from hidden states, without keeping the logits for the backward pass."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sharpen.ops import checks

CACHED = 2**20  # entries of logits in float32 that a processor's cache holds, 4 MiB


def from_logits(logits: Tensor, targets: Tensor, *, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
    """Log-probabilities of the targets and the entropies, at a temperature.

    Args:
        logits: [N, V].
        targets: int64 [N].
        temperature: > 0; logits are divided by it.

    Returns:
        log π(target) [N], with gradient, and the entropy [N] in nats, without. In float32 at least.
    """
    checks.rank(2, logits=logits)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32)) / temperature
    full = logits.log_softmax(dim=-1)
    with torch.no_grad():
        entropy = -(full.exp() * full).nan_to_num(0.0).sum(dim=-1)
    return full.gather(1, targets[:, None]).squeeze(1), entropy


def through_head(
    hidden: Tensor, head: Tensor, targets: Tensor, *, temperature: float = 1.0, rows: int = 512, chunk: int | None = None
) -> tuple[Tensor, Tensor]:
    """As `from_logits(hidden @ head.T, ...)`, in chunks of rows; only the probabilities are kept for the backward pass.

    The backward pass writes the logits' gradient over them, so it can be taken once; autograd refuses a second time.

    Args:
        hidden: [N, H].
        head: [V, H], the language-model head's weight.
        targets: int64 [N].
        temperature: > 0.
        rows: of logits that one product makes.
        chunk: rows of logits that are held in float32 at a time; left out, so many as a processor's cache holds.

    Returns:
        log π(target) [N], with gradient to `hidden` and `head`, and the entropy [N] in nats, without.
    """
    checks.rank(2, hidden=hidden, head=head)
    if not len(hidden):
        return hidden.sum(dim=1).float(), hidden.detach().sum(dim=1).float()
    chunk = chunk or max(1, (CACHED if hidden.device.type == "cpu" else 16 * CACHED) // len(head))
    chosen, entropy = _ThroughHead.apply(hidden, head, targets, temperature, rows, chunk)  # type: ignore[no-untyped-call]
    return chosen, entropy


class _ThroughHead(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, head: Tensor, targets: Tensor, temperature: float, rows: int, chunk: int
    ) -> tuple[Tensor, Tensor]:
        # Kept in the head's type, to which the logits' gradient is rounded too.
        kept = head.new_empty(len(hidden), len(head)) if any(ctx.needs_input_grad) else None
        parts = []
        for start in range(0, len(hidden), rows):
            part = slice(start, start + rows)
            logits = torch.mm(hidden[part], head.T, out=None if kept is None else kept[part])
            for few in range(0, len(logits), chunk):
                probabilities = logits[few : few + chunk]  # written over the logits
                parts.append(_chosen(probabilities, targets[part][few : few + chunk], temperature, kept is not None))
        chosen, entropy = (torch.cat(part) for part in zip(*parts, strict=True))
        # The target's 1 - p is made of its log-probability, for in bfloat16 it would be lost near 1.
        ctx.save_for_backward(hidden, head, targets, kept, -torch.expm1(chosen))
        ctx.temperature, ctx.chunk = temperature, chunk
        ctx.mark_non_differentiable(entropy)
        return chosen, entropy

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        hidden, head, targets, d_logits, others = ctx.saved_tensors
        grad = grads[0] / ctx.temperature
        for start in range(0, len(hidden), ctx.chunk):  # in float32 by chunks, for a product of two types is slow
            rows = slice(start, start + ctx.chunk)
            wide = d_logits[rows].to(grad.dtype).mul_(-grad[rows, None])
            d_logits[rows] = wide.scatter_(1, targets[rows, None], (others * grad)[rows, None])
        d_hidden = d_logits @ head if ctx.needs_input_grad[0] else None
        d_head = d_logits.T @ hidden if ctx.needs_input_grad[1] else None
        return d_hidden, d_head, None, None, None, None


def _chosen(logits: Tensor, targets: Tensor, temperature: float, keep: bool) -> tuple[Tensor, Tensor]:
    """Log π(target) [n] and the entropy [n] of logits [n, V], over which the probabilities are written when they are to be kept."""
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    full = (wide if temperature == 1.0 else wide / temperature).log_softmax(dim=-1)
    probabilities = full.exp()
    chosen = full.gather(1, targets[:, None]).squeeze(1)
    entropy = -torch.linalg.vecdot(probabilities, full.clamp_(min=torch.finfo(full.dtype).min))  # log 0 is -∞, and its p is 0
    if keep:
        logits.copy_(probabilities)
    return chosen, entropy
