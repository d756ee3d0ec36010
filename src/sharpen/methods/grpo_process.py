"""GRPO with process supervision: every step has a reward, and a token answers for the steps that end at it or later."""

import dataclasses

from sharpen.methods.grpo import GRPO
from sharpen.methods.settings import Advantage

GRPO_PROCESS = dataclasses.replace(
    GRPO,
    name="grpo_process",
    title="Group Relative Policy Optimization with process supervision",
    supervision="process",
    advantage=Advantage(kind="process", ddof=1, eps=1e-4),
    source="arXiv:2402.03300 §4.1.3",
    target="as grpo, of step rewards still to come",
)
