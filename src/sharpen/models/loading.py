"""Loading a causal language model: the embedded or the tiny one, a local Hugging Face folder, or a model of the hub.

Whatever the name, it comes down to a local folder, which is checked before anything is read: weights in safetensors only (a pickle
file can run any code), every weight of the model there, and a tokenizer that fits it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sharpen.allocator import keep_freed_memory
from sharpen.errors import ModelError, nearest
from sharpen.models import tiny
from sharpen.models.saving import pad_token_id, quiet, stop_token_ids

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

EMBEDDED = "embedded"
DTYPES = ("float32", "bfloat16", "float16")

# Any one of these makes a tokenizer.
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "tekken.json")
HUB_FILES = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]
NOT_HUB_FILES = ["original/*", "consolidated*"]  # the same weights again, in other layouts
PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt")
WHAT_TO_GIVE = 'Give a local folder that holds config.json, a model of the hub as "owner/name" (needs the network), "embedded" or "tiny".'


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model ready to be sampled from or trained.

    Attributes:
        model: the causal language model, in eval mode, on its device.
        tokenizer: its tokenizer; it has a pad token.
        stop_ids: every token id that ends a completion, sorted, for example `(0, 2)`; at least one.
        pad_id: the id that fills up short rows; it may be a stop id, so a mask and not the id tells what is padding.
        name: as it was asked for, for example `embedded`.
        path: the folder that the files were read from.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    stop_ids: tuple[int, ...]
    pad_id: int
    name: str
    path: Path

    @property
    def source(self) -> str:
        """What other programs find it by: the hub id of a model of the hub, else its folder."""
        of_hub = "/" in self.name and not Path(self.name).expanduser().is_dir()
        return self.name if of_hub else str(self.path)


def load(name: str, *, dtype: str = "auto", device: str = "auto") -> LoadedModel:
    """Load a model and its tokenizer.

    Args:
        name: `embedded`, `tiny`, a folder, or a hub id such as `Qwen/Qwen3-0.6B`. A folder of that name comes before the hub.
        dtype: `float32`, `bfloat16`, `float16`, or `auto`: see `resolve_dtype`.
        device: `cpu`, `cuda`, `cuda:1`, `mps`, or `auto`: see `resolve_device`.

    Raises:
        ModelError: no such model, or one that cannot be used; the message says what was looked for and what to do.
        MissingPackageError: the embedded model is asked for, and the package that brings it is not installed.
    """
    device = resolve_device(device)
    dtype = resolve_dtype(dtype, device)
    if device == "cpu":
        keep_freed_memory()
    folder = find_folder(name)
    check_folder(folder, name)
    with quiet():
        tokenizer = load_tokenizer(folder, name)
        model = load_weights(folder, name, dtype, device)
    finish(model, tokenizer, name)
    stop_ids, pad_id = stop_token_ids(model, tokenizer), pad_token_id(model, tokenizer)
    if not stop_ids or pad_id is None:
        raise ModelError(
            f"The model {name} names no token that ends a text, so nothing it writes would ever stop.",
            fix='Set "eos_token_id" in its generation_config.json.',
        )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.convert_ids_to_tokens(pad_id)
    return LoadedModel(model=model, tokenizer=tokenizer, stop_ids=stop_ids, pad_id=pad_id, name=name, path=folder)


def resolve_device(device: str) -> str:
    """The device to use: `auto` is the first CUDA device where there is one, and the CPU elsewhere; a named one must be there."""
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    kind, _, index = device.partition(":")
    if kind not in ("cpu", "cuda", "mps") or not re.fullmatch(r"(:\d+)?", device[len(kind) :]):
        guess = nearest(device, ["auto", "cpu", "cuda", "mps"])
        raise ModelError(f"There is no device {device!r}.{guess}", fix="Give auto, cpu, mps, cuda, or cuda:1 and so on.")
    count = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}[kind]
    if int(index or 0) >= count:
        raise ModelError(f"The device {device!r} is not here: torch sees {count} of kind {kind}.", fix='Give device = "auto", or "cpu".')
    return device


def resolve_dtype(dtype: str, device: str) -> str:
    """The weights' type: `auto` is bfloat16 where the device multiplies it fast, and float32 elsewhere.

    Fast are CUDA devices since 2020 (Ampere) and CPUs with AMX or AVX512-BF16. On others the same matrix product takes about five times
    as long in bfloat16 as in float32.

    Args:
        dtype: `auto`, `float32`, `bfloat16` or `float16`.
        device: a device as `resolve_device` gives it.
    """
    if dtype != "auto":
        if dtype not in DTYPES:
            raise ModelError(f"There is no dtype {dtype!r}.{nearest(dtype, DTYPES)}", fix=f"Give auto, {', '.join(DTYPES)}.")
        return dtype
    import torch

    if device.startswith("cuda"):
        fast = torch.cuda.is_bf16_supported(including_emulation=False)
    elif device.startswith("cpu"):
        # Private names of `torch`: a release without them takes float32, which is right everywhere, if slower.
        names = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
        fast = any(getattr(torch.cpu, name, lambda: False)() for name in names)
    else:
        fast = False
    return "bfloat16" if fast else "float32"


def require_chat_template(tokenizer: PreTrainedTokenizerBase, name: str) -> None:
    """Refuse a model without a chat template where prompts are to be written as chats."""
    if not getattr(tokenizer, "chat_template", None):
        raise ModelError(
            f"The model {name} has no chat template, so a prompt cannot be written as a chat.",
            fix="Use a model that was tuned for chats (often named -Instruct or -Chat), or a prompt template that is plain text.",
        )


def find_folder(name: str) -> Path:
    """The local folder of a model; the embedded one is converted and a hub model downloaded when that has not been done.

    The tiny one is only looked for: it is made by `sharpen.pipelines.make_tiny`.
    """
    if name == EMBEDDED:
        from sharpen.models.embedded import embedded_folder

        return embedded_folder()
    if (seed := tiny.seed_of(name)) is not None:
        return tiny.find_tiny(seed)
    path = Path(name).expanduser()
    if path.is_dir():
        return path.resolve()
    if path.is_file():
        raise ModelError(f"The model {name} is a file; a model is a folder.", fix=WHAT_TO_GIVE)
    if re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", name):
        return _download(name)
    looks_like_path = "/" in name or "\\" in name or name.startswith(("~", "."))
    looked = f"there is no folder {path.absolute()}" if looks_like_path else f"there is no folder of that name in {Path.cwd()}"
    raise ModelError(f"No model {name!r}: {looked}.{nearest(name, [EMBEDDED, tiny.TINY])}", fix=WHAT_TO_GIVE)


def check_folder(folder: Path, name: str) -> None:
    """Refuse a folder that lacks its config, its weights in safetensors, or its tokenizer."""
    where = f"The model {name}" if str(folder) == name else f"The model {name} ({folder})"
    if not (folder / "config.json").is_file():
        if (folder / "adapter_config.json").is_file():
            raise ModelError(f"{where} is an adapter (LoRA), not a whole model.", fix="Merge it into its base model, and give that folder.")
        raise ModelError(f"{where} has no config.json; it holds {_listing(folder)}.", fix=WHAT_TO_GIVE)
    _read_json(folder / "config.json")
    _check_weights(folder, where)
    if not any((folder / file).is_file() for file in TOKENIZER_FILES):
        fix = "Copy the tokenizer's files (tokenizer.json, tokenizer_config.json) of the model it was made from into the folder."
        raise ModelError(f"{where} has no tokenizer: none of {', '.join(TOKENIZER_FILES)}.", fix=fix)


def _check_weights(folder: Path, where: str) -> None:
    index = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").is_file():
        return
    if index.is_file():
        shards = sorted(set(_read_json(index).get("weight_map", {}).values()))
        if missing := [shard for shard in shards if not (folder / shard).is_file()]:
            raise ModelError(f"{where} lacks {len(missing)} of its {len(shards)} weight files, such as {missing[0]}.", fix="Copy it again.")
        return
    if pickles := sorted(path.name for path in folder.iterdir() if path.suffix in PICKLE_SUFFIXES):
        raise ModelError(
            f"{where} has its weights in {pickles[0]} only, a pickle file, which can run any code when it is loaded.",
            fix="If you trust the file, write it as safetensors: "
            f"python -c \"from transformers import AutoModelForCausalLM as M; M.from_pretrained('{folder}').save_pretrained('{folder}')\"",
        )
    fix = "Give a folder with its weights in model.safetensors (or in shards, with model.safetensors.index.json)."
    raise ModelError(f"{where} has no weights in safetensors; it holds {_listing(folder)}.", fix=fix)


def _download(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, RepositoryNotFoundError

    no_folder = f"No model {name!r}: there is no folder {Path(name).absolute()}, and"
    try:
        return Path(snapshot_download(name, allow_patterns=HUB_FILES, ignore_patterns=NOT_HUB_FILES))
    except GatedRepoError as error:
        fix = f"Ask for access at https://huggingface.co/{name}, then run: hf auth login"
        raise ModelError(f"The model {name} is on the hub, but you have not been given access to it.", fix=fix) from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise ModelError(f"{no_folder} the hub has no model of that name (or a private one).", fix=WHAT_TO_GIVE) from error
    except LocalEntryNotFoundError as error:
        raise ModelError(f"{no_folder} it is not in the hub's cache, and the hub cannot be reached.", fix=WHAT_TO_GIVE) from error
    except (HfHubHTTPError, OSError) as error:
        raise ModelError(f"{no_folder} the download failed: {_first_line(error)}", fix="Try again: what was downloaded is kept.") from error


def load_tokenizer(folder: Path, name: str) -> PreTrainedTokenizerBase:
    """The tokenizer of a checked folder; ModelError where it cannot be read."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:
        fix = "Copy or download it again if a file is damaged."
        raise ModelError(f"The tokenizer of the model {name} cannot be read from {folder}: {_first_line(error)}", fix=fix) from error


