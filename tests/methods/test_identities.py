"""Identities of the mathematics, each checked exactly; nothing is trained.

`leave-one-out`, `k3-unbiased`, `k3-gradient` have their tests in tests/ops, `coefficient` in test_methods.py, and `majority-converges` in
tests/evaluation.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from enumerable import SequencePolicy, expected_gradient

from sharpen.methods import KL, REINFORCE, RLOO
from sharpen.ops import credit
from sharpen.ops import kl as kls


def test_baseline_unbiased() -> None:
    """Subtracting the leave-one-out mean leaves the expected gradient as it is, over all groups of two."""
    policy = SequencePolicy(seed=0)
    rewards = torch.rand(15, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    without = expected_gradient(policy, REINFORCE, rewards, 2)
    torch.testing.assert_close(expected_gradient(policy, replace(RLOO, kl=KL()), rewards, 2), without)


def two_distributions() -> tuple[torch.Tensor, torch.Tensor]:
    logits = torch.tensor([0.3, -0.5, 0.9, 0.0], dtype=torch.float64, requires_grad=True)
    ref = torch.tensor([0.1, 0.4, -0.2, 0.6], dtype=torch.float64).log_softmax(0)
    return logits, ref


def test_k1_in_the_reward_pulls_along_the_divergence() -> None:
    """E[k1 ∇ log π] = ∇KL(π ‖ π_ref); with k3 in the reward it is ∇KL(π ‖ π_ref) − ∇KL(π_ref ‖ π)."""
    logits, ref = two_distributions()
    logp = logits.log_softmax(0)
    forward = torch.autograd.grad((logp.exp() * (logp - ref)).sum(), logits, retain_graph=True)[0]
    reverse = torch.autograd.grad((ref.exp() * (ref - logp)).sum(), logits, retain_graph=True)[0]

    def expected(estimator: kls.Estimator) -> torch.Tensor:
        cost = kls.estimate(logp.detach(), ref, estimator)
        return torch.autograd.grad((logp.detach().exp() * cost * logp).sum(), logits, retain_graph=True)[0]

    torch.testing.assert_close(expected("k1"), forward)
    torch.testing.assert_close(expected("k3"), forward - reverse)


def test_gae_telescopes() -> None:
    """With λ = γ = 1, GAE is the observed return less V(s_t)."""
    generator = torch.Generator().manual_seed(0)
    rewards, values = (torch.randn(3, 5, dtype=torch.float64, generator=generator) for _ in range(2))
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0]]).bool()
    found, returns = credit.gae(rewards, values, mask)
    observed = torch.where(mask, torch.where(mask, rewards, 0.0).flip(1).cumsum(1).flip(1), 0.0)
    torch.testing.assert_close(found, torch.where(mask, observed - values, 0.0))
    torch.testing.assert_close(returns, observed)
