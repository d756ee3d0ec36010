"""Our forward pass against that of transformers, family by family: log-probabilities and gradients, shared prompts against padded rows."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from families import FAMILIES, VOCABULARY, family
from sharpen.models import attention, decoder
from sharpen.models.attention import Span, attend
from sharpen.models.policy import LanguagePolicy
from sharpen.records import TrainingBatch
from tiny import tiny_model


def batch(lengths: tuple[int, ...] = (5, 1, 9, 3, 12)) -> TrainingBatch:
    width = max(lengths)
    mask = torch.arange(width)[None] < torch.tensor(lengths)[:, None]
    tokens = torch.randint(5, VOCABULARY, mask.shape, generator=torch.Generator().manual_seed(1)) * mask
    zeros = torch.zeros(mask.shape)
    return TrainingBatch(
        prompts=((7, 8, 20, 21, 9, 30, 31), (9,)),
        group_index=torch.tensor([0, 1, 0, 1, 0]),
        tokens=tokens,
        loss_mask=mask,
        advantages=zeros,
        weights=zeros,
        sampling_logprobs=zeros,
    )


def gradients(
    model: Any, *, share: bool, recompute: bool = False, lengths: tuple[int, ...]
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    policy = LanguagePolicy(model, recompute=recompute)
    policy.states.share_prompt = share
    model.zero_grad()
    got = policy.logprobs(batch(lengths), temperature=0.8).logprobs
    (got * torch.linspace(-1, 1, got.numel(), dtype=got.dtype).reshape(got.shape)).mean().backward()
    return got.detach(), {name: p.grad.clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize("lengths", [(5, 1, 9, 3, 12), (4, 4, 4, 4, 4)])
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("name", FAMILIES)
def test_shared_prompts_give_what_padded_rows_give_in_transformers(name: str, recompute: bool, lengths: tuple[int, ...]) -> None:
    model = family(name)
    ours, our_gradients = gradients(model, share=True, recompute=recompute, lengths=lengths)
    theirs, their_gradients = gradients(model, share=False, lengths=lengths)
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=0)
    for key, expected in their_gradients.items():
        torch.testing.assert_close(our_gradients[key], expected, atol=1e-5, rtol=1e-4, msg=lambda text, key=key: f"{key}: {text}")


@pytest.mark.parametrize(
    "spans", [(Span(0, 5, (3, 3)), Span(11, 2, (1, 4, 0))), (Span(0, 7),), (Span(0, 3, (0, 0)),), (Span(0, 40, (35, 50, 20)),)]
)
@pytest.mark.parametrize("keys", [2, 6])  # 6: each head has keys of its own
@pytest.mark.parametrize("block", [attention.BLOCK, 1])  # 1: sixteen positions at a time
def test_attention_in_parts_is_attention_under_a_mask(
    spans: tuple[Span, ...], block: int, keys: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "BLOCK", block)
    size = spans[-1].stop
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(size, heads, 8, generator=generator, dtype=torch.float64, requires_grad=True) for heads in (6, keys, keys))
    weights = torch.randn(size, 6, 8, generator=generator, dtype=torch.float64)
    parts = attend(q, k, v, spans, scale=0.3)
    expected = []
    for span in spans:
        rows = slice(span.start, span.stop)
        own, values = (x[rows].repeat_interleave(6 // keys, dim=1) for x in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q[rows], own) * 0.3
        expected.append(torch.einsum("hqk,khd->qhd", scores.masked_fill(~span.visible(None), -torch.inf).softmax(-1), values))
    torch.testing.assert_close(parts, torch.cat(expected))
    ours = torch.autograd.grad((parts * weights).sum(), (q, k, v))
    for got, wanted in zip(ours, torch.autograd.grad((torch.cat(expected) * weights).sum(), (q, k, v)), strict=True):
        torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize("lengths", [(20, 20), (20, 7)])
def test_in_bfloat16_only_the_rounding_differs(lengths: tuple[int, ...]) -> None:
    spans, generator = (Span(0, 10, lengths),), torch.Generator().manual_seed(0)
    exact = [torch.randn(spans[0].stop, heads, 16, generator=generator).bfloat16().double() for heads in (6, 2, 2)]
    weights = torch.randn(spans[0].stop, 6, 16, generator=generator).bfloat16().double()
    found = []
    for dtype in (torch.float64, torch.bfloat16):
        inputs = [x.to(dtype).requires_grad_() for x in exact]
        out = attend(*inputs, spans, scale=0.25)
        found.append([out.detach(), *torch.autograd.grad(out, inputs, weights.to(dtype))])
    for wanted, got in zip(*found, strict=True):
        assert got.dtype == torch.bfloat16
        # a value of bfloat16 is off by up to 2^-9 of itself; these are sums of products of two or three such
        assert float((got.double() - wanted).abs().mean() / wanted.abs().mean()) < 2**-7


def test_who_sees_whom() -> None:
    # prompt a b, completions c d and e: d sees a b c d, e sees a b e; within a window of 2 d sees c d, e sees b e
    assert Span(0, 2, (2, 1)).visible(None).int().tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 1, 1, 1, 0],
        [1, 1, 0, 0, 1],
    ]
    assert Span(0, 2, (2, 1)).visible(2).int().tolist()[3:] == [[0, 0, 1, 1, 0], [0, 1, 0, 0, 1]]


def test_which_models_have_a_forward_pass() -> None:
    model = tiny_model(VOCABULARY)
    assert decoder.why_not(model.get_decoder()) is None
    assert "Linear is none of" in (decoder.why_not(torch.nn.Linear(2, 2)) or "")
    model.config.hidden_act = "relu"
    assert decoder.why_not(model.get_decoder()) == "its activation is relu"
