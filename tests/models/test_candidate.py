"""The candidate policy by hand, and expectations over every group it can draw. Axes: C candidates, F features."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter

import pytest
import torch

from sharpen.methods import GRPO, KL, Advantage, Method
from sharpen.models.candidate import CandidatePolicy
from sharpen.records import Completion, Group, Problem, Scores, TrainingBatch
from sharpen.tracking.metrics import Means
from sharpen.training import batches
from sharpen.training.learner import Learner
from sharpen.training.optimiser import Optimiser

GROUP_MEAN = dataclasses.replace(GRPO, advantage=Advantage(kind="group_mean"), kl=KL())
FIRST_ALONE = torch.tensor([[[1.0], [0.0], [0.0], [0.0], [0.0], [0.0]]], dtype=torch.float64)
"""One question, one feature: 1 for candidate 0 and 0 for the others."""

THREE_FEATURES = torch.tensor(
    [[[1.0, 0.5, 0.0], [0.0, -1.0, 2.0], [0.3, 0.2, -0.7], [-1.0, 0.0, 0.4], [0.0, 0.0, 0.0], [0.6, -0.3, 1.0]]], dtype=torch.float64
)
REWARDS = torch.tensor([1.0, 0.125, 0.25, 0.0, 0.25, 0.125], dtype=torch.float64)
"""Eighths, which are exact in float32 as well."""


def policy_with(features: torch.Tensor, weight: list[float]) -> CandidatePolicy:
    policy = CandidatePolicy(features)
    with torch.no_grad():
        policy.module.weight.copy_(torch.tensor(weight))
    return policy


def batch_of(chosen: tuple[int, ...], rewards: list[float], method: Method) -> TrainingBatch:
    group = Group(
        id="1/0/0",
        problem=Problem(id="q", prompt="", answer=""),
        prompt_tokens=(0,),
        completions=tuple(Completion(tokens=(c,), sampling_logprobs=(0.0,), text="", finish_reason="stop") for c in chosen),
    )
    total = torch.tensor([rewards], dtype=torch.float64)
    built = method.with_advantages(batches.build([group], Scores(total=total, parts={}, correct=total == 1.0, answers=())))
    return next(batches.minibatches(built, method, 1, constant_length=1, seed=0, step=1, iteration=0))


def gradient(policy: CandidatePolicy, batch: TrainingBatch, method: Method) -> torch.Tensor:
    """Of the loss, with respect to θ, by the same learner as any other run."""
    learner = Learner(
        policy=policy,
        reference=None,
        method=method,
        optimiser=Optimiser(policy.module.named_parameters(), learning_rate=0.1),
        temperature=1.0,
        token_budget=1000,
    )
    policy.module.weight.grad = None
    learner.backward(batch, Means())
    grad = policy.module.weight.grad
    return torch.zeros_like(policy.module.weight) if grad is None else grad.clone()


def test_it_begins_uniform() -> None:
    policy = CandidatePolicy(THREE_FEATURES)
    assert policy.distribution([0]).tolist() == [pytest.approx([1 / 6] * 6)]
    assert policy.module.weight.tolist() == [0.0, 0.0, 0.0]


def test_log_probabilities_and_entropy_by_hand() -> None:
    """θ = ln 2, so that candidate 0 has weight 2 and the five others 1 each: 2/7 and 1/7."""
    policy = policy_with(FIRST_ALONE, [math.log(2)])
    out = policy.logprobs(batch_of((0, 3), [1.0, 0.0], GROUP_MEAN))
    assert out.logprobs.squeeze(1).tolist() == pytest.approx([math.log(2 / 7), math.log(1 / 7)])
    assert out.entropy.squeeze(1).tolist() == pytest.approx([-(2 / 7) * math.log(2 / 7) - 5 * (1 / 7) * math.log(1 / 7)] * 2)
    assert not out.entropy.requires_grad
    # At temperature 1/2 the score doubles: weight 4 against 1 each, 4/9 and 1/9.
    cold = policy.logprobs(batch_of((0, 3), [1.0, 0.0], GROUP_MEAN), temperature=0.5)
    assert cold.logprobs.squeeze(1).tolist() == pytest.approx([math.log(4 / 9), math.log(1 / 9)])


def test_gradient_on_policy_by_hand() -> None:
    """Uniform policy; candidates 0 and 1 drawn with rewards 1 and 0."""
    policy = CandidatePolicy(FIRST_ALONE)
    # Â = ±1/2, each sequence weighs 1/2, ∇ log π = φ − E φ: 1 − 1/6 for candidate 0, 0 − 1/6 for candidate 1.
    # −(1/2 · 1/2 · 5/6 + 1/2 · (−1/2) · (−1/6)) = −(5/24 + 1/24) = −1/4
    assert gradient(policy, batch_of((0, 1), [1.0, 0.0], GROUP_MEAN), GROUP_MEAN).tolist() == pytest.approx([-0.25])


def test_gradient_with_clip_and_kl_by_hand() -> None:
    """θ = ln 2 (2/7 and 1/7) against an old policy and a reference that are uniform; β = 0.1, ε = 0.2."""
    policy = policy_with(FIRST_ALONE, [math.log(2)])
    method = dataclasses.replace(GROUP_MEAN, kl=KL(placement="in_loss", estimator="k3", coef=0.1))
    uniform = torch.full((2, 1), math.log(1 / 6), dtype=torch.float64)
    batch = dataclasses.replace(batch_of((0, 1), [1.0, 0.0], method), old_logprobs=uniform, ref_logprobs=uniform)
    # Candidate 0: ratio (2/7)/(1/6) = 12/7 > 1.2 with Â = 1/2: clipped. KL: −β (1 − (1/6)/(2/7)) = −0.1 · 5/12.
    # Candidate 1: ratio (1/7)/(1/6) = 6/7 ≥ 0.8 with Â = −1/2: 6/7 · (−1/2) = −3/7. KL: −β (1 − (1/6)/(1/7)) = +0.1 · 1/6.
    # ∇ log π: 1 − 2/7 = 5/7 and −2/7. The loss's gradient is −1/2 Σ coefficient · ∇ log π:
    # −1/2 ((−0.1 · 5/12) · 5/7 + (−3/7 + 0.1/6) · (−2/7)) = −1/2 (−0.0297619 + 0.1176871) = −0.0439626
    assert gradient(policy, batch, method).tolist() == pytest.approx([-0.0439626], abs=1e-7)
    told = method.loss(policy.logprobs(batch).logprobs, batch)
    assert told.ratio.squeeze(1).tolist() == pytest.approx([12 / 7, 6 / 7])
    assert told.clipped.squeeze(1).tolist() == [True, False]


@pytest.mark.parametrize("group_size", [2, 3])
def test_the_group_mean_gives_its_share_of_the_policy_gradient_exactly(group_size: int) -> None:
    """E over all 6^G groups of the sampled gradient = (G − 1)/G · ∇J, for J = Σ π(a) r(a)."""
    policy = policy_with(THREE_FEATURES, [0.7, -0.4, 0.2])
    probabilities, features = policy.distribution([0])[0], THREE_FEATURES[0]
    centred = features - probabilities @ features
    target = (probabilities * REWARDS) @ centred
    expected = torch.zeros(3, dtype=torch.float64)
    for chosen in itertools.product(range(6), repeat=group_size):
        weight = math.prod(probabilities[c].item() for c in chosen)
        expected -= weight * gradient(policy, batch_of(chosen, [REWARDS[c].item() for c in chosen], GROUP_MEAN), GROUP_MEAN)
    assert target.norm() > 0.05
    # float32 holds thirds to 3e-8 only; halves exactly.
    assert torch.allclose(expected, (group_size - 1) / group_size * target, rtol=0, atol=1e-12 if group_size == 2 else 1e-7)


def test_dividing_by_the_deviation_turns_the_gradient() -> None:
    """GRPO's own advantage is not a multiple of ∇J in expectation: the angle between them is measured, and not 0."""
    method = dataclasses.replace(GRPO, kl=KL())
    policy = policy_with(THREE_FEATURES, [0.7, -0.4, 0.2])
    probabilities, features = policy.distribution([0])[0], THREE_FEATURES[0]
    target = (probabilities * REWARDS) @ (features - probabilities @ features)
    expected = torch.zeros(3, dtype=torch.float64)
    for chosen in itertools.product(range(6), repeat=2):
        weight = math.prod(probabilities[c].item() for c in chosen)
        expected -= weight * gradient(policy, batch_of(chosen, [REWARDS[c].item() for c in chosen], method), method)
    cosine = torch.cosine_similarity(expected, target, dim=0).item()
    assert 0.8 < cosine < 0.999


