"""Direct preference optimisation: raise the better of two answers above the worse, offline or on the policy's own samples."""

import dataclasses

from sharpen.methods.method import Method
from sharpen.methods.settings import Advantage, Surrogate

DPO = Method(
    name="dpo",
    title="Direct Preference Optimization",
    data_source="sft_policy",
    reward="preference",
    advantage=Advantage(kind="preference"),
    surrogate=Surrogate(kind="pairwise", beta=0.1),
    reduction="pair-mean",
    source="arXiv:2305.18290 Eq. 7; arXiv:2402.03300 App. A.1.4",
    target="the log-likelihood of the preferences under the Bradley-Terry model of the log-ratios",
)

ONLINE_DPO = dataclasses.replace(
    DPO,
    name="online_dpo",
    title="Online Direct Preference Optimization",
    data_source="current_policy",
    source="arXiv:2402.04792 §3",
    target="as dpo, over pairs of the policy's own answers",
)
