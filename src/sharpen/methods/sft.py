"""Supervised fine-tuning: imitate demonstrations, each token alike."""

from sharpen.methods.method import Method
from sharpen.methods.settings import Advantage, Surrogate

SFT = Method(
    name="sft",
    title="Supervised Fine-Tuning",
    data_source="demonstrations",
    reward="none",
    advantage=Advantage(kind="constant"),
    surrogate=Surrogate(kind="logprob"),
    reduction="seq-mean-token-mean",
    source="arXiv:2402.03300 App. A.1.1, Eq. 6",
    target="the mean log-likelihood of a demonstration's tokens",
)
