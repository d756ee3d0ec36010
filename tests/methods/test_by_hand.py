"""Every method by hand: two sequences of two tokens in one group, from raw rewards to the loss and its gradient, number by number.

    log π_θ      −1, −2      −0.5, −1.5
    π_θ/π_old    1.5, 0.9     0.7,  1.1        ln: 0.405465, −0.105361, −0.356675, 0.095310
    log π_θ/π_ref  0.5, −0.2    0,    0.3
    rewards      1           0

Group mean 0.5, sample deviation 0.707107, so with ε = 1e-4 the normalised advantages are ±a, a = 0.5 / 0.707207 = 0.707007.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from sharpen.methods import METHODS, Method, Surrogate
from sharpen.ops.reduce import token_weights
from sharpen.records import TrainingBatch

NAN = float("nan")
LOGP = [[-1.0, -2.0], [-0.5, -1.5]]
RATIOS = [[1.5, 0.9], [0.7, 1.1]]
DELTAS = [[0.5, -0.2], [0.0, 0.3]]
A = 0.707007
K3 = 0.106531 + 0.021403 + 0.0 + 0.040818  # e^−δ + δ − 1
DK3 = [0.393469, -0.221403, 0.0, 0.259182]  # 1 − e^−δ


def f64(rows: list[list[float]]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def worked(method: Method, **given: torch.Tensor) -> tuple[float, list[float], TrainingBatch]:
    """The loss, its gradient with respect to the four log-probabilities, and the batch."""
    mask = torch.ones(2, 2, dtype=torch.bool)
    batch = TrainingBatch(
        prompts=((1,),),
        group_index=torch.zeros(2, dtype=torch.int64),
        tokens=torch.zeros(2, 2, dtype=torch.int64),
        loss_mask=mask,
        advantages=torch.zeros(2, 2, dtype=torch.float64),
        weights=token_weights(mask, method.reduction, constant_length=4, dtype=torch.float64),
        sampling_logprobs=torch.zeros(2, 2, dtype=torch.float64),
        old_logprobs=f64(LOGP) - f64(RATIOS).log(),
        ref_logprobs=f64(LOGP) - f64(DELTAS),
        rewards=f64([[1.0, 0.0]]),
        place=torch.arange(2),
    )
    batch = method.with_advantages(replace(batch, **given))
    logprobs = f64(LOGP).requires_grad_()
    loss = (batch.weights * method.loss(logprobs, batch).values).sum()
    loss.backward()
    assert logprobs.grad is not None
    torch.testing.assert_close(logprobs.grad, -batch.weights * method.coefficient(logprobs, batch))
    return loss.item(), logprobs.grad.flatten().tolist(), batch


def close(*values: float) -> object:
    return pytest.approx(list(values), abs=2e-6)


def test_sft() -> None:
    # the mean over sequences of the mean of −log π: ((1 + 2)/2 + (0.5 + 1.5)/2) / 2
    loss, grad, _ = worked(METHODS["sft"])
    assert loss == pytest.approx((1.5 + 1.0) / 2)
    assert grad == close(-0.25, -0.25, -0.25, -0.25)


@pytest.mark.parametrize("name", ["rft", "online_rft"])
def test_rft(name: str) -> None:
    # only the first is accepted; the other still counts in the denominator of 2
    loss, grad, _ = worked(METHODS[name])
    assert loss == pytest.approx((1 + 2) / 4)
    assert grad == close(-0.25, -0.25, 0.0, 0.0)


@pytest.mark.parametrize("name", ["dpo", "online_dpo"])
def test_dpo(name: str) -> None:
    # sums of log π/π_ref with δ = 0.5, 0.2 and 0, 0.3: h = 0.1 · (0.7 − 0.3) = 0.04; −log σ(0.04) = 0.673347, σ(−0.04) = 0.490001
    loss, grad, _ = worked(METHODS[name], ref_logprobs=f64(LOGP) - f64([[0.5, 0.2], [0.0, 0.3]]))
    assert loss == pytest.approx(0.673347, abs=1e-6)
    assert grad == close(*[-0.1 * 0.490001] * 2, *[0.1 * 0.490001] * 2)


def test_ppo() -> None:
    # k1 between π_old and π_ref, δ − ln ratio: 0.094535, −0.094639, 0.356675, 0.204690; times β = 0.04, taken from the rewards
    #   r:     −0.003781, 1 + 0.003786;       −0.014267, −0.008188
    # γ = λ = 1: what is still to come less V = 0.5, 0.6; 0.2, 0.1:
    #   Â:     1.000004 − 0.5 = 0.500004, 1.003786 − 0.6 = 0.403786;   −0.022455 − 0.2 = −0.222455, −0.008188 − 0.1 = −0.108188
    values = f64([[0.5, 0.6], [0.2, 0.1]])
    loss, grad, batch = worked(METHODS["ppo"], values=values)
    assert batch.advantages.flatten().tolist() == close(0.500004, 0.403786, -0.222455, -0.108188)
    # 1.5 Â is cut to 1.2 Â; 0.7 Â to 0.8 Â
    assert loss == pytest.approx((-1.2 * 0.500004 - 0.9 * 0.403786 + 0.8 * 0.222455 + 1.1 * 0.108188) / 4, abs=2e-6)
    assert grad == close(0.0, -0.9 * 0.403786 / 4, 0.0, 1.1 * 0.108188 / 4)
    # the value model learns V + Â; while it is where it was, its loss is ½ Â², its gradient −Â
    now = values.clone().requires_grad_()
    value_loss = (batch.weights * METHODS["ppo"].value_loss(now, batch)).sum()
    value_loss.backward()
    assert value_loss.item() == pytest.approx((0.500004**2 + 0.403786**2 + 0.222455**2 + 0.108188**2) / 8, abs=2e-6)
    assert now.grad is not None
    assert now.grad.flatten().tolist() == close(-0.500004 / 4, -0.403786 / 4, 0.222455 / 4, 0.108188 / 4)


def test_grpo() -> None:
    # surrogate: −1.2 a (cut), −0.9 a, +0.8 a (cut), +1.1 a; plus β k3
    loss, grad, _ = worked(METHODS["grpo"])
    assert loss == pytest.approx(((-1.2 - 0.9 + 0.8 + 1.1) * A + 0.04 * K3) / 4, abs=2e-6)
    coefficients = [0 - 0.04 * DK3[0], 0.9 * A - 0.04 * DK3[1], 0 - 0.04 * DK3[2], -1.1 * A - 0.04 * DK3[3]]
    assert grad == close(*[-c / 4 for c in coefficients])


def test_grpo_process() -> None:
    # steps: 1 and 0.5 of the first, 0 of the second (one step): mean 0.5, deviation 0.5 → ±b and 0 with b = 0.5 / 0.5001
    # each token has what is still to end: b + 0 and 0; −b and −b
    b = 0.5 / 0.5001
    loss, grad, batch = worked(METHODS["grpo_process"], step_rewards=f64([[1.0, 0.5], [NAN, 0.0]]))
    assert batch.advantages.flatten().tolist() == close(b, 0.0, -b, -b)
    assert loss == pytest.approx(((-1.2 - 0 + 0.8 + 1.1) * b + 0.04 * K3) / 4, abs=2e-6)
    coefficients = [0 - 0.04 * DK3[0], 0 - 0.04 * DK3[1], 0 - 0.04 * DK3[2], -1.1 * b - 0.04 * DK3[3]]
    assert grad == close(*[-c / 4 for c in coefficients])


def test_grpo_process_without_steps_is_grpo() -> None:
    assert worked(METHODS["grpo_process"])[:2] == worked(METHODS["grpo"])[:2]


def test_dr_grpo() -> None:
    # Â = ±0.5, no KL, each token weighs 1/(2 · L) with L = 4
    loss, grad, _ = worked(METHODS["dr_grpo"])
    assert loss == pytest.approx((-1.2 - 0.9 + 0.8 + 1.1) * 0.5 / 8)
    assert grad == close(0.0, -0.9 * 0.5 / 8, 0.0, 1.1 * 0.5 / 8)


def test_rloo() -> None:
    # rewards less β Σ k1 (as for ppo): 1 + 0.04 · 0.000105 = 1.000004 and −0.04 · 0.561365 = −0.022455; Â = ±1.022459; weights 1/2
    loss, grad, _ = worked(METHODS["rloo"])
    assert loss == pytest.approx(1.022459 * ((1 + 2) - (0.5 + 1.5)) / 2, abs=2e-6)
    assert grad == close(*[-1.022459 / 2] * 2, *[1.022459 / 2] * 2)


def test_dapo() -> None:
    # 1.5 is cut to 1.28 above, 0.7 to 0.8 below; four tokens
    loss, grad, _ = worked(METHODS["dapo"])
    assert loss == pytest.approx((-1.28 - 0.9 + 0.8 + 1.1) * A / 4, abs=2e-6)
    assert grad == close(0.0, -0.9 * A / 4, 0.0, 1.1 * A / 4)


def test_gspo() -> None:
    # s = √(1.5 · 0.9) = 1.161895 and √(0.7 · 1.1) = 0.877496: both beyond 1 + 4e-4 and 1 − 3e-4, so nothing is left to learn
    loss, grad, _ = worked(METHODS["gspo"])
    assert loss == pytest.approx((-1.0004 + 0.9997) * A / 2, abs=2e-6)
    assert grad == close(0.0, 0.0, 0.0, 0.0)
    # within bounds of 0.2, every token of a sequence has its s
    wide = replace(METHODS["gspo"], surrogate=Surrogate(kind="clipped_sequence", clip_low=0.2, clip_high=0.2))
    loss, grad, _ = worked(wide)
    assert loss == pytest.approx((-math.sqrt(1.35) + math.sqrt(0.77)) * A / 2, abs=2e-6)
    assert grad == close(*[-math.sqrt(1.35) * A / 4] * 2, *[math.sqrt(0.77) * A / 4] * 2)


def test_cispo() -> None:
    # −ratio Â log π, no ratio beyond 5: (1.5 · 1 + 0.9 · 2) a − (0.7 · 0.5 + 1.1 · 1.5) a = 1.3 a
    loss, grad, _ = worked(METHODS["cispo"])
    assert loss == pytest.approx(1.3 * A / 4, abs=2e-6)
    assert grad == close(-1.5 * A / 4, -0.9 * A / 4, 0.7 * A / 4, 1.1 * A / 4)
    # with a bound of 1.2 the first weighs 1.2 and keeps its gradient
    bounded = replace(METHODS["cispo"], surrogate=Surrogate(kind="clipped_weight", clip_low=1.0, clip_high=0.2))
    assert worked(bounded)[1] == close(-1.2 * A / 4, -0.9 * A / 4, 0.7 * A / 4, 1.1 * A / 4)


def test_reinforce() -> None:
    loss, grad, _ = worked(METHODS["reinforce"])
    assert loss == pytest.approx((1 + 2) / 2)
    assert grad == close(-0.5, -0.5, 0.0, 0.0)


def test_reinforce_pp() -> None:
    # rewards still to come, β = 0.01: 1.000001, 1.000946; −0.005614, −0.002047; their mean 0.498322, sample deviation 0.579837
    # Â, ÷ 0.579937: 0.865058, 0.866688, −0.868948, −0.862798
    loss, grad, batch = worked(METHODS["reinforce_pp"])
    assert batch.advantages.flatten().tolist() == close(0.865058, 0.866688, -0.868948, -0.862798)
    assert loss == pytest.approx((-1.2 * 0.865058 - 0.9 * 0.866688 + 0.8 * 0.868948 + 1.1 * 0.862798) / 4, abs=2e-6)
    assert grad == close(0.0, -0.9 * 0.866688 / 4, 0.0, 1.1 * 0.862798 / 4)


def test_every_method_is_here() -> None:
    tested = {"rft", "online_rft", "dpo", "online_dpo"} | {name.removeprefix("test_") for name in globals()}
    assert set(METHODS) <= tested


def test_truncated_importance_sampling_multiplies_each_token() -> None:
    # the engine's log-probabilities are 0 here, so min(π_old/1, 2) = π_old: e^−1.405465 = 0.245253, ...
    truncated = replace(METHODS["grpo"], surrogate=replace(METHODS["grpo"].surrogate, truncation=2.0))
    _, grad, _ = worked(truncated)
    weight = [math.exp(lp) / r for lps, rs in zip(LOGP, RATIOS, strict=True) for lp, r in zip(lps, rs, strict=True)]
    coefficients = [0 - 0.04 * DK3[0], 0.9 * A * weight[1] - 0.04 * DK3[1], 0 - 0.04 * DK3[2], -1.1 * A * weight[3] - 0.04 * DK3[3]]
    assert grad == close(*[-c / 4 for c in coefficients])
