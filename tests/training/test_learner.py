"""GRPO's gradient on a tiny model, by hand and for every cut into micro-batches."""

from __future__ import annotations

import copy
import dataclasses
import math

import pytest
import torch

from sharpen.methods import GRPO, KL, Advantage, Method
from sharpen.models.policy import LanguagePolicy, PolicyOutput
from sharpen.ops.logprobs import from_logits
from sharpen.records import Completion, Group, Problem, Scores, TrainingBatch
from sharpen.tracking.metrics import Means
from sharpen.training import batches
from sharpen.training.learner import Learner
from sharpen.training.optimiser import Optimiser
from tiny import tiny_model, tiny_tokenizer

NO_KL = dataclasses.replace(GRPO, kl=KL(), advantage=Advantage(kind="group_norm", ddof=1, eps=0.0))


class Bigram:
    """The smallest language model: the logits of the next of three tokens are a row of a table, by the token before."""

    def __init__(self, rows: list[list[float]]) -> None:
        self.module = torch.nn.Module()
        self.module.table = torch.nn.Parameter(torch.tensor(rows, dtype=torch.float64))

    def logprobs(self, batch: TrainingBatch, *, temperature: float) -> PolicyOutput:
        last = torch.tensor([batch.prompts[g][-1] for g in batch.group_index.tolist()])
        before = torch.cat([last[:, None], batch.tokens[:, :-1]], dim=1)
        logp, entropy = from_logits(self.module.table[before.flatten()], batch.tokens.flatten(), temperature=temperature)
        return PolicyOutput(logp.reshape(before.shape), entropy.reshape(before.shape))

    def cost(self, batch: TrainingBatch) -> list[int]:
        return batch.lengths.tolist()


def group(position: int, prompt: tuple[int, ...], completions: list[tuple[int, ...]]) -> Group:
    return Group(
        id=f"1/{position}/0",
        problem=Problem(id=str(position), prompt="", answer=""),
        prompt_tokens=prompt,
        completions=tuple(
            Completion(tokens=tokens, sampling_logprobs=(0.0,) * len(tokens), text="", finish_reason="stop") for tokens in completions
        ),
    )


def scores(*rows: list[float]) -> Scores:
    total = torch.tensor(rows, dtype=torch.float64)
    return Scores(total=total, parts={}, correct=total > 0, answers=())


def learner(policy, method: Method, *, reference=None, budget: int = 4096, **settings) -> Learner:
    optimiser = Optimiser(policy.module.named_parameters(), learning_rate=1e-3)
    return Learner(policy=policy, reference=reference, method=method, optimiser=optimiser, temperature=1.0, token_budget=budget, **settings)


def built(groups: list[Group], found: Scores, method: Method) -> TrainingBatch:
    return method.with_advantages(batches.build(groups, found))


def minibatch(batch: TrainingBatch, method: Method) -> TrainingBatch:
    return next(batches.minibatches(batch, method, 1, constant_length=8, seed=0, step=1, iteration=0))


def test_two_sequences_of_two_tokens_by_hand() -> None:
    """All logits 0, so that every probability is 1/3. Prompt 0; completions 1 2 (reward 1) and 2 2 (reward 0)."""
    policy = Bigram([[0.0] * 3] * 3)
    batch = minibatch(built([group(0, (0,), [(1, 2), (2, 2)])], scores([1.0, 0.0]), NO_KL), NO_KL)
    loss = learner(policy, NO_KL).backward(batch, Means())
    # Rewards 1 and 0: mean 1/2, sample deviation √(1/4 + 1/4) = 0.7071, so Â = ±a with a = 0.5 / 0.7071 = 0.7071.
    # Each token weighs 1/(2 sequences · 2 tokens) = 1/4. On-policy the ratio is 1, so the loss is −(a + a − a − a)/4 = 0.
    a = math.sqrt(0.5)
    assert loss == pytest.approx(0.0, abs=1e-12)
    # dL/dlogits = −Σ ¼ Â (onehot − p):
    expected = [
        [0.0, -a / 4, a / 4],  # after 0: −¼ (a (e1 − p) − a (e2 − p)) = −¼ a (e1 − e2)
        [a / 12, a / 12, -a / 6],  # after 1: −¼ a (e2 − p), e2 − p = (−1/3, −1/3, 2/3)
        [-a / 12, -a / 12, a / 6],  # after 2: +¼ a (e2 − p)
    ]
    torch.testing.assert_close(policy.module.table.grad, torch.tensor(expected, dtype=torch.float64), atol=1e-7, rtol=0)


