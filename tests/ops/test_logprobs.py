"""Log-probabilities through the head, against log_softmax and by finite differences."""

from __future__ import annotations

import math

import pytest
import torch

from sharpen.ops.logprobs import from_logits, through_head


def data(dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    hidden = torch.randn(7, 4, dtype=dtype, generator=g).requires_grad_()
    head = torch.randn(5, 4, dtype=dtype, generator=g).requires_grad_()
    return hidden, head, torch.tensor([0, 4, 2, 1, 1, 3, 0])


def test_by_hand() -> None:
    # logits (ln 1, ln 3): probabilities 1/4 and 3/4; entropy −(¼ ln ¼ + ¾ ln ¾) = 0.562335
    logp, entropy = from_logits(torch.tensor([[0.0, math.log(3)]]), torch.tensor([1]))
    assert logp.item() == pytest.approx(math.log(0.75))
    assert entropy.item() == pytest.approx(0.562335, abs=1e-6)
    # at temperature 0.5 the logits double: 1/10 and 9/10
    logp, _ = from_logits(torch.tensor([[0.0, math.log(3)]]), torch.tensor([1]), temperature=0.5)
    assert logp.item() == pytest.approx(math.log(0.9))


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize(("rows", "chunk"), [(1, 1), (4, 3), (7, 2), (512, 512), (512, None)])
def test_agrees_with_the_plain_path_for_every_chunk(temperature: float, rows: int, chunk: int | None) -> None:
    weights = torch.linspace(-1, 2, 7, dtype=torch.float64)
    hidden, head, targets = data()
    plain, plain_entropy = from_logits(hidden @ head.T, targets, temperature=temperature)
    (plain * weights).sum().backward()
    expected = hidden.grad, head.grad
    hidden, head, targets = data()
    got, entropy = through_head(hidden, head, targets, temperature=temperature, rows=rows, chunk=chunk)
    (got * weights).sum().backward()
    torch.testing.assert_close(got, plain)
    torch.testing.assert_close(entropy, plain_entropy)
    torch.testing.assert_close((hidden.grad, head.grad), expected)


def test_gradient_by_finite_differences() -> None:
    hidden, head, targets = data()
    cotangent = torch.randn(len(targets), dtype=torch.float64)

    def total() -> torch.Tensor:
        return through_head(hidden, head, targets, temperature=0.7, chunk=4)[0] @ cotangent

    total().backward()
    for x in (hidden, head):
        flat, grad = x.detach().view(-1), x.grad
        assert grad is not None
        for i in range(0, len(flat), 3):
            step = torch.zeros_like(flat)
            step[i] = 1e-6
            with torch.no_grad():
                flat += step
                above = total()
                flat -= 2 * step
                below = total()
                flat += step
            assert float((above - below) / 2e-6) == pytest.approx(float(grad.view(-1)[i]), abs=1e-7)


def test_the_gradient_can_be_taken_once() -> None:
    hidden, head, targets = data()
    total = through_head(hidden, head, targets)[0].sum()
    total.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        total.backward()


def test_no_rows() -> None:
    logp, entropy = through_head(torch.zeros(0, 4), torch.zeros(5, 4), torch.zeros(0, dtype=torch.int64))
    assert logp.shape == entropy.shape == (0,)


def test_an_impossible_token_does_not_spoil_the_entropy() -> None:
    logp, entropy = through_head(torch.tensor([[1.0]]), torch.tensor([[0.0], [float("-inf")]]), torch.tensor([0]))
    assert logp.item() == pytest.approx(0.0)
    assert entropy.item() == pytest.approx(0.0)


def test_a_sure_token_keeps_its_small_gradient_in_bfloat16() -> None:
    # logits 6, 0, 0: p = e^6 / (e^6 + 2) = 0.995067, which bfloat16 rounds to 0.996094; 1 - p = 0.004933, not 0.003906
    hidden = torch.tensor([[1.0]], dtype=torch.bfloat16, requires_grad=True)
    head = torch.tensor([[6.0], [0.0], [0.0]], dtype=torch.bfloat16, requires_grad=True)
    logprob, _ = through_head(hidden, head, torch.tensor([0]))
    logprob.sum().backward()
    assert head.grad is not None
    assert head.grad.flatten().tolist() == pytest.approx([0.004933, -0.002467, -0.002467], rel=2**-7)