def test_k3_in_the_loss_has_the_gradient_of_the_reverse_divergence() -> None:
    """Equal rewards, so that only the KL term is left; on-policy, E ∇k3 = ∇KL(π_ref ‖ π) = E_π φ − E_ref φ."""
    method = dataclasses.replace(GROUP_MEAN, kl=KL(placement="in_loss", estimator="k3", coef=1.0))
    policy, reference = policy_with(THREE_FEATURES, [0.7, -0.4, 0.2]), CandidatePolicy(THREE_FEATURES)
    probabilities = policy.distribution([0])[0]
    expected = torch.zeros(3, dtype=torch.float64)
    for chosen in itertools.product(range(6), repeat=2):
        batch = batch_of(chosen, [0.5, 0.5], method)
        batch = dataclasses.replace(batch, ref_logprobs=reference.logprobs(batch).logprobs.detach())
        expected += math.prod(probabilities[c].item() for c in chosen) * gradient(policy, batch, method)
    assert torch.allclose(expected, (probabilities - 1 / 6) @ THREE_FEATURES[0], rtol=0, atol=1e-12)


def test_draws_are_independent_and_follow_the_distribution() -> None:
    policy = policy_with(FIRST_ALONE, [math.log(2)])
    chosen, logprobs = policy.sample([0], [range(7000)])
    counts = Counter(chosen[0].tolist())
    # 7000 draws: 2000 expected of candidate 0 (deviation 38), 1000 of each other (deviation 29).
    assert counts[0] == pytest.approx(2000, abs=4 * 38)
    assert all(counts[c] == pytest.approx(1000, abs=4 * 29) for c in range(1, 6))
    assert logprobs[0].tolist() == pytest.approx([math.log((2 if c == 0 else 1) / 7) for c in chosen[0].tolist()])
    # With replacement: of pairs, π₀² + 5 π₁² = 4/49 + 5/49 = 9/49 are twice the same; 3500 pairs, deviation 23.
    pairs = chosen[0].reshape(-1, 2)
    assert int((pairs[:, 0] == pairs[:, 1]).sum()) == pytest.approx(3500 * 9 / 49, abs=4 * 23)


