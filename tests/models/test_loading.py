from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from sharpen.errors import ModelError
from sharpen.models import loading
from sharpen.models.loading import load, require_chat_template, resolve_device, resolve_dtype
from tiny import CHAT_TEMPLATE, END_OF_TEXT, IM_END, PAD, build_tiny, tiny_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return build_tiny(tmp_path / "tiny")


def edit(path: Path, **changes: object) -> None:
    """Set the keys of a JSON file; None removes one."""
    value = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: item for key, item in value.items() if item is not None}))


def test_a_local_folder(folder: Path) -> None:
    loaded = load(str(folder), dtype="float32", device="cpu")
    assert (loaded.stop_ids, loaded.pad_id, loaded.name, loaded.path) == ((IM_END, END_OF_TEXT), PAD, str(folder), folder.resolve())
    assert not loaded.model.training
    assert all(weight.requires_grad and weight.dtype == torch.float32 for weight in loaded.model.parameters())
    assert loaded.model.config._attn_implementation == "sdpa"
    assert loaded.tokenizer.chat_template == CHAT_TEMPLATE


def test_on_a_cpu_freed_memory_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(loading, "keep_freed_memory", lambda: asked.append(True))
    load(str(folder), dtype="float32", device="cpu")
    assert asked == [True]


def test_a_folder_named_from_the_current_one_comes_before_the_hub(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent.parent)
    assert load(f"{folder.parent.name}/tiny").path == folder.resolve()


def test_loading_is_silent_and_leaves_the_log_level_alone(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from transformers.utils import logging

    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    load(str(folder))
    assert capfd.readouterr() == ("", "")
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before


@pytest.mark.parametrize(
    ("generation", "config", "tokenizer", "expected"),
    [
        (2, 2, "<|im_end|>", (2,)),
        ([3, 2], 2, "<|im_end|>", (2, 3)),
        (None, 2, "<|endoftext|>", (2, 3)),
        (3, None, None, (3,)),
        (None, [2, 3], None, (2, 3)),
    ],
)
def test_stop_ids_are_the_union_of_the_three_places(
    folder: Path, generation: object, config: object, tokenizer: str | None, expected: tuple[int, ...]
) -> None:
    edit(folder / "generation_config.json", eos_token_id=generation)
    edit(folder / "config.json", eos_token_id=config)
    edit(folder / "tokenizer_config.json", eos_token=tokenizer)
    if config is None and generation is not None:
        # `LlamaConfig` fills in a default of its own for a key that is missing: null is how a file says "none".
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"eos_token_id": None}))
    assert load(str(folder)).stop_ids == expected


def test_a_tokenizer_without_a_pad_token_gets_one(folder: Path) -> None:
    edit(folder / "tokenizer_config.json", pad_token=None)
    edit(folder / "generation_config.json", pad_token_id=None)
    loaded = load(str(folder))
    assert loaded.pad_id == loaded.tokenizer.pad_token_id == IM_END
    assert loaded.tokenizer(["a", "abc"], padding=True).input_ids[0][1:] == [IM_END, IM_END]


def test_the_pad_tokens_embedding_learns_too(tmp_path: Path) -> None:
    # Untied, so that nothing but the embedding reaches the row; the pad token is the end of a turn, as in many chat models.
    folder = build_tiny(tmp_path, tie=False)
    edit(folder / "config.json", pad_token_id=IM_END)
    model = load(str(folder)).model
    model(torch.tensor([[5, IM_END, 9, 11]])).logits.logsumexp(-1).sum().backward()
    assert float(model.get_input_embeddings().weight.grad[IM_END].abs().max()) > 0


def test_weights_are_aligned_so_that_results_are_those_of_the_model_that_was_saved_bit_for_bit(tmp_path: Path) -> None:
    original = tiny_model(102)
    model = load(str(build_tiny(tmp_path)), dtype="float32", device="cpu").model
    assert {weight.data_ptr() % 64 for weight in model.parameters()} == {0}
    assert model.lm_head.weight is model.model.embed_tokens.weight
    for length in (1, 3, 20):
        tokens = torch.arange(5, 5 + length)[None]
        assert torch.equal(model(tokens).logits, original(tokens).logits)


def remove(*names: str) -> Callable[[Path], None]:
    return lambda folder: [(folder / name).unlink() for name in names] and None


def only_pickle(folder: Path) -> None:
    torch.save({}, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def only_adapter(folder: Path) -> None:
    (folder / "config.json").rename(folder / "adapter_config.json")


def shard_lost(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    shards = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))


def weights_cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (remove("config.json"), ["no config.json", "model.safetensors", "owner/name"]),
        (lambda folder: [path.unlink() for path in folder.iterdir()], ["no config.json", "holds nothing"]),
        (only_adapter, ["adapter", "Merge"]),
        (lambda folder: (folder / "config.json").write_text('{"model_type": "lla'), ["config.json is not JSON"]),
        (lambda folder: (folder / "config.json").write_text("[1]"), ["holds a list"]),
        (lambda folder: edit(folder / "config.json", model_type="unheard_of"), ["unheard_of", "causal language model"]),
        (lambda folder: edit(folder / "config.json", model_type="t5"), ["causal language model"]),
        (remove("model.safetensors"), ["no weights in safetensors", "config.json"]),
        (only_pickle, ["pytorch_model.bin", "pickle", "any code", "save_pretrained"]),
        (shard_lost, ["lacks 1 of its 2 weight files", "model-00002-of-00002.safetensors"]),
        (weights_cut, ["cannot be loaded", "damaged"]),
        (lambda folder: edit(folder / "config.json", num_hidden_layers=3), ["not whole", "missing", "model.layers.2."]),
        (lambda folder: edit(folder / "config.json", intermediate_size=48), ["cannot be loaded"]),
        (remove("tokenizer.json", "tokenizer_config.json"), ["no tokenizer", "tokenizer.json"]),
        (lambda folder: (folder / "tokenizer.json").write_text("{}"), ["tokenizer", "cannot be read"]),
        (lambda folder: tiny_model(50).save_pretrained(folder), ["ids up to 101", "embeddings for 50 only"]),
    ],
)  # fmt: skip
def test_a_folder_that_is_not_a_whole_model(folder: Path, damage: Callable[[Path], object], words: list[str]) -> None:
    damage(folder)
    with pytest.raises(ModelError) as caught:
        load(str(folder), device="cpu")
    assert str(folder) in str(caught.value)
    assert caught.value.fix
    for word in words:
        assert word in str(caught.value)


