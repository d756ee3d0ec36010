"""GRPO with outcome supervision: the group's own mean and deviation take the place of a value model."""

from sharpen.methods.method import Method
from sharpen.methods.settings import KL, Advantage, Surrogate

GRPO = Method(
    name="grpo",
    title="Group Relative Policy Optimization",
    data_source="current_policy",
    reward="rule",
    supervision="outcome",
    advantage=Advantage(kind="group_norm", ddof=1, eps=1e-4),
    surrogate=Surrogate(kind="clipped_token", clip_low=0.2, clip_high=0.2),
    kl=KL(placement="in_loss", estimator="k3", coef=0.04),
    reduction="seq-mean-token-mean",
    source="arXiv:2402.03300 §4.1, Eq. 3",
    target="∇J, each question weighed by 1 over its group's deviation and each answer by 1 over its length",
)
