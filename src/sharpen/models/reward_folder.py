"""What a folder says of the reward model in it, before any weight is read: its kind, its size, what it was made of."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sharpen.errors import ModelError
from sharpen.models import loading

Kind = Literal["outcome", "process"]

CARD = "reward_model.json"
ENDINGS: Mapping[str, Kind] = {"ForSequenceClassification": "outcome", "ForTokenClassification": "process"}
MOST_LABELS = 2
TRAIN = "Give a reward model's folder or hub id, or make one: sharpen train-reward-model RECIPE (docs/reward-models.md)."


@dataclass(frozen=True, kw_only=True)
class Looked:
    """A reward model's folder.

    Attributes:
        folder: where it lies.
        kind: `outcome` (one number a completion) or `process` (one a step).
        about: what `reward_model.json` says; empty where there is none.
        parameters: how many.
        config: `config.json`.
    """

    folder: Path
    kind: Kind
    about: Mapping[str, Any]
    parameters: int
    config: Mapping[str, Any]


def look(name: str, kind: Kind | None = None) -> Looked:
    """Look at a reward model without loading it.

    Args:
        name: a folder or a hub id.
        kind: what it has to be; None takes either.

    Raises:
        ModelError: no such model, one that is no classifier, one of more than two labels, or one of another kind.
    """
    folder = loading.find_folder(name)
    loading.check_folder(folder, name)
    config, found = _config(folder), kind_of(folder)
    if found is None:
        raise ModelError(
            f"The model {name} is no reward model: its architecture is {_architecture(config)}, and one that ends in "
            f"{' or '.join(ENDINGS)} is expected.",
            fix=TRAIN,
        )
    labels = len(config["id2label"]) if "id2label" in config else MOST_LABELS
    if labels > MOST_LABELS:
        raise ModelError(
            f"The model {name} tells {labels} labels apart; a reward model has 1 (a logit) or 2 (the second's logit less the first's).",
            fix="Take a model with one number as its output.",
        )
    if kind is not None and kind != found:
        gives = {"outcome": "one number for a completion", "process": "a number for each step"}
        raise ModelError(
            f"The reward model {name} is of kind {found}, which gives {gives[found]}; one of kind {kind} is needed, with {gives[kind]}.",
            fix="Name another model: [rewards.steps] takes process models only.",
        )
    return Looked(folder=folder, kind=found, about=_about(folder), parameters=_parameters(folder), config=config)


def kind_of(folder: Path) -> Kind | None:
    """What kind of reward model a checked folder holds by its architecture; None for any other model."""
    architecture = _architecture(_config(folder))
    return next((kind for ending, kind in ENDINGS.items() if architecture.endswith(ending)), None)


def _config(folder: Path) -> Mapping[str, Any]:
    config: Mapping[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return config


def _architecture(config: Mapping[str, Any]) -> str:
    return str((config.get("architectures") or ["unknown"])[0])


def _about(folder: Path) -> Mapping[str, Any]:
    path = folder / CARD
    if not path.is_file():
        return {}
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{path} is not JSON: {error}.", fix="Copy it again, or remove it: the model is then used as it is.") from error
    if not isinstance(about, dict):
        raise ModelError(f"{path} holds a {type(about).__name__}; a JSON object is expected.", fix="Copy it again, or remove it.")
    return about


def _parameters(folder: Path) -> int:
    """The entries of all tensors, from the heads of the files."""
    total = 0
    for path in folder.glob("*.safetensors"):
        try:
            with path.open("rb") as file:
                head = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        except (struct.error, ValueError) as error:
            raise ModelError(f"{path} is not a safetensors file: {error}.", fix="Copy or download it again.") from error
        for name, tensor in head.items():
            if name != "__metadata__":
                size = 1
                for extent in tensor["shape"]:
                    size *= extent
                total += size
    return total
