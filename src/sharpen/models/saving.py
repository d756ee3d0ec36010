"""Writing a model as a plain Hugging Face folder, which `transformers`, vLLM and anything else that reads such folders can load."""

from __future__ import annotations

import json
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sharpen.models.manifest import sync_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def save_model(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path | str, *, dtype: str | None = None) -> Path:
    """Write config, generation config, weights (safetensors), tokenizer and chat template into `folder`, and bring them to the disk.

    The generation config names every stop id, so that whoever loads the folder stops where sharpen stops. The files are written in
    place: a writer that may be killed gives a new folder here, and renames it when this returns.

    Args:
        model: a causal language model; it is not changed. An adapter is merged in what is written.
        tokenizer: its tokenizer.
        folder: made if it is missing.
        dtype: the weights' type on disk, for example `bfloat16`; None keeps each weight as it is, bit for bit.
    """
    from transformers import GenerationConfig

    from sharpen.models import lora  # which imports torch

    folder = Path(folder)
    generation = deepcopy(model.generation_config or GenerationConfig())
    generation.eos_token_id = list(stop_token_ids(model, tokenizer))
    generation.pad_token_id = pad_token_id(model, tokenizer)
    with quiet(), _attribute(model, "generation_config", GenerationConfig()):
        # A published generation config may hold settings that `transformers` refuses to save (a temperature without sampling): so it is
        # written by hand below, as it is, and an empty one stands in here.
        state = lora.merged_state(model)
        model.save_pretrained(folder, state_dict=state if dtype is None else _cast(state, dtype))
        tokenizer.save_pretrained(folder)
    generation.to_json_file(folder / "generation_config.json", use_diff=True)
    if dtype is not None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"dtype": dtype}, indent=2) + "\n")
    sync_folder(folder)
    return folder


def stop_token_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """Every id that ends a completion: of the generation config, the config and the tokenizer, sorted; empty when none is known.

    Chat models often name two, such as Llama 3's `<|eot_id|>` and `<|end_of_text|>`, and not all three places name both.
    """
    configs = (model.generation_config, model.config.get_text_config())
    named = [getattr(config, "eos_token_id", None) for config in configs] + [tokenizer.eos_token_id]
    return tuple(sorted({int(i) for ids in named if ids is not None for i in (ids if isinstance(ids, (list, tuple)) else [ids])}))


def pad_token_id(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> int | None:
    """The tokenizer's pad id, else the generation config's, else a stop id (padding is always masked, so any id does)."""
    known = (tokenizer.pad_token_id, getattr(model.generation_config, "pad_token_id", None), *stop_token_ids(model, tokenizer))
    return next((int(i) for i in known if i is not None), None)


@contextmanager
def quiet() -> Iterator[None]:
    """No progress bars and no warnings of `transformers`: what they would say is checked and said by sharpen itself."""
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def _cast(state: dict[str, Tensor], dtype: str) -> dict[str, Tensor]:
    """The floating-point tensors of a state dict in another type; tensors that share their memory (tied weights) share it still."""
    import torch

    done: dict[tuple[int, tuple[int, ...]], Tensor] = {}
    for tensor in state.values():
        key = (tensor.data_ptr(), tuple(tensor.shape))
        if key not in done:
            done[key] = tensor.to(getattr(torch, dtype)) if tensor.is_floating_point() else tensor
    return {name: done[tensor.data_ptr(), tuple(tensor.shape)] for name, tensor in state.items()}


@contextmanager
def _attribute(target: Any, name: str, value: Any) -> Iterator[None]:
    kept = getattr(target, name)
    setattr(target, name, value)
    try:
        yield
    finally:
        setattr(target, name, kept)
