"""Packing, and gradients that do not depend on it."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from sharpen.models.attention import Span
from sharpen.models.policy import LanguagePolicy, stream
from sharpen.records import TrainingBatch
from tiny import tiny_model, tiny_tokenizer


@pytest.fixture(autouse=True)
def norms_of_full_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Transformers computes norms in float32 whatever the model's type; here in the model's, so that float64 is compared with float64."""

    def forward(self: LlamaRMSNorm, x: torch.Tensor) -> torch.Tensor:
        return functional.rms_norm(x, (x.shape[-1],), self.weight, self.variance_epsilon)

    monkeypatch.setattr(LlamaRMSNorm, "forward", forward)


def batch() -> TrainingBatch:
    tokens = torch.tensor([[11, 12, 13], [14, 0, 0], [15, 16, 0]])
    mask = torch.tensor([[1, 1, 1], [1, 0, 0], [1, 1, 0]]).bool()
    zeros = torch.zeros(3, 3)
    return TrainingBatch(
        prompts=((7, 8), (9,)),
        group_index=torch.tensor([0, 1, 0]),
        tokens=tokens,
        loss_mask=mask,
        advantages=zeros,
        weights=zeros,
        sampling_logprobs=zeros,
    )


def test_a_group_lies_behind_its_prompt_without_padding() -> None:
    laid = stream(batch())
    # group 0: prompt 7 8, then 11 12 (13 is predicted, not fed), then 15 (16 is not fed); group 1: prompt 9 and nothing fed
    assert laid.tokens.tolist() == [7, 8, 11, 12, 15, 9]
    assert laid.positions.tolist() == [0, 1, 2, 3, 2, 0]
    assert laid.spans == (Span(0, 2, (2, 1)), Span(5, 1, (0,)))
    assert laid.targets.tolist() == [11, 12, 13, 14, 15, 16]
    # 11 from the prompt's last position (1), 12 and 13 from 2 and 3; 14 from 5; 15 from 1, 16 from 4
    assert laid.sources.tolist() == [1, 2, 3, 5, 1, 4]


def test_or_each_sequence_behind_a_copy_of_it() -> None:
    laid = stream(batch(), share_prompt=False)
    assert laid.tokens.tolist() == [7, 8, 11, 12, 9, 7, 8, 15]
    assert laid.sources.tolist() == [1, 2, 3, 4, 6, 7]


def test_both_layouts_give_the_same_gradient() -> None:
    model = tiny_model(len(tiny_tokenizer())).double()

    def gradients(share: bool) -> tuple[torch.Tensor, list[torch.Tensor]]:
        policy = LanguagePolicy(model)
        policy.states.share_prompt = share
        model.zero_grad()
        output = policy.logprobs(batch(), temperature=0.8)
        (output.logprobs * torch.linspace(-1, 1, 9, dtype=torch.float64).reshape(3, 3)).sum().backward()
        return output.logprobs.detach(), [p.grad.clone() for p in model.parameters() if p.grad is not None]

    (shared, a), (apart, b) = gradients(True), gradients(False)
    torch.testing.assert_close(shared, apart)
    torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)  # the norms of the model are float32 whatever its weights are


def test_it_is_the_models_own_distribution() -> None:
    model = tiny_model(len(tiny_tokenizer())).double()
    got = LanguagePolicy(model).logprobs(batch(), temperature=0.5)
    logits = model(torch.tensor([[7, 8, 11, 12]])).logits[0] / 0.5
    full = logits.log_softmax(-1)
    torch.testing.assert_close(got.logprobs[0], torch.stack([full[1, 11], full[2, 12], full[3, 13]]))
    torch.testing.assert_close(got.entropy[0], -(full.exp() * full).sum(-1)[1:])
    # without a plain head the whole logits are taken, to the same end
    policy = LanguagePolicy(model)
    policy._head = None
    torch.testing.assert_close(policy.logprobs(batch(), temperature=0.5).logprobs, got.logprobs)
