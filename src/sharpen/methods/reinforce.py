"""REINFORCE: the reward itself, without a baseline."""

from sharpen.methods.method import Method
from sharpen.methods.settings import Advantage, Surrogate

REINFORCE = Method(
    name="reinforce",
    title="REINFORCE",
    data_source="current_policy",
    reward="rule",
    advantage=Advantage(kind="reward"),
    surrogate=Surrogate(kind="logprob"),
    reduction="sequence-sum",
    source="Williams 1992, Machine Learning 8",
    target="∇J",
)
