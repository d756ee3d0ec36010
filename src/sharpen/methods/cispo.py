"""CISPO: the importance weight is clipped instead of the objective, so that no token loses its gradient."""

import dataclasses

from sharpen.methods.grpo import GRPO
from sharpen.methods.settings import KL, Surrogate

CISPO = dataclasses.replace(
    GRPO,
    name="cispo",
    title="Clipped Importance-Sampling-weight Policy Optimization",
    surrogate=Surrogate(kind="clipped_weight", clip_low=1.0, clip_high=4.0),  # no lower bound; the paper gives no upper one, ScaleRL 4 to 8
    kl=KL(),
    reduction="token-mean",
    source="arXiv:2506.13585 §3.1, Eq. 4",
    target="as dapo",
)
