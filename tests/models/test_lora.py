"""LoRA: the arithmetic by hand, what is trained, and that the model without its adapter is the model that was."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from sharpen.errors import MissingPackageError, RecipeError
from sharpen.models import lora
from sharpen.models.loading import load
from sharpen.models.lora_settings import LoraSettings
from sharpen.models.policy import LanguagePolicy
from sharpen.models.saving import save_model
from sharpen.models.value import LanguageValue
from sharpen.records import TrainingBatch
from tiny import build_tiny, tiny_model, tiny_tokenizer

TOKENS = torch.tensor([[1, 20, 21, 22, 23, 24, 25]])


def adapted(seed: int = 1, *, tie: bool = True, moved: bool = True, dtype: torch.dtype = torch.float32, **settings: Any) -> Any:
    """The tiny model with an adapter, of which B is moved away from 0 as training would."""
    model = tiny_model(len(tiny_tokenizer()), tie=tie).to(dtype)
    lora.attach(model, LoraSettings(**{"rank": 4} | settings), seed=seed, base="there")
    if moved:
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for _, layer in lora.layers(model):
                b = layer.lora_B[lora.ADAPTER].weight
                b.copy_(0.1 * torch.randn(b.shape, generator=generator))
    return model


def logits(model: Any) -> Tensor:
    with torch.no_grad():
        return model(TOKENS).logits


class OneLayer(nn.Module):
    """What `attach` needs of a model, around one layer of two inputs and two outputs."""

    def __init__(self, weight: list[list[float]], dtype: torch.dtype) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2, bias=False, dtype=dtype)
        self.layer.weight.data = torch.tensor(weight, dtype=dtype)
        self.embedding = nn.Embedding(2, 2)

    def get_input_embeddings(self) -> nn.Module:
        return self.embedding


def one_layer(dtype: torch.dtype = torch.float32, **settings: Any) -> Any:
    model = OneLayer([[1.0, 2.0], [3.0, 4.0]], dtype)
    lora.attach(model, LoraSettings(rank=1, alpha=2, target_modules=["layer"], **settings), seed=0, base="there")
    model.layer.lora_A[lora.ADAPTER].weight.data = torch.tensor([[0.5, -1.0]])
    model.layer.lora_B[lora.ADAPTER].weight.data = torch.tensor([[1.0], [0.25]])
    return model.layer


def test_the_effective_weight_by_hand() -> None:
    layer = one_layer()
    # B·A = [[1·0.5, 1·-1], [0.25·0.5, 0.25·-1]] = [[0.5, -1], [0.125, -0.25]], times alpha / rank = 2, added to [[1, 2], [3, 4]]
    expected = torch.tensor([[2.0, 0.0], [3.25, 3.5]])
    weight = lora.effective_weight(layer)
    assert torch.equal(weight, expected)
    assert not weight.requires_grad
    # x = [1, 3]: W x = [7, 15], A x = -2.5, and 2·B·-2.5 = [-5, -1.25]
    assert layer(torch.tensor([[1.0, 3.0]])).tolist() == [[2.0, 13.75]]
    weight.zero_()  # it is a tensor of its own
    assert layer.base_layer.weight.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    with lora.without(layer):
        assert lora.effective_weight(layer).tolist() == [[1.0, 2.0], [3.0, 4.0]]
        assert layer(torch.tensor([[1.0, 3.0]])).tolist() == [[7.0, 15.0]]
    assert torch.equal(lora.effective_weight(layer), expected)


def test_the_effective_weight_of_a_plain_layer_is_a_copy() -> None:
    plain = nn.Linear(2, 2)
    weight = lora.effective_weight(plain)
    assert torch.equal(weight, plain.weight)
    assert weight.data_ptr() != plain.weight.data_ptr()
    assert not weight.requires_grad


def test_rslora_scales_by_the_root_of_the_rank() -> None:
    model = OneLayer([[0.0, 0.0], [0.0, 0.0]], torch.float32)
    lora.attach(model, LoraSettings(rank=4, alpha=6, use_rslora=True, target_modules=["layer"]), seed=0, base="there")
    model.layer.lora_A[lora.ADAPTER].weight.data = torch.ones(4, 2)
    model.layer.lora_B[lora.ADAPTER].weight.data = torch.ones(2, 4)
    assert lora.effective_weight(model.layer).tolist() == [[12.0, 12.0], [12.0, 12.0]]  # 6 / √4 times a sum of four ones


def test_the_sum_is_taken_in_float32_and_rounded_once() -> None:
    layer = one_layer(torch.bfloat16)
    layer.lora_A[lora.ADAPTER].weight.data = torch.tensor([[2.0**-9, 0.0]])
    weight = lora.effective_weight(layer)
    assert weight.dtype == torch.bfloat16
    # bfloat16 keeps 8 bits: from 1 it goes to 1 + 2⁻⁷, and 1 + 2·2⁻⁹ lies half way between and goes to the even one, 1
    assert weight.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    layer.lora_A[lora.ADAPTER].weight.data = torch.tensor([[2.0**-9 + 2.0**-16, 0.0]])
    assert lora.effective_weight(layer)[0, 0] == 1 + 2**-7
    assert {p.dtype for p in layer.parameters() if p.requires_grad} == {torch.float32}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_without_its_adapter_it_is_the_model_that_was(dtype: torch.dtype) -> None:
    before = logits(tiny_model(len(tiny_tokenizer())).to(dtype))
    assert torch.equal(logits(adapted(dtype=dtype, moved=False)), before)  # B is 0
    model = adapted(dtype=dtype)
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    after = logits(model)
    assert (after - before).abs().max() > 0.1
    with lora.without(model):
        assert torch.equal(logits(model), before)
    assert torch.equal(logits(model), after)
    assert [name for name, p in model.named_parameters() if p.requires_grad] == trained


def test_only_adapters_get_gradients() -> None:
    model = adapted()
    assert type(model) is type(tiny_model(10))
    model(TOKENS).logits.square().mean().backward()
    with_gradient = {name for name, p in model.named_parameters() if p.grad is not None and p.grad.abs().max() > 0}
    # two layers of four attention and three feed-forward matrices, an A and a B each; the head and the embedding stay
    assert len(with_gradient) == 2 * 7 * 2
    assert all(".lora_A." in name or ".lora_B." in name for name in with_gradient)
    assert with_gradient == {name for name, p in model.named_parameters() if p.requires_grad}


def test_a_is_drawn_from_the_runs_seed() -> None:
    def draws(seed: int) -> list[Tensor]:
        return [layer.lora_A[lora.ADAPTER].weight.detach() for _, layer in lora.layers(adapted(seed, moved=False))]

    first = draws(1)
    torch.manual_seed(99)  # the global generator has no say
    assert all(torch.equal(a, b) for a, b in zip(first, draws(1), strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(first, draws(2), strict=True))
    assert not torch.equal(first[0], first[1][:, :32])  # each layer has draws of its own
    for a in first:
        assert a.abs().max() <= a.shape[1] ** -0.5
        assert a.std() == pytest.approx((a.shape[1] * 3) ** -0.5, rel=0.25)  # of a uniform distribution


@pytest.mark.parametrize("tie", [True, False])
def test_what_is_written_is_a_plain_model_and_an_adapter(tmp_path: Path, tie: bool) -> None:
    from peft import PeftModel

    build_tiny(tmp_path / "base", tie=tie)
    model = adapted(tie=tie)
    kept = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    save_model(model, tiny_tokenizer(), tmp_path / "merged")
    lora.save_adapter(model, tmp_path / "adapter")
    assert all(torch.equal(kept[name], tensor) for name, tensor in model.state_dict().items())  # nothing was merged in place

    merged = load(str(tmp_path / "merged"), dtype="float32", device="cpu").model
    assert merged.state_dict().keys() == tiny_model(len(tiny_tokenizer()), tie=tie).state_dict().keys()
    torch.testing.assert_close(logits(merged), logits(model), atol=1e-5, rtol=1e-5)
    on_top = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(tmp_path / "base"), tmp_path / "adapter").eval()
    assert torch.equal(logits(on_top), logits(model))
    config = json.loads((tmp_path / "adapter/adapter_config.json").read_text())
    assert (config["base_model_name_or_path"], config["r"], config["lora_alpha"]) == ("there", 4, 32)
    assert config["target_modules"] == sorted(config["target_modules"])


def test_the_reference_is_the_policy_with_its_adapter_off() -> None:
    ones = torch.ones(1, 3)
    batch = TrainingBatch(
        prompts=((7, 8),),
        group_index=torch.tensor([0]),
        tokens=torch.tensor([[11, 12, 13]]),
        loss_mask=ones.bool(),
        advantages=ones,
        weights=ones,
        sampling_logprobs=ones,
    )
    policy = LanguagePolicy(adapted())
    reference = lora.WithoutAdapter(policy)
    before = LanguagePolicy(tiny_model(len(tiny_tokenizer()))).logprobs(batch, temperature=0.7)
    assert torch.equal(reference.logprobs(batch, temperature=0.7).logprobs, before.logprobs)
    assert not torch.equal(policy.logprobs(batch, temperature=0.7).logprobs, before.logprobs)
    assert reference.cost(batch) == policy.cost(batch)


def test_a_value_model_is_a_copy_of_the_plain_body_and_trained_whole() -> None:
    value, plain = LanguageValue(adapted()), LanguageValue(tiny_model(len(tiny_tokenizer())))
    assert value.module.state_dict().keys() == plain.module.state_dict().keys()
    assert all(torch.equal(tensor, plain.module.state_dict()[name]) for name, tensor in value.module.state_dict().items())
    assert all(p.requires_grad for p in value.module.parameters())


def test_what_cannot_be_adapted_is_told() -> None:
    with pytest.raises(RecipeError, match=r"(?s)no linear layer 'qproj'\. Did you mean 'q_proj'\?.*It has: down_proj, gate_proj, k_proj"):
        adapted(target_modules=["v_proj", "qproj"])
    with pytest.raises(RecipeError, match="no linear layer 'embed_tokens'"):
        adapted(target_modules=["embed_tokens"])
    with pytest.raises(RecipeError, match="the weight of 'lm_head' is the embedding's too"):
        adapted(target_modules=["lm_head"])
    model = adapted(target_modules=["lm_head", "q_proj"], tie=False)
    assert [name.rpartition(".")[2] for name, _ in lora.layers(model)] == ["q_proj", "q_proj", "lm_head"]
    plain = tiny_model(len(tiny_tokenizer()), tie=False)
    plain.load_state_dict(lora.merged_state(model))
    torch.testing.assert_close(logits(plain), logits(model), atol=1e-5, rtol=1e-5)


def test_without_peft_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(MissingPackageError, match=r"LoRA.*needs the package `peft`(?s:.*)pip install 'sharpen\[lora\]'"):
        adapted()
