"""PPO: a value model is the baseline, and the penalty for leaving the reference is in each token's reward."""

from sharpen.methods.method import Method
from sharpen.methods.settings import KL, Advantage, Surrogate, ValueLoss

PPO = Method(
    name="ppo",
    title="Proximal Policy Optimization",
    data_source="current_policy",
    reward="rule",
    advantage=Advantage(kind="gae", gamma=1.0, gae_lambda=1.0),
    surrogate=Surrogate(kind="clipped_token", clip_low=0.2, clip_high=0.2),
    kl=KL(placement="in_reward", estimator="k1", coef=0.04),
    reduction="seq-mean-token-mean",
    value=ValueLoss(clip=0.2),
    source="arXiv:1707.06347 Eq. 7; arXiv:2402.03300 §4.1.1, Eq. 1 and 2",
    target="∇J of the penalised reward over the answer's length, with λ = 1 and whatever the value model says",
)
