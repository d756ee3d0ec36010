"""AdamW by hand, the schedules, master copies, and state that survives a checkpoint."""

from __future__ import annotations

import math

import pytest
import torch

from sharpen.training import optimiser as optimiser_module
from sharpen.training.optimiser import Optimiser, joined, rate_factor, split, state_bytes


def one(value: float, dtype: torch.dtype = torch.float32) -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.tensor([value], dtype=dtype))


def test_the_first_update_by_hand() -> None:
    p = one(1.0)
    optimiser = Optimiser([("p", p)], learning_rate=0.1, max_grad_norm=math.inf)
    p.grad = torch.tensor([4.0])
    # m̂ = g and v̂ = g² after bias correction, so the step is lr · g/|g| = 0.1
    assert optimiser.step() == pytest.approx(4.0)
    assert p.item() == pytest.approx(0.9, abs=1e-6)
    assert p.grad is None


def test_each_update_has_its_own_rate() -> None:
    p = one(1.0)
    optimiser = Optimiser([("p", p)], learning_rate=0.1, max_grad_norm=math.inf, warmup=2, total=4, schedule="linear")
    for expected in (0.95, 0.85, 0.75, 0.70):  # equal gradients, so each step is its rate: 1/2, 1, 1 and 1/2 of the peak
        p.grad = torch.tensor([4.0])
        optimiser.step()
        assert p.item() == pytest.approx(expected, abs=1e-5)


def test_gradients_are_clipped_to_the_norm() -> None:
    p, q = one(0.0), one(0.0)
    optimiser = Optimiser([("p", p), ("q", q)], learning_rate=0.1, max_grad_norm=1.0)
    p.grad, q.grad = torch.tensor([3.0]), torch.tensor([4.0])
    assert optimiser.step() == pytest.approx(5.0)  # before clipping
    # the first moment holds (1 − 0.9) · clipped gradient
    assert optimiser.state_tensors()["exp_avg/p"].item() == pytest.approx(0.1 * 3 / 5, rel=1e-4)


def test_a_gradient_that_is_not_finite_makes_no_update() -> None:
    p = one(1.0)
    optimiser = Optimiser([("p", p)], learning_rate=0.1)
    p.grad = torch.tensor([math.nan])
    assert math.isnan(optimiser.step())
    assert (p.item(), optimiser.updates) == (1.0, 0)


@pytest.mark.parametrize(
    ("schedule", "update", "factor"),
    [
        ("constant", 0, 0.25), ("constant", 3, 1.0), ("constant", 99, 1.0),
        ("linear", 4, 1.0), ("linear", 9, 0.5), ("linear", 14, 0.0),
        ("cosine", 4, 1.0), ("cosine", 9, 0.5), ("cosine", 14, 0.0),
    ],
)  # fmt: skip
def test_schedules(schedule, update: int, factor: float) -> None:
    assert rate_factor(update, warmup=4, total=14, schedule=schedule) == pytest.approx(factor)


def test_a_master_copy_keeps_what_bfloat16_would_lose() -> None:
    p = one(1.0, torch.bfloat16)
    optimiser = Optimiser([("p", p)], learning_rate=1e-3)
    for _ in range(10):
        p.grad = torch.tensor([1.0], dtype=torch.bfloat16)
        optimiser.step()
    # ten steps of 0.001, each less than half a unit in the last place of bfloat16 below 1 (2^-8 / 2 = 0.00195)
    assert optimiser.state_tensors()["master/p"].item() == pytest.approx(0.99, abs=1e-4)
    assert p.item() == pytest.approx(0.9883, abs=2e-3)
    assert p.dtype == torch.bfloat16


