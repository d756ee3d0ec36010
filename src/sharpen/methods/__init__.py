"""The unified gradient: what a method is, and the table of them."""

from sharpen.methods.cispo import CISPO
from sharpen.methods.dapo import DAPO
from sharpen.methods.dpo import DPO, ONLINE_DPO
from sharpen.methods.dr_grpo import DR_GRPO
from sharpen.methods.grpo import GRPO
from sharpen.methods.grpo_process import GRPO_PROCESS
from sharpen.methods.gspo import GSPO
from sharpen.methods.losses import TokenLoss
from sharpen.methods.method import Method
from sharpen.methods.ppo import PPO
from sharpen.methods.reinforce import REINFORCE
from sharpen.methods.reinforce_pp import REINFORCE_PP
from sharpen.methods.rft import ONLINE_RFT, RFT
from sharpen.methods.rloo import RLOO
from sharpen.methods.settings import KL, Advantage, Surrogate, ValueLoss
from sharpen.methods.sft import SFT

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        SFT, RFT, ONLINE_RFT, DPO, ONLINE_DPO, PPO, GRPO, GRPO_PROCESS, DR_GRPO, RLOO, DAPO, GSPO, CISPO, REINFORCE, REINFORCE_PP,
    )
}  # fmt: skip

__all__ = [
    "CISPO",
    "DAPO",
    "DPO",
    "DR_GRPO",
    "GRPO",
    "GRPO_PROCESS",
    "GSPO",
    "KL",
    "METHODS",
    "ONLINE_DPO",
    "ONLINE_RFT",
    "PPO",
    "REINFORCE",
    "REINFORCE_PP",
    "RFT",
    "RLOO",
    "SFT",
    "Advantage",
    "Method",
    "Surrogate",
    "TokenLoss",
    "ValueLoss",
]
