from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sharpen.errors import ModelError
from sharpen.models import tiny
from sharpen.models.loading import load
from sharpen.models.manifest import write_manifest
from sharpen.models.saving import save_model


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHARPEN_CACHE", str(tmp_path))
    return tmp_path


def untrained(seed: int) -> Path:
    tokenizer, folder = tiny.new_tokenizer(), tiny.tiny_folder(seed)
    save_model(tiny.new_model(tokenizer, seed=seed, width=32, layers=1), tokenizer, folder)
    write_manifest(folder)
    return folder


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("What is 7*31?", ["What is ", "7", "*", "3", "1", "?"]),
        ("7*3=21\nAnswer: 21", [*"7*3=21\n", "Answer: ", "2", "1"]),
        ("What\tis — é?", None),
        ("<|user|>1<|end|>", ["<|user|>", "1", "<|end|>"]),
    ],
)  # fmt: skip
def test_a_token_a_character_and_any_text_comes_back(text: str, pieces: list[str] | None) -> None:
    tokenizer = tiny.new_tokenizer()
    ids = tokenizer(text).input_ids
    assert tokenizer.decode(ids) == text
    if pieces is not None:
        assert [tokenizer.decode([i]) for i in ids] == pieces


def test_its_chat_template() -> None:
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 1+1?"}]
    tokenizer = tiny.new_tokenizer()
    asked = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert asked == "<|system|>Be brief.<|user|>What is 1+1?<|assistant|>"
    answered = tokenizer.apply_chat_template([*chat, {"role": "assistant", "content": "2"}], tokenize=False)
    assert answered == asked + "2<|end|>"


def test_its_size_and_that_the_global_random_state_stays() -> None:
    before = torch.random.get_rng_state()
    model = tiny.new_model(tiny.new_tokenizer(), seed=0)
    assert sum(weight.numel() for weight in model.parameters()) == 1_378_944
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize(
    ("name", "seed"), [("tiny", 0), ("tiny:0", 0), ("tiny:17", 17), ("tiny:", None), ("tiny:x", None), ("tin", None), ("./tiny", None)]
)
def test_its_names(name: str, seed: int | None) -> None:
    assert tiny.seed_of(name) == seed


@pytest.mark.parametrize(("name", "command"), [("tiny", "sharpen make-tiny ("), ("tiny:3", "sharpen make-tiny --seed 3 (")])
def test_before_it_is_made_the_error_says_how_to_make_it(name: str, command: str) -> None:
    with pytest.raises(ModelError, match="has not been made yet") as caught:
        load(name)
    assert f"Run: {command}" in str(caught.value)


def test_a_name_that_is_nearly_its_name() -> None:
    with pytest.raises(ModelError, match="Did you mean 'tiny'"):
        load("tinny")


def test_once_made_it_loads_and_ends_at_its_end_token() -> None:
    folder = untrained(3)
    loaded = load("tiny:3", dtype="float32", device="cpu")
    assert loaded.path == folder
    assert (loaded.stop_ids, loaded.pad_id) == ((1,), 0)
    assert loaded.tokenizer.convert_ids_to_tokens([0, 1]) == ["<|pad|>", "<|end|>"]
    assert loaded.model.lm_head.weight is loaded.model.model.embed_tokens.weight


def test_a_damaged_one_is_told_of() -> None:
    folder = untrained(0)
    assert tiny.is_made(0)
    (folder / "config.json").write_text("{}")
    assert not tiny.is_made(0)
    with pytest.raises(ModelError, match=r"damaged \(config.json has changed\)") as caught:
        load("tiny")
    assert "sharpen make-tiny --force" in str(caught.value)
