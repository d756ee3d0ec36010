from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from sharpen.models.loading import LoadedModel, load
from sharpen.models.saving import save_model
from tiny import END_OF_TEXT, IM_END, PAD, build_tiny


@pytest.fixture(params=[True, False], ids=["tied", "untied"])
def loaded(tmp_path: Path, request: pytest.FixtureRequest) -> LoadedModel:
    return load(str(build_tiny(tmp_path / "source", tie=request.param)), dtype="float32", device="cpu")


def greedy(model: torch.nn.Module, tokens: list[int]) -> list[int]:
    return model.generate(torch.tensor([tokens]), max_new_tokens=24, do_sample=False)[0].tolist()


def test_plain_transformers_loads_what_was_saved_bit_for_bit(loaded: LoadedModel, tmp_path: Path) -> None:
    with torch.no_grad():
        for weight in loaded.model.parameters():
            weight.add_(0.01 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)))
    folder = save_model(loaded.model, loaded.tokenizer, tmp_path / "saved")
    again, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)

    assert again.dtype == torch.float32
    before, after = loaded.model.state_dict(), again.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    tied = loaded.model.config.tie_word_embeddings
    assert (again.lm_head.weight is again.model.embed_tokens.weight) == tied

    chat = [{"role": "user", "content": "What is 2 + 2?"}]
    text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert text == loaded.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    tokens = tokenizer(text, add_special_tokens=False).input_ids
    assert tokenizer.decode(greedy(again, tokens)) == loaded.tokenizer.decode(greedy(loaded.model, tokens))
    assert len(greedy(again, tokens)) > len(tokens) + 1


def test_the_generation_config_names_every_stop_id(loaded: LoadedModel, tmp_path: Path) -> None:
    # One in each place: the generation config, the config, the tokenizer.
    loaded.model.generation_config.eos_token_id = 7
    loaded.model.config.eos_token_id = [END_OF_TEXT]
    folder = save_model(loaded.model, loaded.tokenizer, tmp_path / "saved")
    generation = AutoModelForCausalLM.from_pretrained(folder).generation_config
    assert generation.eos_token_id == [IM_END, END_OF_TEXT, 7]
    assert generation.pad_token_id == PAD
    assert loaded.model.generation_config.eos_token_id == 7, "the model itself is left as it was"


def test_a_generation_config_that_transformers_would_refuse_is_saved(loaded: LoadedModel, tmp_path: Path) -> None:
    loaded.model.generation_config.temperature = 0.6  # without do_sample: seen in published models
    with pytest.raises(ValueError, match="temperature"):
        loaded.model.save_pretrained(tmp_path / "plain")
    folder = save_model(loaded.model, loaded.tokenizer, tmp_path / "saved")
    assert json.loads((folder / "generation_config.json").read_text())["temperature"] == 0.6


def test_another_dtype_on_disk(loaded: LoadedModel, tmp_path: Path) -> None:
    folder = save_model(loaded.model, loaded.tokenizer, tmp_path / "saved", dtype="bfloat16")
    again = load(str(folder), dtype="bfloat16", device="cpu").model
    assert json.loads((folder / "config.json").read_text())["dtype"] == "bfloat16"
    assert all(torch.equal(b.bfloat16(), a) for b, a in zip(loaded.model.parameters(), again.parameters(), strict=True))
    assert loaded.model.dtype == torch.float32
    full = save_model(loaded.model, loaded.tokenizer, tmp_path / "full")
    assert (folder / "model.safetensors").stat().st_size < 0.6 * (full / "model.safetensors").stat().st_size


def test_every_file_reaches_the_disk(loaded: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: set[tuple[int, int]] = set()

    def fsync(descriptor: int) -> None:
        status = os.fstat(descriptor)
        assert stat.S_ISDIR(status.st_mode) or status.st_size > 0
        synced.add((status.st_dev, status.st_ino))

    monkeypatch.setattr(os, "fsync", fsync)
    folder = save_model(loaded.model, loaded.tokenizer, tmp_path / "saved")
    names = {path.name for path in folder.iterdir()}
    assert {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"} <= names
    for path in [folder, *folder.iterdir()]:
        status = path.stat()
        assert (status.st_dev, status.st_ino) in synced, path.name