def test_a_model_that_can_never_stop_is_refused(folder: Path) -> None:
    edit(folder / "generation_config.json", eos_token_id=None)
    edit(folder / "tokenizer_config.json", eos_token=None)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"eos_token_id": None}))
    with pytest.raises(ModelError, match="ends a text"):
        load(str(folder))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("embeded", ["Did you mean 'embedded'?", "there is no folder of that name in"]),
        ("gpt2", ["there is no folder of that name in", "owner/name"]),
        ("./runs/first", ["there is no folder", "/runs/first"]),
        ("runs/first/model", ["there is no folder", "/runs/first/model"]),
        ("~/no/such", ["there is no folder", "/no/such"]),
        ("runs/first", ["there is no folder", "/runs/first, and it is not in the hub's cache, and the hub cannot be reached"]),
        ("owner/two..dots", ["there is no folder", "no model of that name"]),
    ],
)
def test_a_name_that_leads_nowhere_is_told_at_once(name: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    load_error(name)  # imports are not counted
    start = time.perf_counter()
    error = load_error(name)
    assert time.perf_counter() - start < 1
    assert '"embedded"' in (error.fix or "")
    for word in [name.removeprefix("~").removeprefix("."), *words]:
        assert word in str(error)


def load_error(name: str) -> ModelError:
    with pytest.raises(ModelError) as caught:
        load(name)
    return caught.value


def test_a_file_is_not_a_model(folder: Path) -> None:
    assert "is a file" in str(load_error(str(folder / "model.safetensors")))


def test_a_model_in_the_hubs_cache_needs_no_network(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The layout of the hub's cache: refs/main names a snapshot.
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    model = tmp_path / "models--owner--tiny"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text("abc123")
    shutil.copytree(folder, model / "snapshots" / "abc123")
    loaded = load("owner/tiny")
    assert (loaded.name, loaded.path) == ("owner/tiny", model / "snapshots" / "abc123")


def test_a_model_that_does_not_fit_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.\nMore lines.")

    monkeypatch.setattr("transformers.PreTrainedModel.to", full)
    dtype = resolve_dtype("auto", "cpu")
    assert f"does not fit on cpu in {dtype}: OutOfMemoryError: CUDA out of memory. Tried" in str(load_error(str(folder)))


def test_code_that_comes_with_a_model_is_never_run(folder: Path) -> None:
    (folder / "evil.py").write_text(f"open({str(folder / 'ran')!r}, 'w')\n")
    edit(folder / "config.json", model_type="unheard_of", auto_map={"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M"})
    load_error(str(folder))
    assert not (folder / "ran").exists()


@pytest.mark.parametrize(
    ("dtype", "cuda", "fast_cpu", "device", "expected"),
    [
        ("auto", True, False, "cuda", "bfloat16"),
        ("auto", False, True, "cuda:1", "float32"),
        ("auto", True, True, "cpu", "bfloat16"),
        ("auto", True, False, "cpu", "float32"),
        ("auto", True, True, "mps", "float32"),
        ("float32", True, True, "cuda", "float32"),
        ("bfloat16", False, False, "cpu", "bfloat16"),
    ],
)
def test_resolve_dtype(monkeypatch: pytest.MonkeyPatch, dtype: str, cuda: bool, fast_cpu: bool, device: str, expected: str) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: cuda)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: fast_cpu)
    assert resolve_dtype(dtype, device) == expected


def test_resolve_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert (resolve_device("auto"), resolve_device("cpu")) == ("cpu", "cpu")
    with pytest.raises(ModelError, match="torch sees 0 of kind cuda"):
        resolve_device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert (resolve_device("auto"), resolve_device("cuda:1")) == ("cuda", "cuda:1")
    with pytest.raises(ModelError, match="torch sees 2 of kind cuda"):
        resolve_device("cuda:2")


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda1", "cpu:x", ""])
def test_an_unknown_device(device: str) -> None:
    with pytest.raises(ModelError, match="There is no device"):
        resolve_device(device)


def test_an_unknown_dtype_names_the_nearest() -> None:
    with pytest.raises(ModelError, match="Did you mean 'bfloat16'"):
        resolve_dtype("bfloat", "cpu")


def test_require_chat_template(folder: Path) -> None:
    loaded = load(str(folder))
    require_chat_template(loaded.tokenizer, loaded.name)
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(ModelError, match="no chat template"):
        require_chat_template(load(str(folder)).tokenizer, "tiny")


def test_importing_the_module_imports_no_torch() -> None:
    code = "import sys, sharpen.models.loading, sharpen.models.embedded; print({'torch', 'transformers', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
