"""GSPO: the ratio is the whole sequence's, to the power of one over its length, and so is its clip."""

import dataclasses

from sharpen.methods.grpo import GRPO
from sharpen.methods.settings import KL, Surrogate

GSPO = dataclasses.replace(
    GRPO,
    name="gspo",
    title="Group Sequence Policy Optimization",
    surrogate=Surrogate(kind="clipped_sequence", clip_low=3e-4, clip_high=4e-4),
    kl=KL(),
    source="arXiv:2507.18071 §4, Eq. 5 to 7",
    target="as grpo",
)
