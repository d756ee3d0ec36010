"""A value model: the policy's body with a scalar head, weights and all its own. Axes: B sequences, T tokens, H hidden size."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor, nn

from sharpen.errors import ModelError
from sharpen.models import lora, policy
from sharpen.records import TrainingBatch


class ValueModel(policy.Reader, Protocol):
    """What the trainer needs of a value model."""

    def values(self, batch: TrainingBatch) -> Tensor:
        """V(s_t) of the state that each completion token continues, [B, T] and 0 where masked out; no temperature divides it."""
        ...


class BodyWithHead(nn.Module):
    """A decoder and a linear head to one number; the head begins at 0, so that every value does."""

    def __init__(self, body: Any, hidden_size: int) -> None:
        super().__init__()
        self.body = body
        self.head = nn.Linear(hidden_size, 1, device=next(body.parameters()).device, dtype=torch.float32)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)


class LanguageValue:
    """A value model for a Hugging Face causal language model.

    Args:
        model: the policy's model; its body is copied, so that the value model is as large as the policy; where an adapter
            is trained, without it, and the copy is trained whole.

    Raises:
        ModelError: a model whose body cannot be had apart from its head.
    """

    def __init__(self, model: Any) -> None:
        if not hasattr(model, "get_decoder"):
            raise ModelError(
                f"The model {type(model).__name__} has no body apart from its head, which a value model is a copy of.",
                fix="Choose a method without a value model, such as grpo, or another model.",
            )
        self.module = BodyWithHead(lora.plain_copy(model.get_decoder()), model.config.get_text_config().hidden_size)
        self.states = policy.HiddenStates(self.module.body)

    def values(self, batch: TrainingBatch) -> Tensor:
        """See `ValueModel.values`."""
        hidden, _ = self.states(batch)
        return policy.unpack(self.module.head(hidden.float()).squeeze(1), batch.loss_mask)

    def cost(self, batch: TrainingBatch) -> list[int]:
        """See `Reader.cost`."""
        return self.states.cost(batch)
