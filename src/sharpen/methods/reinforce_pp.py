"""REINFORCE++: rewards with a penalty in each token, normalised over the whole batch, and PPO's clip; no value model, no groups."""

from sharpen.methods.method import Method
from sharpen.methods.settings import KL, Advantage, Surrogate

REINFORCE_PP = Method(
    name="reinforce_pp",
    title="REINFORCE++",
    data_source="current_policy",
    reward="rule",
    advantage=Advantage(kind="batch_norm"),
    surrogate=Surrogate(kind="clipped_token", clip_low=0.2, clip_high=0.2),
    kl=KL(placement="in_reward", estimator="k1", coef=0.01),
    reduction="token-mean",
    source="arXiv:2501.03262 §3",
    target="∇J of the penalised reward over the batch's tokens and deviation",
)
