"""Dr. GRPO: GRPO without the two divisions that bias it, by the group's deviation and by the answer's length."""

import dataclasses

from sharpen.methods.grpo import GRPO
from sharpen.methods.settings import KL, Advantage

DR_GRPO = dataclasses.replace(
    GRPO,
    name="dr_grpo",
    title="GRPO Done Right",
    advantage=Advantage(kind="group_mean"),
    kl=KL(),
    reduction="seq-mean-token-sum-norm",
    source="arXiv:2503.20783 §3.2",
    target="(G − 1)/G · ∇J over the constant length",
)