CAUSAL, SEQUENCE, TOKEN = "causal language model", "sequence classifier", "token classifier"
KINDS = {CAUSAL: "AutoModelForCausalLM", SEQUENCE: "AutoModelForSequenceClassification", TOKEN: "AutoModelForTokenClassification"}


def load_weights(
    folder: Path, name: str, dtype: str, device: str, *, kind: str = CAUSAL, new_head: tuple[str, ...] = (), **settings: Any
) -> Any:
    """The model of a checked folder, in eval mode on its device.

    Args:
        folder: checked by `check_folder`.
        name: for messages.
        dtype: of the weights.
        device: a device as `resolve_device` gives it.
        kind: one of `KINDS`.
        new_head: names of a head that the folder need not have weights of; `transformers` makes some up.
        settings: of the model's config, such as `num_labels`.

    Raises:
        ModelError: weights that cannot be read, are not whole, or do not fit on the device.
    """
    import torch
    import transformers

    loaded: Any
    try:
        with torch.random.fork_rng(devices=[]):
            loaded = getattr(transformers, KINDS[kind]).from_pretrained(
                folder, dtype=dtype, use_safetensors=True, trust_remote_code=False, output_loading_info=True, **settings
            )
    except Exception as error:
        raise ModelError(
            f"The model {name} cannot be loaded from {folder} as a {kind}: {_first_line(error)}",
            fix="Copy or download it again if a file is damaged; else choose a model that `transformers` loads without code of its own.",
        ) from error
    model, info = loaded
    if missing := sorted(key for key in info["missing_keys"] if not key.startswith(new_head)):
        raise ModelError(
            f"The weights of the model {name} are not whole: {len(missing)} are missing from {folder}, such as {missing[0]}.",
            fix="Give a folder whose config.json fits its weights.",
        )
    try:
        return model.to(device).eval()
    except torch.OutOfMemoryError as error:
        fix = 'Give a smaller model, another device, or dtype = "bfloat16".'
        raise ModelError(f"The model {name} does not fit on {device} in {dtype}: {_first_line(error)}", fix=fix) from error