def test_the_same_with_the_kl_term_by_hand() -> None:
    """The reference gives 1/2, 1/4, 1/4 after token 0 and is uniform elsewhere; β = 0.04."""
    method = dataclasses.replace(NO_KL, kl=KL(placement="in_loss", estimator="k3", coef=0.04))
    policy = Bigram([[0.0] * 3] * 3)
    reference = Bigram([[math.log(2), 0.0, 0.0], [0.0] * 3, [0.0] * 3])
    trainer = learner(policy, method, reference=reference)
    batch = built([group(0, (0,), [(1, 2), (2, 2)])], scores([1.0, 0.0]), method)
    means = Means()
    loss = trainer.backward(minibatch(trainer._with_fixed_logprobs(batch), method), means)
    # Both first tokens have π_ref/π_θ = (1/4)/(1/3) = 3/4: k3 = 3/4 − ln(3/4) − 1 = 0.0376821; the second tokens have 0.
    assert loss == pytest.approx(2 * 0.04 * 0.0376821 / 4, abs=1e-9)
    assert means.result()["kl"] == pytest.approx(2 * 0.0376821 / 4, abs=1e-7)
    # Their coefficients gain β (3/4 − 1) = −0.01 each: row 0 is −¼ ((a − 0.01)(e1 − p) + (−a − 0.01)(e2 − p)).
    a = math.sqrt(0.5)
    first, second = a - 0.01, -a - 0.01
    row = [-(first * -1 / 3 + second * -1 / 3) / 4, -(first * 2 / 3 + second * -1 / 3) / 4, -(first * -1 / 3 + second * 2 / 3) / 4]
    assert policy.module.table.grad is not None
    assert policy.module.table.grad[0].tolist() == pytest.approx(row, abs=1e-7)
    assert policy.module.table.grad[1].tolist() == pytest.approx([a / 12, a / 12, -a / 6], abs=1e-7)


def llama_batch(method: Method) -> TrainingBatch:
    groups = [group(0, (7, 8, 9), [(11, 12, 13, 2), (14, 2)]), group(1, (7, 10), [(15, 16, 17, 18, 19, 2), (20, 2)])]
    return minibatch(built(groups, scores([1.0, 0.0], [0.0, 1.0]), method), method)


@pytest.mark.parametrize("share_prompt", [True, False])
def test_the_same_gradient_for_one_two_and_four_micro_batches(share_prompt: bool) -> None:
    gradients, losses = {}, {}
    # positions with shared prompts: 3 + 3 + 1 and 2 + 5 + 1; each sequence alone: 6, 4, 7, 3
    budgets = {1: 4096, 2: 8, 4: 1} if share_prompt else {1: 4096, 2: 14, 4: 1}
    for count, budget in budgets.items():
        policy = LanguagePolicy(tiny_model(len(tiny_tokenizer())).double())
        policy.states.share_prompt = share_prompt
        trainer = learner(policy, NO_KL, budget=budget)
        batch = llama_batch(NO_KL)
        cut = list(batches.microbatches(batch, batches.learning_rows(batch, NO_KL), policy, budget))
        assert len(cut) == count
        losses[count] = trainer.backward(batch, Means())
        gradients[count] = [p.grad for p in policy.module.parameters() if p.grad is not None]
    assert max(float(g.abs().max()) for g in gradients[1]) > 1e-3
    for count in (2, 4):
        torch.testing.assert_close(gradients[count], gradients[1], atol=1e-6, rtol=1e-5)
        assert losses[count] == pytest.approx(losses[1], abs=1e-7)


