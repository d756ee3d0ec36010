"""A method is a value: a data source × a reward × a gradient coefficient (DeepSeekMath, arXiv:2402.03300, §5.2.1).

    ∇J = E_{(q,o) ~ source} [ reduce_t  coefficient(q, o, t; reward) · ∇ log π_θ(o_t | q, o_<t) ]

The trainer asks a method for advantages and for per-token losses, never for its name. Axes: P problems, G completions a group, B sequences,
T tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sharpen.methods import credit, losses
from sharpen.methods.losses import TokenLoss
from sharpen.methods.settings import GROUP_BASELINES, KL, Advantage, DataSource, RewardKind, Supervision, Surrogate, ValueLoss
from sharpen.ops.reduce import Reduction
from sharpen.ops.value import squared_error
from sharpen.records import TrainingBatch

NO_PENALTY = KL()


@dataclass(frozen=True, kw_only=True)
class Method:
    """A post-training method. See the module's text; the fields are the columns of `sharpen methods`.

    A method with an advantage or a loss of its own is a subclass that overrides `with_advantages` or `loss`.

    Attributes:
        name: by which a recipe asks for it.
        title: its full name.
        data_source: who wrote the completions: `demonstrations`, the `sft_policy` (once, before training) or the `current_policy`.
        reward: what judges them.
        supervision: whether an answer or each of its steps is judged.
        advantage: how rewards become advantages.
        surrogate: what is differentiated.
        kl: the penalty for leaving the reference.
        reduction: how per-token losses become one number.
        value: how a value model is fitted; None where the method has none.
        source: the paper.
        target: what the on-policy gradient estimates, in words.
    """

    name: str
    title: str
    data_source: DataSource
    reward: RewardKind
    supervision: Supervision = "outcome"
    advantage: Advantage
    surrogate: Surrogate
    kl: KL = NO_PENALTY
    reduction: Reduction
    value: ValueLoss | None = None
    source: str
    target: str = ""

    def __post_init__(self) -> None:
        """Refuse a value that no trainer could carry out."""
        if (self.advantage.kind == "gae") != (self.value is not None):
            raise ValueError(f"method {self.name}: the advantage gae and a value loss go together")
        if (self.advantage.kind == "preference") != (self.surrogate.kind == "pairwise"):
            raise ValueError(f"method {self.name}: the advantage preference and the surrogate pairwise go together")
        if (self.advantage.kind == "process") != (self.supervision == "process"):
            raise ValueError(f"method {self.name}: the advantage process and process supervision go together")
        if self.surrogate.truncation is not None and self.surrogate.kind == "pairwise":
            raise ValueError(f"method {self.name}: a pair's loss is not one of tokens, so importance weights of tokens cannot correct it")
        if self.kl.placement == "in_reward" and self.advantage.kind in ("constant", "accept", "process", "preference"):
            raise ValueError(f"method {self.name}: a KL term in the reward needs an advantage that grades by the reward")

    @property
    def needs_reference(self) -> bool:
        """Whether the method compares with the reference."""
        return self.kl.used or self.surrogate.kind == "pairwise"

    @property
    def needs_group(self) -> bool:
        """Whether the completions of a group are compared, so that there must be two at least."""
        return self.advantage.kind in GROUP_BASELINES

    @property
    def judges_tokens(self) -> bool:
        """Whether advantages depend on log-probabilities or values, which must then be taken first."""
        return self.value is not None or (self.kl.placement == "in_reward" and self.kl.used)

    @property
    def moves_without_advantage(self) -> bool:
        """Whether a completion of advantage 0 has a gradient: by a KL term in the loss."""
        return self.kl.placement == "in_loss" and self.kl.used

    def with_advantages(self, batch: TrainingBatch) -> TrainingBatch:
        """The batch of a whole rollout with its advantages [B, T] (and returns); for pairs, only the completions that form some.

        Args:
            batch: see `sharpen.methods.credit.assign`.
        """
        return credit.assign(batch, self.advantage, self.kl)

    def loss(self, logprobs: Tensor, batch: TrainingBatch) -> TokenLoss:
        """Per-token losses; the loss is their sum under `batch.weights`.

        Args:
            logprobs: log π_θ of `batch.tokens`, [B, T], with gradient.
            batch: see `TrainingBatch`.
        """
        return losses.token_loss(logprobs, batch, self.surrogate, self.kl)

    def coefficient(self, logprobs: Tensor, batch: TrainingBatch) -> Tensor:
        """The gradient coefficient of ∇ log π_θ(o_t), in closed form (DeepSeekMath App. A.1), before the reduction's weights.

        For GRPO on-policy it is Â + β (π_ref / π_θ - 1). Minus its product with `batch.weights` is the gradient of the loss.

        Args:
            logprobs: log π_θ of `batch.tokens`, [B, T].
            batch: see `TrainingBatch`.

        Returns:
            [B, T], 0 where masked out.
        """
        return losses.coefficient(logprobs, batch, self.surrogate, self.kl)

    def value_loss(self, values: Tensor, batch: TrainingBatch) -> Tensor:
        """Per-token losses of the value model, [B, T] and 0 where masked out; reduced by the same weights.

        Args:
            values: V(s_t), [B, T], with gradient.
            batch: with the values before the rollout's first update, and returns.
        """
        if self.value is None or batch.values is None or batch.returns is None:
            raise ValueError(f"method {self.name}: expected a value loss, and a batch with values and returns")
        mask = batch.loss_mask
        now, returns, old = (torch.where(mask, x.to(values.dtype), 0.0) for x in (values, batch.returns, batch.values))
        return torch.where(mask, squared_error(now, returns, old, clip=self.value.clip), 0.0)
