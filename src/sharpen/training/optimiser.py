"""AdamW or Adafactor with warm-up, a schedule and gradient clipping; a float32 master copy of weights that are held in bfloat16.

Of a master copy only what the weight lacks is kept, 16 bits an entry: a bfloat16 is the upper half of a float32.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

STATE = ("step", "exp_avg", "exp_avg_sq", "row_var", "col_var", "variance")  # of AdamW and of Adafactor
PART = 16 * 2**20  # entries whose float32 gradients and master copies exist at once
Schedule = Literal["constant", "linear", "cosine"]
Kind = Literal["adamw", "adafactor"]


def rate_factor(update: int, *, warmup: int, total: int, schedule: Schedule) -> float:
    """The share of the peak learning rate for this update, counted from 0: a linear rise over `warmup` updates, then the schedule.

    Args:
        update: 0 for the first.
        warmup: updates of the rise; the first has 1/warmup of the peak.
        total: updates of the whole run.
        schedule: `constant`, or `linear` or `cosine` down to 0 at `total`.
    """
    if update < warmup:
        return (update + 1) / warmup
    if schedule == "constant":
        return 1.0
    done = min(1.0, (update - warmup) / max(1, total - warmup))
    return 1.0 - done if schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * done))


class Optimiser:
    """An optimiser of PyTorch's over named parameters.

    Args:
        parameters: (name, parameter) pairs; shared ones once.
        learning_rate: the peak.
        kind: `adamw`, or `adafactor` (arXiv:1804.04235), which keeps a row's and a column's mean square of each matrix in place of two
            moments an entry, and takes the learning rate relative to the root mean square of each parameter.
        betas: of the moments.
        eps: of AdamW.
        weight_decay: decoupled.
        max_grad_norm: gradients of a larger norm are scaled down to it; infinity leaves them.
        warmup: updates.
        total: updates of the whole run.
        schedule: after the warm-up.
    """

    def __init__(
        self,
        parameters: Iterable[tuple[str, nn.Parameter]],
        *,
        learning_rate: float,
        kind: Kind = "adamw",
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        max_grad_norm: float = 1.0,
        warmup: int = 0,
        total: int = 1,
        schedule: Schedule = "constant",
    ) -> None:
        self.parameters = [(name, p) for name, p in parameters if p.requires_grad]
        self.lower = [torch.zeros(p.shape, dtype=torch.int16, device=p.device) if _is_narrow(p) else None for _, p in self.parameters]
        # What is updated: the parameter, or what is its master copy for the time of an update.
        self.updated = [torch.empty(0, device=p.device).requires_grad_() if _is_narrow(p) else p for _, p in self.parameters]
        self.learning_rate, self.max_grad_norm = learning_rate, max_grad_norm
        self.warmup, self.total, self.schedule = warmup, total, schedule
        self.updates = 0
        make: type[torch.optim.Optimizer] = torch.optim.AdamW if kind == "adamw" else torch.optim.Adafactor
        settings: dict[str, Any] = {"lr": learning_rate, "weight_decay": weight_decay}
        settings |= {"betas": betas, "eps": eps, "fused": True} if kind == "adamw" else {"foreach": False}
        parts = parts_of([p for _, p in self.parameters])
        self.parts = [(part, make([self.updated[i] for i in part], **settings)) for part in parts]

    @property
    def rate(self) -> float:
        """The learning rate of the next update."""
        return self.learning_rate * rate_factor(self.updates, warmup=self.warmup, total=self.total, schedule=self.schedule)

    @torch.no_grad()
    def step(self) -> float:
        """Update the weights from their gradients and drop those; the gradient norm before clipping.

        A gradient that is not finite makes the update void: the weights and moments stay as they are, and the norm tells. Where the
        weights are held in less than float32, float32 gradients exist of one part of the parameters at a time.
        """
        grads = [p.grad for _, p in self.parameters if p.grad is not None]
        norms = [torch.linalg.vector_norm(grad, dtype=torch.promote_types(grad.dtype, torch.float32)) for grad in grads]
        norm = torch.stack(norms).norm() if norms else torch.zeros(())
        if norm.isfinite():
            # As torch.nn.utils.clip_grad_norm_ does it.
            factor = (self.max_grad_norm / (norm + 1e-6)).clamp(max=1.0)
            for part, optimiser in self.parts:
                optimiser.param_groups[0]["lr"] = self.rate
                for i in part:
                    p, updated = self.parameters[i][1], self._take(i)
                    grad, p.grad = p.grad, None
                    updated.grad = None if grad is None else grad.to(updated.dtype).mul_(factor)
                optimiser.step()
                for i in part:
                    self.updated[i].grad = None
                    self._let_go(i)
            self.updates += 1
        for _, p in self.parameters:
            p.grad = None
        return float(norm)

    def state_tensors(self) -> dict[str, Tensor]:
        """Moments, step counters and master copies by name, for the checkpoint; empty before the first update but for the masters."""
        out: dict[str, Tensor] = {}
        state = {updated: kept for _, optimiser in self.parts for updated, kept in optimiser.state.items()}
        for (name, p), updated, lower in zip(self.parameters, self.updated, self.lower, strict=True):
            for key, value in state.get(updated, {}).items():
                out[f"{key}/{name}"] = value.detach().contiguous()
            if lower is not None:
                out[f"master/{name}"] = joined(p.detach(), lower)
        return out

    def load_state_tensors(self, tensors: dict[str, Tensor], updates: int) -> None:
        """The opposite of `state_tensors`, bit for bit."""
        self.updates = updates
        for part, optimiser in self.parts:
            for i in part:
                (name, p), lower = self.parameters[i], self.lower[i]
                state = {key: tensors[f"{key}/{name}"].clone() for key in STATE if f"{key}/{name}" in tensors}
                if state:
                    optimiser.state[self.updated[i]] = state
                if lower is not None:
                    with torch.no_grad():
                        split(tensors[f"master/{name}"], p.detach(), lower)

    def _take(self, i: int) -> Tensor:
        """What is updated of a parameter, whole."""
        updated, lower = self.updated[i], self.lower[i]
        if lower is not None:
            updated.data = joined(self.parameters[i][1].detach(), lower)
        return updated

    def _let_go(self, i: int) -> None:
        """Write it to the parameter, and keep of it what the parameter lacks."""
        updated, lower = self.updated[i], self.lower[i]
        if lower is not None:
            split(updated.detach(), self.parameters[i][1].detach(), lower)
            updated.data = updated.new_empty(0)


def joined(upper: Tensor, lower: Tensor) -> Tensor:
    """The float32 whose nearest bfloat16 is `upper` and whose bits are so much more (int16) than that one's."""
    return upper.view(torch.int16).to(torch.int32).bitwise_left_shift_(16).add_(lower).view(torch.float32)