def test_a_draw_depends_on_its_own_question_and_seed_alone() -> None:
    policy = policy_with(torch.cat([THREE_FEATURES, THREE_FEATURES.flip(1)]), [0.7, -0.4, 0.2])
    together, _ = policy.sample([0, 1, 0], [[1, 2, 3], [4, 5, 6], [7, 8, 9]])
    alone, _ = policy.sample([1], [[4, 5, 6]])
    assert together[1].tolist() == alone[0].tolist()
    again, _ = policy.sample([0], [[3, 1, 2]])
    assert again[0].tolist() == [together[0].tolist()[i] for i in (2, 0, 1)]


def test_a_frozen_copy_stays_behind() -> None:
    policy = policy_with(THREE_FEATURES, [0.7, -0.4, 0.2])
    old = policy.frozen_copy()
    with torch.no_grad():
        policy.module.weight.zero_()
    assert old.module.weight.tolist() == pytest.approx([0.7, -0.4, 0.2])
    assert not old.module.weight.requires_grad and policy.module.weight.requires_grad


def test_anything_but_one_token_is_refused() -> None:
    policy = CandidatePolicy(THREE_FEATURES)
    batch = batch_of((0, 1), [1.0, 0.0], GROUP_MEAN)
    with pytest.raises(ValueError, match=r"\(2, 2\)"):
        policy.logprobs(dataclasses.replace(batch, tokens=torch.zeros(2, 2, dtype=torch.int64)))
    with pytest.raises(ValueError, match="prompts of one token"):
        policy.logprobs(dataclasses.replace(batch, prompts=((0, 1),)))
    with pytest.raises(ValueError, match=r"\(6, 3\)"):
        CandidatePolicy(THREE_FEATURES[0])


def test_a_masked_sequence_counts_for_nothing() -> None:
    policy = policy_with(FIRST_ALONE, [math.log(2)])
    batch = batch_of((0, 3), [1.0, 0.0], GROUP_MEAN)
    masked = dataclasses.replace(batch, loss_mask=torch.tensor([[True], [False]]))
    out = policy.logprobs(masked)
    assert out.logprobs.squeeze(1).tolist() == pytest.approx([math.log(2 / 7), 0.0])
    assert out.entropy[1].item() == 0.0
