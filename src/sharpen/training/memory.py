"""How much memory a run will need, told before its first step.

Activations are measured, not guessed: a forward pass of two lengths counts what autograd keeps, and the difference gives bytes a token.
"""

from __future__ import annotations

import resource
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sharpen.errors import RunError
from sharpen.models.policy import Policy
from sharpen.records import TrainingBatch
from sharpen.rewards.learned import ModelMemory
from sharpen.training.optimiser import Kind, state_bytes

BUDGETS = (8192, 4096, 2048, 1024, 512, 256)
CPU_BUDGET = 1024  # matrix products of a CPU gain nothing beyond this
HEADROOM = 0.9  # the share of available memory that a run may plan to use


@dataclass(frozen=True, kw_only=True)
class MemoryEstimate:
    """Bytes, by what holds them.

    Attributes:
        baseline: held before training begins (the process and the model's weights).
        optimiser: gradients, moments and master copies.
        reference: the frozen copy of a KL term.
        rollout: the engine's copy of the weights, key-value cache and sampling buffers of one batch of rows.
        training: activations and head buffers of one micro-batch.
        value: the value model's weights, gradients, moments and master copies.
        saving: the merged weights of a checkpoint, where an adapter is trained.
        rewards: the weights of reward models that stay loaded.
        scoring: activations of reward models, and the weights of those that are loaded for each step.
    """

    baseline: int
    optimiser: int
    reference: int
    rollout: int
    training: int
    value: int = 0
    saving: int = 0
    rewards: int = 0
    scoring: int = 0

    @property
    def peak(self) -> int:
        """The largest sum that is held at once: rollout, scoring, training and saving take turns."""
        held = self.baseline + self.optimiser + self.reference + self.value + self.rewards
        return held + max(self.rollout, self.scoring, self.training, self.saving)


def resident(device: torch.device) -> int:
    """Bytes this process holds now, on the device that trains."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    import psutil

    return int(psutil.Process().memory_info().rss)


def peak(device: torch.device) -> int:
    """The most bytes this process has held, on the device that trains."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def available(device: torch.device) -> int:
    """Bytes this process may still take, on the device that trains; a container's own limit counts."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    import psutil

    free = int(psutil.virtual_memory().available)
    for limit, used in (("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")):
        try:
            allowed = Path("/sys/fs/cgroup", limit).read_text().strip()
            if allowed.isdigit():
                free = min(free, max(0, int(allowed) - int(Path("/sys/fs/cgroup", used).read_text())))
        except OSError:
            continue  # no such control group here: the machine's own figure stands
    return free


def activation_bytes(policy: Policy, *, temperature: float) -> tuple[int, int]:
    """What autograd keeps for one forward pass: bytes fixed, and bytes a completion token."""
    short, long = (_kept(policy, n, temperature) for n in (33, 97))
    per_token = (long - short) // 64
    return max(0, short - 33 * per_token), per_token


def estimate(
    policy: Policy,
    *,
    token_budget: int,
    temperature: float,
    needs_reference: bool,
    rows: int,
    sequence_length: int,
    needs_value: bool = False,
    optimiser: Kind = "adamw",
    head_chunk: int = 128,
    rewards: ModelMemory | None = None,
) -> MemoryEstimate:
    """The memory of a run.

    Args:
        policy: loaded, its gradients and optimiser not yet made.
        token_budget: token positions of one micro-batch.
        temperature: of sampling.
        needs_reference: whether a frozen copy is kept.
        needs_value: whether a value model is trained, a copy of the policy's body that is trained whole.
        rows: completions decoded at once.
        sequence_length: prompt and completion at their longest, in tokens.
        optimiser: its kind.
        head_chunk: rows of the language-model head at a time.
        rewards: of the reward models on the policy's device.
    """
    learned = rewards or ModelMemory()
    module = policy.module
    parameters = list(module.parameters())
    device = parameters[0].device
    weights = sum(p.numel() * p.element_size() for p in parameters)
    trained = [p for p in parameters if p.requires_grad]
    fixed, per_token = activation_bytes(policy, temperature=temperature)
    vocabulary = getattr(getattr(module, "config", None), "vocab_size", 0)
    backward = 2 * head_chunk * vocabulary * 4
    return MemoryEstimate(
        baseline=max(0, resident(device) - learned.loaded),
        optimiser=_training_bytes(trained, optimiser),
        reference=weights if needs_reference else 0,
        value=weights + _training_bytes(parameters, optimiser) if needs_value else 0,
        rollout=weights + rows * (_cache_bytes(module, sequence_length) * 5 // 4 + 5 * vocabulary * 4),
        training=fixed + per_token * token_budget + backward,
        rewards=learned.held,
        scoring=learned.scoring,
        saving=weights if len(trained) < len(parameters) and device.type == "cpu" else 0,  # merged on the CPU
    )


def choose_budget(policy: Policy, limit: int | None = None, **settings: Any) -> int:
    """The largest token budget that fits, from `BUDGETS`; on a CPU at most `CPU_BUDGET`. The smallest when none fits."""
    device = next(policy.module.parameters()).device
    room = resident(device) + available(device) if limit is None else limit
    top = CPU_BUDGET if device.type == "cpu" else BUDGETS[0]
    for budget in BUDGETS:
        if budget <= top and estimate(policy, token_budget=budget, **settings).peak <= HEADROOM * room:
            return budget
    return BUDGETS[-1]


def check(needed: MemoryEstimate, device: torch.device, limit: int | None = None) -> None:
    """RunError when the estimated peak is above what this process can have."""
    room = resident(device) + available(device) if limit is None else limit
    if needed.peak > room:
        names = ["baseline", "optimiser", "reference", "value", "rollout", "training", "saving"]
        names += ["rewards", "scoring"] if needed.rewards or needed.scoring else []
        parts = ", ".join(f"{name} {human(getattr(needed, name))}" for name in names)
        other = ", set keep=false of a reward model" if needed.rewards else ""
        raise RunError(
            f"memory: this run needs about {human(needed.peak)} at its peak ({parts}), and {human(room)} can be had.",
            fix=f"Lower training.token_budget or rollout.max_rows, set method.kl_coef=0 (no reference){other}, or take a smaller model.",
        )


def human(size: float) -> str:
    """Bytes as text: `1.5 GiB`."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def _training_bytes(parameters: list[nn.Parameter], kind: Kind) -> int:
    """Gradients, and what the optimiser keeps."""
    return sum(p.numel() * p.element_size() for p in parameters) + state_bytes(parameters, kind)


def _cache_bytes(module: nn.Module, length: int) -> int:
    """Bytes of one row's keys and values."""
    config = getattr(module, "config", None)
    if config is None or not hasattr(config, "num_hidden_layers"):
        return 0
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(2 * config.num_hidden_layers * heads * size * length * next(module.parameters()).element_size())


def _kept(policy: Policy, tokens: int, temperature: float) -> int:
    """Bytes of the distinct storages that autograd keeps for a completion of so many tokens; the weights themselves do not count."""
    owned = {p.untyped_storage().data_ptr() for p in policy.module.parameters()}
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in owned:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    ones = torch.ones(1, tokens)
    batch = TrainingBatch(
        prompts=((0,) * 8,),
        group_index=torch.zeros(1, dtype=torch.int64),
        tokens=torch.zeros(1, tokens, dtype=torch.int64),
        loss_mask=ones.bool(),
        advantages=ones,
        weights=ones,
        sampling_logprobs=ones,
    )
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        output = policy.logprobs(batch, temperature=temperature)  # held while the storages are counted, so that none is used twice
    total = sum(kept.values())
    del output
    return total
