"""The second law: the expected on-policy gradient of each method, exact over everything that can be sampled, against its target."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
import torch
from enumerable import BEGINNINGS, COMPLETIONS, SequencePolicy, batch_of, expected_gradient, gradient_of, sampled_gradient
from torch import Tensor

from sharpen.methods import (
    DAPO,
    DPO,
    DR_GRPO,
    GRPO,
    GSPO,
    KL,
    ONLINE_RFT,
    PPO,
    REINFORCE,
    RLOO,
    SFT,
    Advantage,
    Method,
    Surrogate,
)  # fmt: skip
from sharpen.models.candidate import CandidatePolicy

LENGTHS = torch.tensor([len(o) for o in COMPLETIONS], dtype=torch.float64)
L = 4.0


@pytest.fixture
def policy() -> SequencePolicy:
    return SequencePolicy(seed=0)


@pytest.fixture
def rewards() -> Tensor:
    return torch.rand(15, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def objective(policy: SequencePolicy, rewards: Tensor) -> Tensor:
    """J = Σ π(o) r(o)."""
    return (policy.log_probability().exp() * rewards).sum()


def test_the_policy_is_one(policy: SequencePolicy) -> None:
    assert len(COMPLETIONS) == len(set(COMPLETIONS)) == 15
    assert len(BEGINNINGS) == 7
    assert policy.log_probability().exp().sum().item() == pytest.approx(1.0)


def test_reinforce_is_the_policy_gradient(policy: SequencePolicy, rewards: Tensor) -> None:
    for size in (1, 2):
        torch.testing.assert_close(expected_gradient(policy, REINFORCE, rewards, size), gradient_of(objective(policy, rewards), policy))


def test_rloo_is_the_policy_gradient(policy: SequencePolicy, rewards: Tensor) -> None:
    method = replace(RLOO, kl=KL())
    torch.testing.assert_close(expected_gradient(policy, method, rewards, 2), gradient_of(objective(policy, rewards), policy))


def test_rloo_with_its_penalty_is_the_gradient_of_the_penalised_reward(policy: SequencePolicy, rewards: Tensor) -> None:
    reference, method = SequencePolicy(seed=5), replace(RLOO, kl=KL(placement="in_reward", estimator="k1", coef=0.3))
    logp, ref = policy.log_probability(), reference.log_probability().detach()
    penalised = objective(policy, rewards) - 0.3 * (logp.exp() * (logp - ref)).sum()
    torch.testing.assert_close(expected_gradient(policy, method, rewards, 2, reference=reference), gradient_of(penalised, policy))


@pytest.mark.parametrize("size", [2, 3])
def test_dr_grpo_is_its_share_of_the_policy_gradient(policy: SequencePolicy, rewards: Tensor, size: int) -> None:
    share = (size - 1) / size / L
    torch.testing.assert_close(expected_gradient(policy, DR_GRPO, rewards, size), share * gradient_of(objective(policy, rewards), policy))


def test_ppo_with_lambda_1_is_unbiased_whatever_the_values(policy: SequencePolicy, rewards: Tensor) -> None:
    method = replace(PPO, kl=KL(), reduction="sequence-sum")
    values = torch.zeros(15, 3, dtype=torch.float64)  # a value belongs to what stands before the token, not to the token
    table = torch.randn(len(BEGINNINGS), generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    for i, completion in enumerate(COMPLETIONS):
        for t in range(len(completion)):
            values[i, t] = table[BEGINNINGS.index(completion[:t])]
    torch.testing.assert_close(
        expected_gradient(policy, method, rewards, 1, values=values), gradient_of(objective(policy, rewards), policy)
    )
    biased = replace(method, advantage=Advantage(kind="gae", gae_lambda=0.5))
    gap = expected_gradient(policy, biased, rewards, 1, values=values) - gradient_of(objective(policy, rewards), policy)
    assert gap.norm() > 0.05  # with λ below 1 the value model's faults come in


def test_ppo_with_its_penalty_is_the_gradient_of_the_penalised_reward(policy: SequencePolicy, rewards: Tensor) -> None:
    reference = SequencePolicy(seed=5)
    method = replace(PPO, kl=KL(placement="in_reward", estimator="k1", coef=0.3), reduction="sequence-sum")
    logp, ref = policy.log_probability(), reference.log_probability().detach()
    penalised = objective(policy, rewards) - 0.3 * (logp.exp() * (logp - ref)).sum()
    values = torch.zeros(15, 3, dtype=torch.float64)
    torch.testing.assert_close(
        expected_gradient(policy, method, rewards, 1, reference=reference, values=values), gradient_of(penalised, policy)
    )


def test_online_rft_is_the_gradient_of_the_accepted_share_over_the_length(policy: SequencePolicy, rewards: Tensor) -> None:
    right = (rewards > 0.5).double()
    target = (policy.log_probability().exp() * right / LENGTHS).sum()
    torch.testing.assert_close(expected_gradient(policy, ONLINE_RFT, right, 1), gradient_of(target, policy))


def test_sft_is_the_mean_log_likelihood_of_a_demonstrations_tokens(policy: SequencePolicy) -> None:
    shown = [(0, 2), (1, 0, 1), (2,)]
    got = sampled_gradient(policy, SFT, batch_of(shown, [0.0] * 3, 3))
    places = [COMPLETIONS.index(o) for o in shown]
    target = (policy.log_probability()[places] / LENGTHS[places]).mean()
    torch.testing.assert_close(got, gradient_of(target, policy))


def test_dpo_is_the_log_likelihood_of_the_preferences(policy: SequencePolicy) -> None:
    reference, beta = SequencePolicy(seed=5), 0.7
    method = replace(DPO, surrogate=Surrogate(kind="pairwise", beta=beta))
    pairs = [((0, 2), (1, 0, 1)), ((2,), (1, 2))]
    got = sampled_gradient(policy, method, batch_of([o for pair in pairs for o in pair], [1.0, 0.0] * 2, 2), reference)
    margin = beta * (policy.log_probability() - reference.log_probability().detach())
    wins = [torch.nn.functional.logsigmoid(margin[COMPLETIONS.index(a)] - margin[COMPLETIONS.index(b)]) for a, b in pairs]
    torch.testing.assert_close(got, gradient_of(torch.stack(wins).mean(), policy))


def bias(got: Tensor, target: Tensor) -> tuple[float, float]:
    """The cosine between two gradients, and the ratio of their norms."""
    return float(torch.cosine_similarity(got, target, dim=0)), float(got.norm() / target.norm())


def test_the_biases_are_measured_and_printed(policy: SequencePolicy, rewards: Tensor) -> None:
    """What GRPO's two divisions do to the direction (LIU §3): neither is the policy gradient any more, nor a multiple of it."""
    target = gradient_of(objective(policy, rewards), policy)
    mean_length = replace(DR_GRPO, reduction="seq-mean-token-mean")
    deviation = replace(GRPO, kl=KL(), reduction="sequence-sum")
    both = replace(GRPO, kl=KL())
    found = {}
    for name, method in (("per-answer length mean", mean_length), ("÷ deviation", deviation), ("both (grpo)", both), ("dapo", DAPO)):
        found[name] = bias(expected_gradient(policy, method, rewards, 2), target)
        print(f"{name:24} cosine {found[name][0]:.4f}  norm ratio {found[name][1]:.4f}")
    assert all(cosine < 0.9999 for cosine, _ in found.values())
    # On-policy s = 1: GSPO's gradient is GRPO's.
    wide = replace(GSPO, surrogate=Surrogate(kind="clipped_sequence", clip_low=0.2, clip_high=0.2))
    torch.testing.assert_close(expected_gradient(policy, wide, rewards, 2), expected_gradient(policy, both, rewards, 2))