def test_a_float32_is_a_bfloat16_and_the_bits_it_lacks() -> None:
    values = [1.0, -1.0, 0.0, -0.0, 1e-45, -3e-39, 3.4028235e38, -3.4028235e38, math.inf, -math.inf, math.pi, -1e-7]
    # 1 + 2^-8 lies between the bfloat16s 1 and 1 + 2^-7: away from zero; the bits that it has less are 0x8000
    ties = [1 + 2**-8, -1 - 2**-8, 1 + 3 * 2**-8]
    wide = torch.cat([torch.tensor(values + ties), torch.randn(10000, generator=torch.Generator().manual_seed(0))])
    upper, lower = torch.empty(len(wide), dtype=torch.bfloat16), torch.empty(len(wide), dtype=torch.int16)
    split(wide, upper, lower)
    assert torch.equal(joined(upper, lower).view(torch.int32), wide.view(torch.int32))  # the sign of 0 too
    assert upper[len(values) :][:3].tolist() == [1 + 2**-7, -1 - 2**-7, 1 + 2 * 2**-7]
    assert lower[len(values) :][:3].tolist() == [-0x8000] * 3
    nearest = wide.bfloat16()
    nearest[len(values) : len(values) + 3] = upper[len(values) : len(values) + 3]
    assert torch.equal(upper, nearest)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["adamw", "adafactor"])
def test_state_survives_bit_for_bit(kind, dtype: torch.dtype) -> None:
    def run(parted: bool) -> torch.Tensor:
        torch.manual_seed(0)
        p = torch.nn.Parameter(torch.randn(5, 3).to(dtype))
        optimiser = Optimiser([("p", p)], learning_rate=1e-2, kind=kind, warmup=3, total=8, schedule="cosine")
        for i in range(8):
            if parted and i == 4:
                q = torch.nn.Parameter(p.detach().clone())
                fresh = Optimiser([("p", q)], learning_rate=1e-2, kind=kind, warmup=3, total=8, schedule="cosine")
                fresh.load_state_tensors(optimiser.state_tensors(), optimiser.updates)
                p, optimiser = q, fresh
            p.grad = torch.sin(torch.arange(15.0).view(5, 3) + i).to(dtype)
            optimiser.step()
        return p.detach() if dtype == torch.float32 else optimiser.state_tensors()["master/p"]

    assert torch.equal(run(parted=True), run(parted=False))


def test_the_first_update_of_adafactor_by_hand() -> None:
    p = torch.nn.Parameter(torch.tensor([[1.0, 1.0], [1.0, 1.0]]))
    optimiser = Optimiser([("p", p)], learning_rate=0.1, kind="adafactor", max_grad_norm=math.inf)
    p.grad = torch.tensor([[1.0, 2.0], [2.0, 4.0]])
    optimiser.step()
    # Row means of the squares 2.5, 10; column means 2.5, 10; their product over the mean 6.25 is 1, 4, 4, 16: the squares themselves, so
    # each entry moves by rate · RMS of the parameter = 0.1 · 1
    torch.testing.assert_close(p.detach(), torch.full((2, 2), 0.9), atol=1e-6, rtol=0.0)
    kept = {name: tuple(tensor.shape) for name, tensor in optimiser.state_tensors().items() if tensor.dim()}
    assert kept == {"row_var/p": (2, 1), "col_var/p": (1, 2)}


def test_an_update_does_not_depend_on_how_the_parameters_are_parted(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(part: int) -> list[torch.Tensor]:
        monkeypatch.setattr(optimiser_module, "PART", part)
        torch.manual_seed(0)
        parameters = [(str(n), torch.nn.Parameter(torch.randn(n).bfloat16())) for n in (3, 4, 9, 1)]
        optimiser = Optimiser(parameters, learning_rate=1e-2, max_grad_norm=0.5)
        assert len(optimiser.parts) == {100: 1, 8: 3, 1: 4}[part]  # 3 + 4, then 9 alone, then 1
        for _ in range(3):
            for _, p in parameters:
                p.grad = torch.randn_like(p)
            optimiser.step()
        return [tensor for name, tensor in sorted(optimiser.state_tensors().items()) if name.startswith("master/")]

    whole = run(100)
    for part in (8, 1):
        assert all(torch.equal(a, b) for a, b in zip(run(part), whole, strict=True))


def test_what_is_kept_by_hand() -> None:
    tensors = [torch.zeros(4, 6), torch.zeros(5, dtype=torch.bfloat16)]
    # two moments of four bytes for 29 entries; for the five in bfloat16 two bytes of what they lack, and for the time of an update a master
    # copy and a gradient of four
    assert state_bytes(tensors, "adamw") == 8 * 29 + 10 * 5
    # a mean square for each of four rows and six columns, and one for each entry of the vector
    assert state_bytes(tensors, "adafactor") == 4 * (4 + 6 + 5) + 10 * 5
