"""A random two-layer Llama with a tokenizer that reads any ASCII text, one character a token: written in well under a second."""

from __future__ import annotations

import string
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SPECIALS = ["<pad>", "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<unk>"]
PAD, IM_START, IM_END, END_OF_TEXT, UNKNOWN = range(5)

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """The specials as ids 0 to 4, then newline, tab and the 95 printable characters of ASCII; anything else is `<unk>`."""
    characters = sorted({"\n", "\t", " ", *string.ascii_letters, *string.digits, *string.punctuation})
    vocabulary = {token: i for i, token in enumerate([*SPECIALS, *characters])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<pad>",
        unk_token="<unk>",
        additional_special_tokens=["<|endoftext|>"],
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=256,
    )


def tiny_model(vocab_size: int, *, seed: int = 0, tie: bool = True) -> LlamaForCausalLM:
    """A float32 Llama: 2 layers, hidden size 32, 4 heads over 2 key-value heads, at most 256 positions."""
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        # Wider than usual, so that a random model's distribution is far from uniform.
        initializer_range=0.3,
        tie_word_embeddings=tie,
        bos_token_id=IM_START,
        eos_token_id=IM_END,
        pad_token_id=PAD,
        dtype="float32",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    model.generation_config = GenerationConfig(bos_token_id=IM_START, eos_token_id=[IM_END, END_OF_TEXT], pad_token_id=PAD)
    return model.eval()


def build_tiny(folder: Path, *, seed: int = 0, tie: bool = True) -> Path:
    """Write the tiny model and its tokenizer into `folder` as plain Hugging Face files, and return `folder`.

    Stop ids are 2 (`<|im_end|>`) and 3 (`<|endoftext|>`); the pad id is 0. The same seed writes the same weights.
    """
    tokenizer = tiny_tokenizer()
    tiny_model(len(tokenizer), seed=seed, tie=tie).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return Path(folder)
