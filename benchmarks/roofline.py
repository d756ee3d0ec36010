"""What the machine allows: the time of a model's matrix products alone, and of reading its key-value cache once.

Measured in the same run as what is compared with it, as the best of several tries. A limit, not a peer: it leaves out attention's own
arithmetic, norms, activations, sampling and everything Python does, so that a share of 100 % is not to be had.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from common import best_seconds
from torch import Tensor, nn
from torch.nn import functional

# Layers that read the same input are one matrix product, as any fast engine has it.
FUSED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))


def weights_by_shape(module: nn.Module) -> dict[tuple[int, int], list[Tensor]]:
    """Every linear layer's weight [out, in], those of one input joined, by shape."""
    out: dict[tuple[int, int], list[Tensor]] = {}
    for parent in module.modules():
        linear = {name: child.weight.detach() for name, child in parent.named_children() if isinstance(child, nn.Linear)}
        joined = [names for names in FUSED if all(name in linear for name in names)]
        units = [torch.cat([linear.pop(name) for name in names]) for names in joined] + list(linear.values())
        for weight in units:
            out.setdefault((weight.shape[0], weight.shape[1]), []).append(weight)
    return out


def linear_parameters(module: nn.Module) -> tuple[int, int]:
    """How many weights lie in the linear layers of the body, and in the language-model head."""
    head = module.get_output_embeddings()
    in_head = head.weight.numel()
    return sum(m.weight.numel() for m in module.modules() if isinstance(m, nn.Linear) and m is not head), in_head


def _kernels(weights: Sequence[Tensor], x: Tensor) -> dict[str, Callable[[], object]]:
    """Ways to multiply x by all these weights; the ones that this build and device have."""

    def plain() -> None:
        for weight in weights:
            functional.linear(x, weight)

    found: dict[str, Callable[[], object]] = {"plain": plain}
    if x.device.type == "cuda":
        plain()  # sets up cuBLAS, which a capture may not
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            plain()
        found["graph"] = graph.replay  # without the time to launch each kernel
    elif torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        try:
            packed = [torch.ops.mkldnn._reorder_linear_weight(weight, x.shape[0]) for weight in weights]
        except RuntimeError:
            packed = []  # not in this type
        for name, sequence in (("onednn", weights), ("prepacked", packed)):
            if sequence:
                found[name] = _onednn(sequence, x)
    return found


def _onednn(weights: Sequence[Tensor], x: Tensor) -> Callable[[], object]:
    def run() -> None:
        for weight in weights:
            torch.ops.mkldnn._linear_pointwise(x, weight, None, "none", [], "")

    return run


@torch.inference_mode()
def linear_seconds(module: nn.Module, rows: int, device: str) -> dict[str, Any]:
    """The time of all linear layers at so many rows, each shape by its fastest kernel: `seconds`, and by shape `kernels`.

    The fastest is chosen shape by shape, and then all layers are timed in one pass: the layers of one shape alone may fit into a cache
    that the whole model does not.
    """
    chosen: list[Callable[[], object]] = []
    kernels = {}
    for shape, weights in weights_by_shape(module).items():
        x = torch.randn(rows, shape[1], dtype=weights[0].dtype, device=device)
        ways = _kernels(weights, x)
        times = {name: best_seconds(run, device) for name, run in ways.items()}
        kernels["x".join(map(str, (len(weights), *shape)))] = times
        chosen.append(ways[min(times, key=lambda name: times[name])])

    def all_layers() -> None:
        for run in chosen:
            run()

    return {"rows": rows, "seconds": best_seconds(all_layers, device, at_least=0.3), "kernels": kernels}


@torch.inference_mode()
def bandwidth(device: str, size: int = 2**28) -> float:
    """Bytes a second, reading or copying a block that no cache holds; the faster of the two."""
    block = torch.ones(size // 4, dtype=torch.float32, device=device)
    other = torch.empty_like(block)
    reading = size / best_seconds(block.sum, device)
    copying = 2 * size / best_seconds(lambda: other.copy_(block), device)
    return max(reading, copying)


def cache_bytes_per_token(module: Any) -> int:
    """Bytes of one token's keys and values, in all layers."""
    config = module.config
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(2 * config.num_hidden_layers * heads * size * next(module.parameters()).element_size())


def cached_tokens(prompt_lengths: Sequence[int], group: int, new: int) -> float:
    """Tokens in the cache at a decode step, in the mean over the steps of `new` tokens: a prompt once for its group, completions each."""
    return sum(prompt_lengths) + len(prompt_lengths) * group * new / 2


def decode_limit(module: Any, prompt_lengths: Sequence[int], group: int, new: int, *, max_rows: int, device: str) -> dict[str, Any]:
    """The least time of one decode step, that is of one new token for each completion: linear layers, and one read of the cache.

    Args:
        module: the model.
        prompt_lengths: in tokens, one a prompt.
        group: completions a prompt.
        new: tokens a completion.
        max_rows: completions decoded at once; more take several passes over the weights.
        device: cpu or cuda.
    """
    rows = len(prompt_lengths) * group
    parts = [linear_seconds(module, max_rows, device)] * (rows // max_rows) if rows >= max_rows else []
    if rows % max_rows:
        parts.append(linear_seconds(module, rows % max_rows, device))
    rate = bandwidth(device)
    cache = cached_tokens(prompt_lengths, group, new) * cache_bytes_per_token(module)
    linear = sum(part["seconds"] for part in parts)
    return {
        "linear_seconds": linear,
        "cache_seconds": cache / rate,
        "step_seconds": linear + cache / rate,
        "cache_bytes": cache,
        "bandwidth": rate,
        "linear": parts[0],
    }


@torch.inference_mode()
def matmul_rate(module: nn.Module, rows: int, device: str) -> float:
    """Operations a second at best: of the model's own shapes at so many rows, or of a square product where that is faster."""
    rates = []
    for (out, width), weights in weights_by_shape(module).items():
        x = torch.randn(rows, width, dtype=weights[0].dtype, device=device)
        work = 2 * rows * out * width * len(weights)
        rates += [work / best_seconds(run, device, repeats=3) for run in _kernels(weights, x).values()]
    side = min(2048, max(rows, 64))
    a = torch.randn(side, side, dtype=next(module.parameters()).dtype, device=device)
    rates.append(2 * side**3 / best_seconds(lambda: a @ a, device, repeats=3))
    return max(rates)


def update_operations(module: Any, prompt_lengths: Sequence[int], group: int, new: int, *, reference: bool) -> float:
    """Operations in the linear layers that one update cannot do without.

    Each token is read once: a prompt for its whole group, and of a completion all but the last token. The head is for completion tokens
    only. Forward 1, backward 2, and the reference's forward 1, at 2 operations a weight.
    """
    body, head = linear_parameters(module)
    completions = len(prompt_lengths) * group
    read = sum(prompt_lengths) + completions * (new - 1)
    passes = 4 if reference else 3
    return 2.0 * passes * (body * read + head * completions * new)


def attention_operations(module: Any, prompt_lengths: Sequence[int], group: int, new: int, *, reference: bool) -> float:
    """Operations of attention in the same update: scores and sums over every earlier token, 4 a pair, head and unit of its size."""
    config = module.config
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    pairs = sum(p * p / 2 + group * (new * p + new * new / 2) for p in prompt_lengths)
    return (4.0 if reference else 3.0) * 4 * config.num_hidden_layers * config.num_attention_heads * size * pairs
