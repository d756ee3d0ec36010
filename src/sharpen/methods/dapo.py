"""DAPO's loss: GRPO with room above, token-mean, and no penalty. Its refills and its length penalty are settings of its recipe."""

import dataclasses

from sharpen.methods.grpo import GRPO
from sharpen.methods.settings import KL, Surrogate

DAPO = dataclasses.replace(
    GRPO,
    name="dapo",
    title="Decoupled Clip and Dynamic sAmpling Policy Optimization",
    surrogate=Surrogate(kind="clipped_token", clip_low=0.2, clip_high=0.28),
    kl=KL(),
    reduction="token-mean",
    source="arXiv:2503.14476 §3, Eq. 8",
    target="as grpo, each token of the batch alike",
)
