"""LoRA (arXiv:2106.09685): a frozen model whose linear layers multiply by W + s·B·A, of which only A [r, in] and B [out, r] are trained.

The layers are those of the library `peft`, put into the model in place: it stays the causal language model that it was. Adapters are held
in float32 whatever the model's type, so that no small update is lost and no master copy is needed. Plain weights are always computed into
new tensors: adding an adapter to a weight and taking it off again would not give the same bits.
"""

from __future__ import annotations

import copy
import json
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from sharpen import streams
from sharpen.errors import MissingPackageError, ModelError, RecipeError, nearest
from sharpen.models.lora_settings import LoraSettings
from sharpen.records import TrainingBatch

if TYPE_CHECKING:
    from sharpen.models.policy import Policy, PolicyOutput

ADAPTER = "default"  # peft's name of the only adapter
ADAPTER_FILE = "adapter_model.safetensors"


def attach(model: Any, settings: LoraSettings, *, seed: int, base: str) -> None:
    """Freeze the model and put an adapter on its linear layers, in place. It begins at no change: A is random and B is 0.

    Args:
        model: a Hugging Face causal language model.
        settings: rank, scale, and which layers.
        seed: the run's; A is drawn uniformly from ±1/√in, layer by layer.
        base: where the model came from, for whoever loads the adapter: a folder or a hub id.

    Raises:
        MissingPackageError: `peft` is not installed.
        RecipeError: `target_modules` names what the model does not have, or a head that is tied to the embedding.
        ModelError: the model has no layer that takes an adapter.
    """
    try:
        import peft
    except ImportError as error:
        raise MissingPackageError("peft", needed_for="LoRA (the section [lora])", install="pip install 'sharpen[lora]'") from error
    if isinstance(settings.target_modules, list):
        _check_targets(model, settings.target_modules)
    config = peft.LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,  # type: ignore[arg-type]  # peft takes any number
        use_rslora=settings.use_rslora,
        target_modules=settings.target_modules,
        task_type=peft.TaskType.CAUSAL_LM,
        base_model_name_or_path=base,
    )
    try:
        with warnings.catch_warnings(action="ignore", category=UserWarning):  # it tells what it sets right by itself, as for Conv1D
            peft.inject_adapter_in_model(config, model, adapter_name=ADAPTER)
    except ValueError as error:
        raise ModelError(f"The model {base} takes no adapter: {error}", fix="Name its linear layers in lora.target_modules.") from error
    with torch.no_grad():
        for name, layer in layers(model):
            layer.lora_A.float()
            layer.lora_B.float()
            a = layer.lora_A[ADAPTER].weight
            bound = 1 / math.sqrt(a.shape[1])
            a.copy_(torch.from_numpy(streams.generator(seed, "lora", name).uniform(-bound, bound, tuple(a.shape))))


def layers(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """The layers that an adapter sits on, by name; each holds the plain one as `base_layer`."""
    return ((name, layer) for name, layer in module.named_modules() if _adapted(layer))


def effective_weight(linear: Any) -> Tensor:
    """The weight that a linear layer multiplies by, as a new tensor without gradient, in the type of the plain weight.

    Args:
        linear: a plain layer, or one with an adapter: W + s·B·A, summed in float32 at least; W alone while the adapter is off.
    """
    if not _adapted(linear):
        return linear.weight.detach().clone()
    weight: Tensor = linear.base_layer.weight.detach()
    if linear.disable_adapters:
        return weight.clone()
    with torch.no_grad():
        return (weight + linear.get_delta_weight(ADAPTER)).to(weight.dtype)


def merged_state(model: nn.Module) -> dict[str, Tensor]:
    """The model's state dict by the names it had before there was an adapter; merged weights lie on the CPU, the others where they are."""
    state = {name.replace(".base_layer.", "."): tensor for name, tensor in model.state_dict().items() if ".lora_" not in name}
    return state | {f"{name}.weight": effective_weight(layer).cpu() for name, layer in layers(model)}


def plain_copy(module: Any) -> Any:
    """A copy of the module, weights and all its own, without its adapters: as before training. It is trained whole."""
    copied = copy.deepcopy(module)
    for name, layer in list(layers(copied)):
        copied.set_submodule(name, layer.base_layer)
    return copied.requires_grad_(True)


@contextmanager
def without(module: nn.Module) -> Iterator[None]:
    """Inside, the adapters are off, and the module computes exactly what it did before they were put on it."""
    adapted = [layer for _, layer in layers(module)]
    for layer in adapted:
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in adapted:
            layer.enable_adapters(True)


class WithoutAdapter:
    """The policy before training, which is its own weights with the adapter off: a reference that needs no copy.

    Args:
        policy: one whose module has an adapter.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    @property
    def module(self) -> nn.Module:
        """The policy's."""
        return self.policy.module

    def cost(self, batch: TrainingBatch) -> list[int]:
        """See `Policy.cost`."""
        return self.policy.cost(batch)

    def logprobs(self, batch: TrainingBatch, *, temperature: float) -> PolicyOutput:
        """See `Policy.logprobs`."""
        with without(self.module):
            return self.policy.logprobs(batch, temperature=temperature)


def adapter_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The adapter's A and B, the very ones that are trained, by their names in a file of `peft`."""
    return {
        f"base_model.model.{name}.{part}.weight": getattr(layer, part)[ADAPTER].weight.detach()
        for name, layer in layers(model)
        for part in ("lora_A", "lora_B")
    }


def save_adapter(model: Any, folder: Path) -> None:
    """Write the adapter alone, bit for bit, as a folder that `peft` and vLLM load on top of the base model."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    table = model.peft_config[ADAPTER].to_dict() | {"inference_mode": True}
    ordered = {key: sorted(value) if isinstance(value, set) else value for key, value in table.items()}  # equal runs write equal bytes
    (folder / "adapter_config.json").write_text(json.dumps(ordered, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    save_file({name: tensor.cpu().contiguous() for name, tensor in adapter_tensors(model).items()}, folder / ADAPTER_FILE)


def _adapted(layer: Any) -> bool:
    return hasattr(layer, "base_layer") and hasattr(layer, "lora_A")


def _check_targets(model: Any, wanted: list[str]) -> None:
    """RecipeError where a name stands for no linear layer of the model, or for a head whose weight is the embedding's too."""
    from transformers.pytorch_utils import Conv1D

    linear = {name: layer for name, layer in model.named_modules() if isinstance(layer, (nn.Linear, Conv1D))}
    known = sorted({name.rpartition(".")[2] for name in linear})
    for target in wanted:
        found = [layer for name, layer in linear.items() if f".{name}".endswith(f".{target}")]
        if not found:
            raise RecipeError(
                f"lora.target_modules: the model has no linear layer '{target}'.{nearest(target, known)}",
                fix=f'It has: {", ".join(known)}. Or take "all-linear", which is all but the head.',
            )
        if any(layer.weight is model.get_input_embeddings().weight for layer in found):
            raise RecipeError(
                f"lora.target_modules: the weight of '{target}' is the embedding's too, and an adapter on one would pull them apart.",
                fix="Leave it out, or choose a model with a head of its own.",
            )
