"""Training the tiny model from scratch: next-token prediction, its matrices by Muon and the rest by AdamW.

Muon (https://kellerjordan.github.io/posts/muon/) learns this arithmetic with a fraction of the tokens that AdamW needs, which is what lets
a CPU make the model in a minute or two. `torch.optim.Muon` is the same rule, but calculates in bfloat16, which most CPUs do slowly; here it
is in float32, and matrices of one shape go together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

Batches = Iterator[tuple[Tensor, Tensor]]

MATRIX_RATE, OTHER_RATE = 0.02, 3e-3
MOMENTUM, BETAS = 0.95, (0.9, 0.95)
WARMUP, DECAY, LAST = 30, 0.6, 0.02  # steps, share of the steps at the end, and the share of the rate that is left then
MAX_GRAD_NORM = 1.0


def orthogonalise(matrices: Tensor) -> Tensor:
    """The nearest orthogonal matrices, roughly, by five steps of a Newton-Schulz iteration: all singular values end between 0.7 and 1.2.

    Args:
        matrices: [N, rows, columns].
    """
    a, b, c = 3.4445, -4.7750, 2.0315  # of the iteration that grows small singular values fastest
    x = matrices.mT if matrices.shape[-2] > matrices.shape[-1] else matrices
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return x.mT if matrices.shape[-2] > matrices.shape[-1] else x


class Muon:
    """Momentum whose steps are made orthogonal, for matrices of hidden layers.

    Args:
        matrices: the parameters; each has two dimensions.
    """

    def __init__(self, matrices: list[Tensor]) -> None:
        by_shape: dict[tuple[int, ...], list[Tensor]] = defaultdict(list)
        for matrix in matrices:
            by_shape[tuple(matrix.shape)].append(matrix)
        self.groups = [(group, torch.zeros(len(group), *shape)) for shape, group in by_shape.items()]

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """One update by the gradients that the parameters hold."""
        for group, momentum in self.groups:
            gradients = torch.stack([matrix.grad for matrix in group if matrix.grad is not None])
            momentum.lerp_(gradients, 1 - MOMENTUM)
            rows, columns = momentum.shape[1:]
            update = orthogonalise(gradients.lerp(momentum, MOMENTUM)) * max(1.0, rows / columns) ** 0.5
            for matrix, one in zip(group, update, strict=True):
                matrix.sub_(one, alpha=rate)


class Fitting:
    """Trains a model through several stages under one schedule of the learning rate: warm-up, constant, linear decay.

    Args:
        model: a causal language model.
        steps: of all stages together.
    """

    def __init__(self, model: Any, steps: int) -> None:
        self.model, self.steps, self.done = model, steps, 0
        hidden = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
        others = [p for name, p in model.named_parameters() if not (p.ndim == 2 and "embed" not in name)]
        self.muon = Muon(hidden)
        self.adam = torch.optim.AdamW(others, lr=OTHER_RATE, betas=BETAS, weight_decay=0.0)

    def run(self, batches: Batches, steps: int, on_progress: Callable[[int], None]) -> None:
        """So many steps on these tokens and loss masks, [B, T] each."""
        self.model.train()
        for _ in range(steps):
            tokens, mask = next(batches)
            logits, learned = self.model(input_ids=tokens, use_cache=False).logits[:, :-1], mask[:, 1:]
            self.model.zero_grad()
            cross_entropy(logits[learned], tokens[:, 1:][learned]).backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), MAX_GRAD_NORM)
            self._update()
            on_progress(1)
        self.model.eval()

    def _update(self) -> None:
        left = (self.steps - self.done) / (DECAY * self.steps)
        share = min(1.0, (self.done + 1) / WARMUP) * max(LAST, min(1.0, left))
        self.muon.step(MATRIX_RATE * share)
        for group in self.adam.param_groups:
            group["lr"] = OTHER_RATE * share
        self.adam.step()
        self.done += 1