def test_sequences_without_a_gradient_are_left_out_and_change_nothing() -> None:
    groups = [group(0, (7, 8), [(11, 12, 2), (14, 2)]), group(1, (9,), [(15, 2), (16, 17, 2)])]
    found = scores([1.0, 0.0], [1.0, 1.0])  # the second group teaches nothing
    batch = minibatch(built(groups, found, NO_KL), NO_KL)
    assert batches.learning_rows(batch, NO_KL).tolist() == [0, 1]
    policy = LanguagePolicy(tiny_model(len(tiny_tokenizer())).double())
    learner(policy, NO_KL).backward(batch, Means())
    lean = [p.grad.clone() for p in policy.module.parameters() if p.grad is not None]
    policy.module.zero_grad()
    output = policy.logprobs(batch, temperature=1.0)
    (batch.weights * NO_KL.loss(output.logprobs, batch).values).sum().backward()
    torch.testing.assert_close(lean, [p.grad for p in policy.module.parameters() if p.grad is not None], atol=1e-6, rtol=1e-5)


def test_an_unscorable_completion_is_in_neither_numerator_nor_denominator() -> None:
    batch = built([group(0, (7,), [(11, 2), (12, 2), (13, 2)])], scores([1.0, math.nan, 0.0]), NO_KL)
    assert batch.tokens.tolist() == [[11, 2], [13, 2]]
    assert minibatch(batch, NO_KL).weights.tolist() == [[0.25, 0.25], [0.25, 0.25]]


def test_minibatches_hold_whole_groups_each_once() -> None:
    groups = [group(i, (7,), [(11 + i, 2), (30 + i, 2)]) for i in range(5)]
    batch = built(groups, scores(*[[1.0, 0.0]] * 5), NO_KL)
    parts = list(batches.minibatches(batch, NO_KL, 2, constant_length=8, seed=0, step=1, iteration=0))
    assert sorted(len(part.tokens) for part in parts) == [4, 6]
    seen = [g for part in parts for g in part.group_index.tolist()]
    assert sorted(seen) == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    for part in parts:
        assert part.weights.sum().item() == pytest.approx(1.0)
    again = [part.group_index.tolist() for part in batches.minibatches(batch, NO_KL, 2, constant_length=8, seed=0, step=1, iteration=0)]
    other = [part.group_index.tolist() for part in batches.minibatches(batch, NO_KL, 2, constant_length=8, seed=0, step=1, iteration=1)]
    assert again == [part.group_index.tolist() for part in parts] != other


def test_one_update_needs_no_old_logprobs_and_equals_one_with_them() -> None:
    policy = LanguagePolicy(tiny_model(len(tiny_tokenizer())))
    trainer = learner(policy, NO_KL)
    batch = llama_batch(NO_KL)
    assert trainer._with_fixed_logprobs(batch).old_logprobs is None
    trainer.backward(batch, Means())
    implicit = [p.grad.clone() for p in policy.module.parameters()]
    policy.module.zero_grad()
    old = trainer._score(policy, batch, torch.arange(4))
    means = Means()
    trainer.backward(dataclasses.replace(batch, old_logprobs=old), means)
    torch.testing.assert_close([p.grad for p in policy.module.parameters()], implicit, atol=1e-6, rtol=1e-4)
    assert means.result()["clip_fraction"] == 0.0


def test_later_updates_of_a_rollout_leave_the_old_policy() -> None:
    policy = LanguagePolicy(tiny_model(len(tiny_tokenizer())))
    start = copy.deepcopy(policy.module.state_dict())
    trainer = learner(policy, NO_KL, num_iterations=3, minibatches=2)
    metrics = trainer.learn(llama_batch(NO_KL), step=1, constant_length=8)
    assert trainer.optimiser.updates == 6
    assert metrics["ratio"] != 1.0
    assert any(not torch.equal(start[name], value) for name, value in policy.module.state_dict().items())


def test_a_rollout_that_teaches_nothing_changes_nothing() -> None:
    policy = LanguagePolicy(tiny_model(len(tiny_tokenizer())))
    start = copy.deepcopy(policy.module.state_dict())
    trainer = learner(policy, NO_KL)
    metrics = trainer.learn(batches.build([group(0, (7,), [(11, 2), (12, 2)])], scores([1.0, 1.0])), step=1, constant_length=8)
    assert trainer.optimiser.updates == 0
    assert metrics["trained_share"] == 0.0
    assert all(torch.equal(start[name], value) for name, value in policy.module.state_dict().items())
