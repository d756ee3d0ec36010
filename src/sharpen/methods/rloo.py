"""RLOO: REINFORCE with the mean of the group's others as the baseline."""

from sharpen.methods.method import Method
from sharpen.methods.settings import KL, Advantage, Surrogate

RLOO = Method(
    name="rloo",
    title="REINFORCE Leave-One-Out",
    data_source="current_policy",
    reward="rule",
    advantage=Advantage(kind="leave_one_out"),
    surrogate=Surrogate(kind="logprob"),
    kl=KL(placement="in_reward", estimator="k1", coef=0.04),
    reduction="sequence-sum",
    source="arXiv:2402.14740 §4.2",
    target="∇J of the penalised reward",
)