def finish(model: Any, tokenizer: PreTrainedTokenizerBase, name: str) -> None:
    """What is done to every model once it is read: its vocabulary is checked, its weights are aligned, every embedding can learn.

    Raises:
        ModelError: the tokenizer gives ids that the model has no embedding for.
    """
    _check_vocabulary(model, tokenizer, name)
    _align(model)
    # The embedding keeps the gradient from the pad token's row, and the pad token is often the end of a turn, which prompts are full
    # of. Padding is masked here, so it gets no gradient anyway, and every row can learn.
    model.get_input_embeddings().padding_idx = None


def _align(model: Any) -> None:
    """Copy weights that lie where the file was mapped into memory of their own, at a multiple of 64 bytes, as `torch` allocates them.

    The matrix kernels of a CPU pick their path by alignment, and the last bits of a product differ between paths: a resumed run would
    drift from one that was not stopped. (It is also up to a fifth faster.)
    """
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.data_ptr() % 64:
            tensor.data = tensor.data.clone()


def _check_vocabulary(model: Any, tokenizer: PreTrainedTokenizerBase, name: str) -> None:
    rows, ids = model.get_input_embeddings().weight.shape[0], max(tokenizer.get_vocab().values(), default=-1) + 1
    if ids > rows:
        raise ModelError(
            f"The tokenizer of the model {name} gives ids up to {ids - 1}, and the model has embeddings for {rows} only.",
            fix="Use the tokenizer that the model was made with.",
        )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{path} is not JSON: {error}.", fix="Copy or download it again.") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path} holds a {type(value).__name__}; a JSON object is expected.", fix="Copy or download it again.")
    return value


def _listing(folder: Path) -> str:
    names = sorted(path.name for path in folder.iterdir())
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "") if names else "nothing"


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"
