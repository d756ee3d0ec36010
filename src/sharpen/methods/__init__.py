"""The unified gradient: what a method is, and the table of them."""

from sharpen.methods.grpo import GRPO
from sharpen.methods.method import KL, Advantage, Method, Surrogate, TokenLoss

METHODS: dict[str, Method] = {method.name: method for method in (GRPO,)}

__all__ = ["KL", "METHODS", "Advantage", "Method", "Surrogate", "TokenLoss"]
