"""Checkpoints: atomic, without pickle, the newest few kept, and damaged ones passed over.

checkpoints/step-000050/            a normal Hugging Face model folder, which loads in plain transformers
adapter/                        with LoRA: the adapter alone, exactly, as peft reads it; the weights above have it merged
training/state.json             step, positions, fingerprints and what was resolved automatically
training/optimiser.safetensors  moments and master copies
training/reference.safetensors  the reference, once it is no longer the initial model
training/critic.safetensors     the value model and its optimiser, where the method has one
manifest.json                   every file's digest
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from sharpen.errors import RunError
from sharpen.models import lora
from sharpen.models.manifest import sync, sync_folder, verify_manifest, write_manifest


@dataclass(frozen=True, kw_only=True)
class State:
    """Where a run stands, beside its tensors.

    Attributes:
        step: rollouts done.
        updates: optimiser updates done.
        problem_position: training problems drawn so far.
        reference_step: the step whose policy is the reference; 0 is the initial model.
        problems_fingerprint: of the training problems, so that changed ones are noticed.
        resolved: what was chosen automatically (dtype, device, token budget, threads), kept for the rest of the run.
        totals: counts since the start (completions, tokens).
        value_updates: updates of the value model done.
    """

    step: int
    updates: int
    problem_position: int
    reference_step: int
    problems_fingerprint: str
    resolved: Mapping[str, Any]
    totals: Mapping[str, int]
    value_updates: int = 0


def save(
    folder: Path,
    state: State,
    *,
    write_model: Callable[[Path], object],
    optimiser: Mapping[str, Tensor],
    reference: Mapping[str, Tensor] | None,
    critic: Mapping[str, Tensor] | None = None,
    keep: int,
) -> Path:
    """Write a checkpoint beside the others, then prune: written in full under another name, synced to disk, and renamed.

    Args:
        folder: the run's `checkpoints`.
        state: where the run stands.
        write_model: writes the model, as Hugging Face files, into a folder.
        optimiser: its tensors by name.
        reference: the reference's tensors, or None while it is the initial model.
        critic: the value model's and its optimiser's, or None without one.
        keep: the newest so many stay.

    Returns:
        The checkpoint's folder.
    """
    final = folder / f"step-{state.step:06d}"
    temporary = folder / f".writing-{final.name}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(temporary, ignore_errors=True)
        (temporary / "training").mkdir(parents=True)
        write_model(temporary)
        save_file(dict(optimiser), temporary / "training" / "optimiser.safetensors")
        for name, tensors in (("reference", reference), ("critic", critic)):
            if tensors is not None:
                save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, temporary / "training" / f"{name}.safetensors")
        (temporary / "training" / "state.json").write_text(json.dumps(asdict(state), indent=2, sort_keys=True) + "\n", encoding="utf-8")
        write_manifest(temporary)
        sync_folder(temporary)
        if final.exists():  # a damaged checkpoint of the same step, which the run was not resumed from
            shutil.rmtree(final)
        os.rename(temporary, final)
        sync(folder)
    except OSError as error:
        raise RunError(
            f"checkpoint {final}: cannot be written: {error}. Earlier checkpoints are as they were.",
            fix="Make room or mend the permissions, then go on with --resume.",
        ) from error
    for old in sorted(folder.glob("step-*"))[:-keep]:
        shutil.rmtree(old)
    return final


def latest(folder: Path, notice: Callable[[str], None]) -> tuple[Path, State] | None:
    """The newest whole checkpoint and its state; damaged ones are passed over with a notice. None when there is none."""
    for path in sorted(folder.glob("step-*"), reverse=True):
        faults = verify_manifest(path)
        if not faults:
            return path, State(**json.loads((path / "training" / "state.json").read_text(encoding="utf-8")))
        notice(f"checkpoint {path.name} is damaged ({'; '.join(faults)}); going back to the one before it")
    return None


def load_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file of a checkpoint; RunError when it cannot be read."""
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise RunError(f"checkpoint file {path}: cannot be read: {error}.", fix="Remove this checkpoint and resume again.") from error


def load_weights(module: nn.Module, path: Path) -> None:
    """Put the weights of a checkpoint's model into the module, in place and bit for bit."""
    tensors = _model_tensors(path)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name not in tensors:
                raise RunError(f"checkpoint {path}: no tensor '{name}', which the model has.", fix="Resume with the model it began with.")
            parameter.copy_(tensors[name])


def load_adapter(module: nn.Module, path: Path) -> None:
    """Put a checkpoint's adapter into a module that has one, in place and bit for bit; RunError where it belongs to another model."""
    whole, tensors = _model_tensors(path), load_tensors(path / "adapter" / lora.ADAPTER_FILE)
    for name, parameter in module.named_parameters():  # what has an adapter goes by another name, and is not compared
        if name in whole and not torch.equal(whole[name], parameter.detach().cpu()):
            raise RunError(
                f"checkpoint {path}: its adapter was trained on another model: '{name}' differs.",
                fix="Resume with the model it began with.",
            )
    for name, tensor in lora.adapter_tensors(module).items():
        tensor.copy_(tensors[name])


def _model_tensors(path: Path) -> dict[str, Tensor]:
    """The weights of a checkpoint's model, by name."""
    return {name: tensor for part in sorted(path.glob("*.safetensors")) for name, tensor in load_tensors(part).items()}
