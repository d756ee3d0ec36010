"""The first law for every method, and GRPO by hand. Axes: B sequences, T tokens."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from sharpen.methods import GRPO, KL, METHODS, Advantage, Method, Surrogate
from sharpen.ops.reduce import token_weights
from sharpen.records import TrainingBatch

NAN = float("nan")


def batch_of(
    mask: list[list[int]],
    advantages: list[list[float]],
    method: Method,
    *,
    old: list[list[float]] | None = None,
    ref: list[list[float]] | None = None,
    pair: list[int] | None = None,
) -> TrainingBatch:
    loss_mask = torch.tensor(mask).bool()

    def f64(rows: list[list[float]] | None) -> torch.Tensor | None:
        return None if rows is None else torch.tensor(rows, dtype=torch.float64)

    return TrainingBatch(
        prompts=((1,),),
        group_index=torch.zeros(len(mask), dtype=torch.int64),
        tokens=torch.zeros(loss_mask.shape, dtype=torch.int64),
        loss_mask=loss_mask,
        advantages=torch.tensor(advantages, dtype=torch.float64),
        weights=token_weights(loss_mask, method.reduction, constant_length=4, dtype=torch.float64),
        sampling_logprobs=torch.zeros(loss_mask.shape, dtype=torch.float64),
        old_logprobs=f64(old),
        ref_logprobs=f64(ref),
        pair=None if pair is None else torch.tensor(pair),
    )


def gradient(method: Method, logprobs: list[list[float]], batch: TrainingBatch) -> tuple[float, torch.Tensor]:
    values = torch.tensor(logprobs, dtype=torch.float64, requires_grad=True)
    loss = (batch.weights * method.loss(values, batch).values).sum()
    loss.backward()
    assert values.grad is not None
    return loss.item(), values.grad


def test_grpo_by_hand() -> None:
    """Two sequences of two tokens; β = 0.1, ε = 0.2; the loss and its gradient, number by number."""
    method = dataclasses.replace(GRPO, kl=KL(placement="in_loss", estimator="k3", coef=0.1))
    logp = [[-1.0, -2.0], [-0.5, -1.5]]
    ratios = [[1.5, 0.9], [0.7, 1.1]]
    old = [[lp - math.log(r) for lp, r in zip(lps, rs, strict=True)] for lps, rs in zip(logp, ratios, strict=True)]
    deltas = [[0.5, -0.2], [0.0, 0.3]]
    ref = [[lp - d for lp, d in zip(lps, ds, strict=True)] for lps, ds in zip(logp, deltas, strict=True)]
    batch = batch_of([[1, 1], [1, 1]], [[0.7, 0.7], [-0.7, -0.7]], method, old=old, ref=ref)
    loss, grad = gradient(method, logp, batch)
    # surrogate −min(rA, clip(r)A): 1.5 · 0.7 = 1.05 against 1.2 · 0.7 = 0.84 → −0.84 (clipped); 0.9 → −0.63;
    #                               0.7 · −0.7 = −0.49 against 0.8 · −0.7 = −0.56 → 0.56 (clipped); 1.1 → 0.77
    # k3 = e^−δ + δ − 1: 0.106531, 0.021403, 0, 0.040818
    # each token weighs 1/(2 · 2): (−0.84 − 0.63 + 0.56 + 0.77 + 0.1 · 0.168752) / 4
    assert loss == pytest.approx((-0.14 + 0.1 * 0.168752) / 4, abs=1e-7)
    # coefficient: rA where not clipped, − β (1 − e^−δ): 1 − e^−0.5 = 0.393469; 1 − e^0.2 = −0.221403; 0; 1 − e^−0.3 = 0.259182
    coefficient = [[0.0 - 0.0393469, 0.63 + 0.0221403], [0.0, -0.77 - 0.0259182]]
    assert grad.flatten().tolist() == pytest.approx([-c / 4 for row in coefficient for c in row], abs=1e-7)
    clipped = method.loss(torch.tensor(logp, dtype=torch.float64), batch).clipped
    assert clipped.tolist() == [[True, False], [True, False]]


def test_grpo_on_policy_is_advantage_plus_kl() -> None:
    """DeepSeekMath App. A.1: on-policy, the coefficient is Â + β (π_ref/π_θ − 1)."""
    batch = batch_of([[1]], [[0.9]], GRPO, ref=[[-1.5]])
    got = GRPO.coefficient(torch.tensor([[-1.0]], dtype=torch.float64), batch)
    assert got.item() == pytest.approx(0.9 + 0.04 * (math.exp(-0.5) - 1))


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("on_policy", [True, False])
@pytest.mark.parametrize("truncation", [None, 1.2])
def test_coefficient(name: str, on_policy: bool, truncation: float | None) -> None:
    """The autograd gradient of the loss is minus weight × coefficient, at every token: advantages that differ between tokens included."""
    method = METHODS[name]
    if method.surrogate.kind != "pairwise":
        method = dataclasses.replace(method, surrogate=dataclasses.replace(method.surrogate, truncation=truncation))
    g = torch.Generator().manual_seed(1)
    mask = torch.tensor([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0], [1, 1, 1, 1, 1], [1, 0, 0, 0, 0]])
    logp = -torch.rand(4, 5, dtype=torch.float64, generator=g)
    old, ref = (logp + 0.3 * torch.randn(4, 5, dtype=torch.float64, generator=g) for _ in range(2))
    advantages = torch.randn(4, 5, dtype=torch.float64, generator=g)
    if method.surrogate.kind == "pairwise":
        advantages = torch.tensor([[1.0], [-1.0], [1.0], [-1.0]], dtype=torch.float64).expand(4, 5)
    batch = batch_of(
        mask.tolist(), advantages.tolist(), method, old=None if on_policy else old.tolist(), ref=ref.tolist(), pair=[0, 0, 1, 1]
    )
    batch = dataclasses.replace(batch, sampling_logprobs=old + 0.2 * torch.randn(4, 5, dtype=torch.float64, generator=g))
    _, grad = gradient(method, logp.tolist(), batch)
    torch.testing.assert_close(grad, -batch.weights * method.coefficient(logp, batch))
    assert grad.abs().sum() > 0


def test_a_nan_at_a_masked_position_reaches_nothing() -> None:
    batch = batch_of([[1, 0]], [[1.0, NAN]], GRPO, old=[[-1.0, NAN]], ref=[[-1.2, NAN]])
    loss, grad = gradient(GRPO, [[-1.0, NAN]], batch)
    assert math.isfinite(loss)
    assert grad[0, 1].item() == 0.0
    assert math.isfinite(grad[0, 0].item())


def test_all_masked_is_a_loss_of_zero() -> None:
    loss, grad = gradient(GRPO, [[-1.0, -1.0]], batch_of([[0, 0]], [[1.0, 1.0]], GRPO, ref=[[0.0, 0.0]]))
    assert loss == 0.0
    assert torch.equal(grad, torch.zeros(1, 2, dtype=torch.float64))


def test_a_reference_is_needed_only_with_a_penalty() -> None:
    assert GRPO.needs_reference
    assert not dataclasses.replace(GRPO, kl=KL(placement="in_loss", coef=0.0)).needs_reference
    assert not dataclasses.replace(GRPO, kl=KL()).needs_reference


def test_another_clip_is_another_value_of_the_same_method() -> None:
    wide = dataclasses.replace(GRPO, surrogate=Surrogate(kind="clipped_token", clip_low=10, clip_high=10), kl=KL())
    batch = batch_of([[1]], [[1.0]], wide, old=[[-1.0 - math.log(5)]])
    assert wide.coefficient(torch.tensor([[-1.0]], dtype=torch.float64), batch).item() == pytest.approx(5.0)
    narrow = dataclasses.replace(GRPO, kl=KL())
    assert narrow.coefficient(torch.tensor([[-1.0]], dtype=torch.float64), batch).item() == 0.0


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"advantage": Advantage(kind="gae")}, "gae and a value loss go together"),
        ({"surrogate": Surrogate(kind="pairwise")}, "preference and the surrogate pairwise go together"),
        ({"supervision": "process"}, "process supervision go together"),
        ({"advantage": Advantage(kind="accept"), "kl": KL(placement="in_reward", coef=0.1)}, "grades by the reward"),
    ],
)
def test_a_method_that_cannot_be_carried_out_is_refused(changes: dict, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        dataclasses.replace(GRPO, **changes)


def test_shapes_are_checked() -> None:
    batch = batch_of([[1, 1]], [[1.0, 1.0]], GRPO, ref=[[0.0, 0.0]])
    with pytest.raises(ValueError, match=r"expected logprobs of shape \(1, 2\) as the tokens, got \(2, 1\)"):
        GRPO.loss(torch.zeros(2, 1), batch)
