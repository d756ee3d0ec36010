"""The value model: a copy of the body, a scalar head, one value a completion token."""

from __future__ import annotations

import dataclasses

import torch

from sharpen.models.candidate import CandidateValue
from sharpen.models.value import LanguageValue
from sharpen.records import TrainingBatch, pad
from tiny import tiny_model, tiny_tokenizer


def batch() -> TrainingBatch:
    rows = [(11, 12, 2), (13, 2), (14, 15, 16, 2)]
    mask = pad([(1,) * len(row) for row in rows], dtype=torch.int64).bool()
    zeros = torch.zeros(mask.shape)
    return TrainingBatch(
        prompts=((7, 8, 9), (7, 10)),
        group_index=torch.tensor([0, 0, 1]),
        tokens=pad(rows, dtype=torch.int64),
        loss_mask=mask,
        advantages=zeros,
        weights=zeros,
        sampling_logprobs=zeros,
    )


def value_model() -> LanguageValue:
    model = LanguageValue(tiny_model(len(tiny_tokenizer())))
    with torch.no_grad():
        model.module.head.weight.copy_(torch.linspace(-1, 1, 32)[None])
        model.module.head.bias.fill_(0.25)
    return model


def test_values_begin_at_zero() -> None:
    assert torch.equal(LanguageValue(tiny_model(len(tiny_tokenizer()))).values(batch()), torch.zeros(3, 4))


def test_a_value_is_the_heads_of_the_state_that_the_token_continues() -> None:
    model = value_model()
    got = model.values(batch())
    # the second completion token of sequence 2 continues prompt 7 10 and token 14
    hidden = model.module.body(input_ids=torch.tensor([[7, 10, 14]])).last_hidden_state[0]
    expected = (hidden @ torch.linspace(-1, 1, 32) + 0.25)[1:]
    torch.testing.assert_close(got[2, :2], expected, atol=1e-5, rtol=1e-5)
    assert got[0, 3] == got[1, 2] == 0.0  # masked out
    assert got[0, 0] == got[1, 0]  # one prompt, one state


def test_a_shared_prompt_changes_nothing() -> None:
    model = value_model()
    shared = model.values(batch())
    model.states.share_prompt = False
    torch.testing.assert_close(model.values(batch()), shared, atol=1e-5, rtol=1e-5)
    assert model.cost(batch()) == [3 + 2, 3 + 1, 2 + 3]


def test_it_is_the_policys_equal_in_size_and_apart() -> None:
    policy = tiny_model(len(tiny_tokenizer()))
    model = LanguageValue(policy)
    assert sum(p.numel() for p in model.module.parameters()) == sum(p.numel() for p in policy.parameters()) + 33
    before = policy.get_decoder().layers[0].mlp.up_proj.weight.clone()
    with torch.no_grad():
        model.module.body.layers[0].mlp.up_proj.weight.add_(1)
    assert torch.equal(policy.get_decoder().layers[0].mlp.up_proj.weight, before)


def test_the_value_of_a_question_is_linear_in_its_candidates_features() -> None:
    features = torch.arange(12, dtype=torch.float64).reshape(2, 3, 2)
    model = CandidateValue(features)
    with torch.no_grad():
        model.module.weight.copy_(torch.tensor([1.0, 0, 0, 0, 0, 2.0]))
        model.module.bias.fill_(0.5)
    one = torch.ones(2, 1)
    asked = dataclasses.replace(batch(), prompts=((1,), (0,)), group_index=torch.tensor([0, 1]), tokens=one.long(), loss_mask=one.bool())
    # question 1: 6 + 2 · 11 + 0.5; question 0: 0 + 2 · 5 + 0.5
    assert model.values(asked).tolist() == [[28.5], [10.5]]
