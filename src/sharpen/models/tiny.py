"""The tiny model: a Llama of 1.4 million parameters that `sharpen make-tiny` trains from scratch, in minutes, on a CPU.

Its name is `tiny`, or `tiny:SEED` for the one made with another seed. What it is and where it lies is here; it is trained by
`sharpen.pipelines.make_tiny`, on the problems of the source `multi_step`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from sharpen.errors import ModelError
from sharpen.models.cache import models_cache
from sharpen.models.manifest import verify_manifest

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

TINY = "tiny"

VERSION = "1"
"""Of how it is made: a change of model, text or training gets another number, so that an old cache is never taken for it."""

END, PAD = "<|end|>", "<|pad|>"
ROLES = ("<|system|>", "<|user|>", "<|assistant|>")
PHRASES = ("What is ", "Answer: ")
"""What begins every question and every last line, a token each: the rest is a token a character (a byte, to be exact)."""

CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}{% if message.role == 'assistant' %}<|end|>{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
CONTEXT = 512


def seed_of(name: str) -> int | None:
    """The seed of `tiny` (0) or `tiny:SEED`; None for the name of another model."""
    match = re.fullmatch(rf"{TINY}(?::(\d{{1,9}}))?", name)
    return int(match[1] or 0) if match else None


def tiny_folder(seed: int) -> Path:
    """Where the tiny model of a seed lies, made or not."""
    return models_cache() / f"tiny-{VERSION}-seed{seed}"


def is_made(seed: int) -> bool:
    """Whether the tiny model of a seed is there, as it was written."""
    folder = tiny_folder(seed)
    return folder.is_dir() and not verify_manifest(folder)


def find_tiny(seed: int) -> Path:
    """The folder of the tiny model of a seed, verified file by file.

    Raises:
        ModelError: it has not been made, or its files are not those that were written.
    """
    folder, command = tiny_folder(seed), "sharpen make-tiny" + (f" --seed {seed}" if seed else "")
    if not folder.is_dir():
        raise ModelError(f"The tiny model has not been made yet: there is no {folder}.", fix=f"Run: {command} (a few minutes, once)")
    if faults := verify_manifest(folder):
        raise ModelError(f"The tiny model in {folder} is damaged ({'; '.join(faults)}).", fix=f"Run: {command} --force")
    return folder


def new_tokenizer() -> PreTrainedTokenizerFast:
    """A token a byte, beside `PHRASES` and the tokens of the chat template; any text can be written in it."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = (PAD, END, *ROLES)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate([*special, *alphabet])}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    tokenizer.add_tokens([AddedToken(phrase, special=False, normalized=False) for phrase in PHRASES])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        chat_template=CHAT_TEMPLATE,
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=list(ROLES),
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    )


def new_model(tokenizer: PreTrainedTokenizerFast, *, seed: int, width: int = 192, layers: int = 3) -> LlamaForCausalLM:
    """The model before training, in float32; the global random state is left as it was.

    Args:
        tokenizer: whose ids it reads.
        seed: of the weights.
        width: of the residual stream, a multiple of 32 (one attention head's).
        layers: how many. Few and wide decode faster than many and narrow.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=width * 8 // 3,
        num_hidden_layers=layers,
        num_attention_heads=width // 32,
        num_key_value_heads=width // 32,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    model.get_input_embeddings().padding_idx = None
    return model
