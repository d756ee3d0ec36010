"""Loss and gradient do not depend on how a minibatch is cut, for every method and for the value model."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from sharpen.methods import METHODS, Method
from sharpen.models.policy import LanguagePolicy
from sharpen.models.value import LanguageValue
from sharpen.records import Completion, Group, Problem, Scores, TrainingBatch
from sharpen.tracking.metrics import Means
from sharpen.training import batches
from sharpen.training.learner import Critic, Learner
from sharpen.training.optimiser import Optimiser
from tiny import tiny_model, tiny_tokenizer

COMPLETIONS = [[(11, 12, 13, 2), (14, 2)], [(15, 16, 17, 18, 19, 2), (20, 2)], [(21, 22, 2), (23, 24, 25, 2)], [(26, 2), (27, 28, 29, 2)]]
REWARDS = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.3], [0.2, 1.0]]
STEPS = (
    (((1, 1.0), (3, 0.0)), ((1, 0.0),)),
    (((2, 0.0), (5, 1.0)), ((1, 1.0),)),
    (((2, 1.0),), ((3, 0.3),)),
    (((1, 0.2),), ((1, 1.0), (3, 1.0))),
)


def rollout() -> tuple[list[Group], Scores]:
    groups = [
        Group(
            id=f"1/{p}/0",
            problem=Problem(id=str(p), prompt="", answer=""),
            prompt_tokens=(7, 8, 9)[: 2 + p % 2],
            completions=tuple(
                Completion(tokens=tokens, sampling_logprobs=(-1.0,) * len(tokens), text="", finish_reason="stop") for tokens in completions
            ),
        )
        for p, completions in enumerate(COMPLETIONS)
    ]
    total = torch.tensor(REWARDS, dtype=torch.float64)
    return groups, Scores(total=total, parts={}, correct=total == 1, answers=(), steps=STEPS)


def learner(method: Method, budget: int) -> Learner:
    policy = LanguagePolicy(tiny_model(len(tiny_tokenizer())).double())
    value = LanguageValue(policy.module)
    value.module.double()
    value.module.head.float()
    with torch.no_grad():
        value.module.head.weight.copy_(torch.linspace(-1, 1, 32)[None])
    return Learner(
        policy=policy,
        reference=LanguagePolicy(tiny_model(len(tiny_tokenizer()), seed=1).double()) if method.needs_reference else None,
        method=method,
        optimiser=Optimiser(policy.module.named_parameters(), learning_rate=1e-3),
        temperature=0.7,
        token_budget=budget,
        num_iterations=2,  # so that the old policy's log-probabilities are taken
        critic=Critic(model=value, optimiser=Optimiser(value.module.named_parameters(), learning_rate=1e-3)) if method.value else None,
    )


def minibatch(trainer: Learner, method: Method) -> TrainingBatch:
    prepared = trainer.prepare(batches.build(*rollout()))
    assert prepared.old_logprobs is not None
    moved = dataclasses.replace(prepared, old_logprobs=prepared.old_logprobs - 0.1 * prepared.loss_mask)  # ratios that are not 1
    return next(batches.minibatches(moved, method, 1, constant_length=8, seed=0, step=1, iteration=0))


def gradients(module: torch.nn.Module) -> list[torch.Tensor]:
    return [p.grad.clone() for p in module.parameters() if p.grad is not None]


@pytest.mark.parametrize("name", METHODS)
def test_one_two_and_four_micro_batches(name: str) -> None:
    method = METHODS[name]
    if method.surrogate.kind == "clipped_sequence":  # within the clip, or there is no gradient
        method = dataclasses.replace(method, surrogate=dataclasses.replace(method.surrogate, clip_low=0.3, clip_high=0.3))
    found = {}
    for budget in (4096, 16, 8):
        trainer = learner(method, budget)
        batch = minibatch(trainer, method)
        means = Means()
        loss = trainer.backward(batch, means)
        value_loss = trainer.value_backward(batch, means) if trainer.critic is not None else 0.0
        value = gradients(trainer.critic.model.module) if trainer.critic is not None else []
        cuts = len(list(batches.microbatches(batch, batches.learning_rows(batch, method), trainer.policy, budget)))
        found[cuts] = (loss, gradients(trainer.policy.module), value_loss, value)
    assert len(found) == 3, f"cut into {list(found)}"
    (whole, *others) = found.values()
    assert max(float(g.abs().max()) for g in whole[1]) > 1e-5
    for other in others:
        assert other[0] == pytest.approx(whole[0], abs=1e-6)
        torch.testing.assert_close(other[1], whole[1], atol=1e-6, rtol=1e-5)
        assert other[2] == pytest.approx(whole[2], abs=1e-6)
        torch.testing.assert_close(other[3], whole[3], atol=1e-6, rtol=1e-4)


def test_the_first_on_policy_ratio_is_exactly_one_at_any_temperature() -> None:
    """At T = 0.6 the policy and the old policy read the same distribution; values are not divided by T."""
    method = METHODS["ppo"]
    trainer = dataclasses.replace(learner(method, 4096), temperature=0.6)
    prepared = trainer.prepare(batches.build(*rollout()))
    means = Means()
    trainer.backward(next(batches.minibatches(prepared, method, 1, constant_length=8, seed=0, step=1, iteration=0)), means)
    told = means.result()
    assert told["ratio"] == 1.0
    assert told["clip_fraction"] == 0.0
    hot = dataclasses.replace(trainer, temperature=2.0).prepare(batches.build(*rollout()))
    assert prepared.values is not None
    assert hot.values is not None
    assert torch.equal(hot.values, prepared.values)
    assert not torch.equal(hot.old_logprobs, prepared.old_logprobs)  # type: ignore[arg-type]


def test_a_group_that_fits_is_not_cut() -> None:
    trainer = learner(METHODS["grpo"], 16)
    batch = minibatch(trainer, METHODS["grpo"])
    cut = batches.microbatches(batch, torch.arange(8), trainer.policy, 13)
    # Positions: 2 + 3 + 1, 3 + 5 + 1, 2 + 2 + 3, 3 + 1 + 3. No two fit in 13.
    assert [micro.group_index.tolist() for micro in cut] == [[0, 0], [1, 1], [2, 2], [3, 3]]
    cut = batches.microbatches(batch, torch.arange(8), trainer.policy, 8)
    assert [micro.group_index.tolist() for micro in cut] == [[0, 0], [1], [1], [2, 2], [3, 3]]  # the second fits in none


def test_advantages_by_group_and_completion() -> None:
    groups, scores = rollout()
    total = scores.total.clone()
    total[2, 1] = torch.nan
    batch = METHODS["dr_grpo"].with_advantages(batches.build(groups, dataclasses.replace(scores, total=total)))
    found = batches.advantages_of(batch, groups)
    assert found[0] == [(0.5,) * 4, (-0.5,) * 2]  # rewards 1 and 0, less their mean
    assert found[2][1] is None  # unscorable
    assert [len(row) for row in found[1] if row is not None] == [6, 2]
