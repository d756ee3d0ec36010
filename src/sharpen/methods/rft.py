"""Rejection-sampling fine-tuning: imitate the right answers, of the SFT policy or of the policy as it is now."""

import dataclasses

from sharpen.methods.method import Method
from sharpen.methods.settings import Advantage, Surrogate

RFT = Method(
    name="rft",
    title="Rejection-sampling Fine-Tuning",
    data_source="sft_policy",
    reward="rule",
    advantage=Advantage(kind="accept"),
    surrogate=Surrogate(kind="logprob"),
    reduction="seq-mean-token-mean",
    source="arXiv:2402.03300 App. A.1.2, Eq. 9",
    target="the mean log-likelihood of the tokens of the SFT policy's right answers",
)

ONLINE_RFT = dataclasses.replace(
    RFT,
    name="online_rft",
    title="Online Rejection-sampling Fine-Tuning",
    data_source="current_policy",
    source="arXiv:2402.03300 App. A.1.3, Eq. 11",
    target="∇J of the reward over the answer's length",
)