def split(wide: Tensor, upper: Tensor, lower: Tensor) -> None:
    """Write a float32 as its nearest bfloat16, away from zero where two are as near, and what its bits are more than that one's."""
    wide, upper, lower = torch.atleast_1d(wide, upper, lower)
    few = max(1, 2**22 * len(wide) // max(1, wide.numel()))  # rows: some bytes an entry are in use between
    for bits, high, low in zip(wide.view(torch.int32).split(few), upper.view(torch.int16).split(few), lower.split(few), strict=True):
        rounded = (bits + 0x8000).bitwise_right_shift_(16)
        high.copy_(rounded)
        low.copy_(bits - rounded.bitwise_left_shift_(16))


def _is_narrow(p: Tensor) -> bool:
    return p.dtype == torch.bfloat16


def state_bytes(tensors: Sequence[Tensor], kind: Kind) -> int:
    """What an optimiser keeps for these parameters, with the master copies and float32 gradients that exist at once."""
    narrow = [t for t in tensors if _is_narrow(t)]
    lower = 2 * sum(t.numel() for t in narrow)
    part = 8 * max((sum(narrow[i].numel() for i in part) for part in parts_of(narrow)), default=0)
    if kind == "adamw":
        return lower + part + 8 * sum(t.numel() for t in tensors)
    return lower + part + 4 * sum(t.numel() // t.shape[-1] + t.numel() // t.shape[-2] if t.dim() > 1 else t.numel() for t in tensors)


def parts_of(tensors: Sequence[Tensor]) -> list[list[int]]:
    """Indices of the tensors, in order, in parts of about `PART` entries at most; a larger tensor is a part by itself."""
    parts: list[list[int]] = []
    size = PART
    for i, tensor in enumerate(tensors):
        if size + tensor.numel() > PART:
            parts.append([])
            size = 0
        parts[-1].append(i)
        size += tensor.numel()
    return parts