FEATURES = torch.randn(1, 6, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


@pytest.mark.parametrize(
    ("method", "size", "share"),
    [(REINFORCE, 1, 1.0), (replace(RLOO, kl=KL()), 2, 1.0), (DR_GRPO, 2, 0.5), (DR_GRPO, 3, 2 / 3)],
    ids=["reinforce", "rloo", "dr_grpo-2", "dr_grpo-3"],
)
def test_over_the_candidate_policy(method: Method, size: int, share: float) -> None:
    policy = CandidatePolicy(FEATURES)
    with torch.no_grad():
        policy.module.weight.copy_(torch.tensor([0.3, -0.7, 0.2]))
    rewards = torch.tensor([1.0, 0.1, 0.2, 0.05, 0.15, 0.0], dtype=torch.float64)
    probabilities = policy.module(FEATURES[0]).softmax(dim=-1)
    groups = torch.tensor(list(product(range(6), repeat=size)))
    chosen = groups.flatten()
    batch = batch_of([(c,) for c in chosen.tolist()], rewards[chosen].tolist(), len(groups))
    batch = replace(batch, prompts=((0,),) * len(groups))
    share_of_group = probabilities.detach()[groups].prod(dim=1)
    total = sampled_gradient(policy, method, batch, constant_length=1, share=share_of_group)
    torch.testing.assert_close(total, share * gradient_of((probabilities * rewards).sum(), policy))
