"""One small random model of each family that has a forward pass of ours, with norms and biases that matter."""

from __future__ import annotations

from typing import Any

import torch
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 1e4,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
GEMMA = {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "query_pre_attn_scalar": 16}
FAMILIES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "llama": (LlamaForCausalLM, LlamaConfig, {"attention_bias": True}),
    "llama3": (LlamaForCausalLM, LlamaConfig, {"rope_parameters": LLAMA3}),
    "mistral": (MistralForCausalLM, MistralConfig, {"sliding_window": 4}),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config, {}),
    "qwen2 with windows": (Qwen2ForCausalLM, Qwen2Config, {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config, {}),
    "gemma3": (Gemma3ForCausalLM, Gemma3TextConfig, GEMMA),
}
VOCABULARY = 99


def family(name: str) -> Any:
    """A float32 model: 3 layers, hidden size 32, 4 heads over 2 key-value heads; the same weights each time."""
    model_class, config_class, settings = FAMILIES[name]
    config = config_class(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=256,
        initializer_range=0.3,
        pad_token_id=0,
        **settings,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = model_class(config).eval()
        for key, parameter in model.named_parameters():
            if "norm" in key or key.endswith("bias"):
                torch.nn.init.normal_(parameter, 0.5, 0.3)
    return model
