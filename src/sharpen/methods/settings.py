"""The columns of the table of methods: each a small frozen value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sharpen.ops.kl import Estimator

DataSource = Literal["demonstrations", "sft_policy", "current_policy"]
RewardKind = Literal["none", "rule", "model", "preference"]
Supervision = Literal["outcome", "process"]
AdvantageKind = Literal[
    "constant", "reward", "accept", "group_norm", "group_mean", "leave_one_out", "batch_norm", "process", "gae", "preference"
]  # fmt: skip
SurrogateKind = Literal["logprob", "clipped_token", "clipped_sequence", "clipped_weight", "pairwise"]

GROUP_BASELINES = ("group_norm", "group_mean", "leave_one_out", "process", "preference")
"""The advantages that compare the completions of a group, and so need two at least."""


@dataclass(frozen=True, kw_only=True)
class Advantage:
    """How rewards become advantages.

    Attributes:
        kind: `constant` (1), `reward` (the reward itself), `accept` (1 where the reward reaches `threshold`, else 0), `group_norm`,
            `group_mean`, `leave_one_out`, `batch_norm` (over all tokens), `process` (normalised step rewards, summed from the token on),
            `gae` (against a value model) or `preference` (+1 and -1 for the two of a pair). See `sharpen.ops.advantages`, `.credit`.
        ddof: of the deviation, 0 or 1; 1 by default, as TRL and verl (the paper does not say).
        eps: added to the deviation.
        threshold: of `accept`.
        gamma: γ of `gae`, the discount.
        gae_lambda: λ of `gae`.
        whiten: whether `gae`'s advantages are normalised over the batch's tokens.
    """

    kind: AdvantageKind
    ddof: int = 1
    eps: float = 1e-4
    threshold: float = 1.0
    gamma: float = 1.0
    gae_lambda: float = 1.0
    whiten: bool = False


@dataclass(frozen=True, kw_only=True)
class Surrogate:
    """What is differentiated.

    Attributes:
        kind: `logprob`, `clipped_token`, `clipped_sequence` (GSPO), `clipped_weight` (CISPO) or `pairwise` (DPO).
        clip_low: ε below 1; 1 and more is no bound.
        clip_high: ε above 1; 1 and more are allowed (R1's first stage used 10).
        beta: β of `pairwise`.
        truncation: C of truncated importance sampling against the engine's log-probabilities, at least 1; None leaves it out.
    """

    kind: SurrogateKind
    clip_low: float = 0.2
    clip_high: float = 0.2
    beta: float = 0.1
    truncation: float | None = None


@dataclass(frozen=True, kw_only=True)
class KL:
    """The penalty for leaving the reference.

    Attributes:
        placement: `none`; `in_loss`, per token, beside the surrogate; or `in_reward`, taken from the rewards before advantages are made.
        estimator: k1, k2 or k3 (see `sharpen.ops.kl`).
        coef: β; 0 turns the term off, and no reference is then kept.
    """

    placement: Literal["none", "in_reward", "in_loss"] = "none"
    estimator: Estimator = "k3"
    coef: float = 0.0

    @property
    def used(self) -> bool:
        """Whether there is a term at all."""
        return self.placement != "none" and self.coef != 0.0


@dataclass(frozen=True, kw_only=True)
class ValueLoss:
    """How a value model is fitted, for `gae`.

    Attributes:
        clip: how far, in the unit of rewards, a value may move from the one before the rollout's first update; None: freely.
    """

    clip: float | None = 0.2
