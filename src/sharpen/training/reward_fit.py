"""Fitting a reward model to labels or to preferences by AdamW.

The order of the examples depends on the seed and the epoch alone, and every update's loss is a plain sum over its minibatch, so the cut
into micro-batches changes nothing but the last bits. A fit that was killed goes on from its last checkpoint, bit for bit.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from sharpen.errors import RewardError, RunError
from sharpen.models.reward_model import Reading, RewardModel
from sharpen.ops import reward_losses
from sharpen.recipe import Section
from sharpen.rewards.labels import Labelled
from sharpen.streams import permutation
from sharpen.tracking.events import EventLog
from sharpen.training import checkpoint
from sharpen.training.checkpoint import State
from sharpen.training.optimiser import Optimiser


class FitSettings(Section):
    """How a reward model is fitted, `[fit]`."""

    learning_rate: float = Field(2e-5, gt=0.0, description="the peak; DeepSeekMath's is 2e-5")
    epochs: int = Field(1, ge=1, description="passes over all examples")
    batch_size: int = Field(64, ge=1, description="completions, or pairs, of an update")
    warmup: int = Field(0, ge=0, description="updates of linear warm-up")
    schedule: Literal["constant", "linear", "cosine"] = Field("constant", description="after the warm-up")
    weight_decay: float = Field(0.0, ge=0.0, description="of AdamW")
    max_grad_norm: float = Field(1.0, gt=0.0, description="gradients of a larger norm are scaled down to it")
    dtype: Literal["auto", "float32", "bfloat16"] = Field("auto", description="of the weights; bfloat16 keeps a float32 master copy")
    device: str = Field("auto", description="auto, cpu, cuda")
    token_budget: int = Field(2048, ge=1, description="token positions of one micro-batch")
    gradient_checkpointing: bool = Field(False, description="keep little of a forward pass and compute it again: slower, in less memory")
    checkpoint_every: int = Field(100, ge=1, description="updates between two checkpoints, from which a fit that was killed goes on")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two completions of one prompt, one preferred to the other.

    Attributes:
        problem_id: the prompt's.
        prompt_tokens: token ids.
        chosen: token ids of the preferred completion, at least one.
        rejected: token ids of the other one, at least one.
    """

    problem_id: str
    prompt_tokens: tuple[int, ...]
    chosen: tuple[int, ...]
    rejected: tuple[int, ...]


Example = Labelled | Pair


@dataclass(frozen=True, kw_only=True)
class Balance:
    """What there is to learn from.

    Attributes:
        examples: completions with labels, or pairs.
        labels: numbers that are fitted: of completions, of steps, or pairs.
        positive: the mean label, 0.5 for as many right as wrong; NaN for pairs.
        distinct: different labels.
    """

    examples: int
    labels: int
    positive: float
    distinct: int


def usable(examples: Sequence[Example], model_kind: str) -> list[Example]:
    """The examples that have a label of this kind: of the whole for an outcome model, of any step for a process model; all pairs."""
    return [one for one in examples if isinstance(one, Pair) or targets(one, model_kind)]


def targets(example: Example, model_kind: str) -> tuple[float, ...]:
    """The labels that one example is fitted to; none for a pair, and none where the label is unknown."""
    if isinstance(example, Pair):
        return ()
    if model_kind == "process":
        return tuple(label for _, label in example.steps)
    return () if math.isnan(example.label) else (example.label,)


def readings(example: Example, model_kind: str) -> tuple[Reading, ...]:
    """What is read of an example: one sequence, or the two of a pair, the preferred one first."""
    if isinstance(example, Pair):
        return tuple(Reading(example.prompt_tokens, tokens, (len(tokens) - 1,)) for tokens in (example.chosen, example.rejected))
    places = tuple(end for end, _ in example.steps) if model_kind == "process" else (len(example.completion_tokens) - 1,)
    return (Reading(example.prompt_tokens, example.completion_tokens, places),)


def balance(examples: Sequence[Example], model_kind: str) -> Balance:
    """Count what there is to learn from.

    Raises:
        RewardError: nothing, or labels that are all equal: a model that always says the same would fit them.
    """
    kept = usable(examples, model_kind)
    labels = [label for one in kept for label in targets(one, model_kind)]
    pairs = sum(isinstance(one, Pair) for one in kept)
    if not kept:
        what = "no step has a label" if model_kind == "process" else "no completion has a label"
        raise RewardError(f"Fitting a reward model: {what}, of {len(examples)} examples.", fix="Give problems that can be graded.")
    if not pairs and len(set(labels)) == 1:
        raise RewardError(
            f"Fitting a reward model: all {len(labels)} labels are {labels[0]:g}, so there is nothing to tell apart.",
            fix="Take problems that the policy solves sometimes, more samples of each, or a higher temperature.",
        )
    positive = sum(labels) / len(labels) if labels else math.nan
    return Balance(examples=len(kept), labels=len(labels) or pairs, positive=positive, distinct=len(set(labels)))


def backward(model: RewardModel, examples: Sequence[Example], token_budget: int) -> float:
    """Add the gradient of the mean loss over a minibatch to the parameters, micro-batch by micro-batch; the loss.

    The mean is over completions, over labelled steps, or over pairs.

    Args:
        model: what is fitted.
        examples: usable ones, all with labels or all pairs.
        token_budget: token positions of one micro-batch.
    """
    pairs = isinstance(examples[0], Pair)
    wanted = [reading for one in examples for reading in readings(one, model.kind)]
    labels = [targets(one, model.kind) for one in examples]
    count = len(examples) if pairs else sum(map(len, labels))
    total = 0.0
    for places in model.batches(wanted, token_budget, together=2 if pairs else 1):
        logits = model.logits([wanted[place] for place in places])
        if pairs:
            losses = reward_losses.bradley_terry(logits[::2], logits[1::2])
        else:
            some = torch.tensor([label for place in places for label in labels[place]], dtype=logits.dtype, device=logits.device)
            losses = reward_losses.binary(logits, some)
        loss: Tensor = losses.sum() / count
        loss.backward()
        total += float(loss.detach())
    return total


def fit(
    model: RewardModel,
    examples: Sequence[Example],
    settings: FitSettings,
    *,
    seed: int,
    folder: Path,
    on_progress: Callable[[int], None] | None = None,
    notice: Callable[[str], None] | None = None,
) -> list[float]:
    """Fit the model, in place; what an earlier, killed call left in the folder is gone on from.

    Args:
        model: as `reward_model.new` gives it; its weights are changed.
        examples: what it learns from.
        settings: how.
        seed: of the order of the examples.
        folder: keeps `checkpoints/` and `fit.jsonl`, one event an update.
        on_progress: called with the number of updates that have just been done.
        notice: told of what is gone on from.

    Returns:
        The loss of each update.

    Raises:
        RewardError: no labels, or all equal.
        RunError: the folder holds another fit or cannot be written; or a gradient is not finite.
    """
    balance(examples, model.kind)
    tell, say = on_progress or (lambda count: None), notice or (lambda text: None)
    kept = usable(examples, model.kind)
    per_epoch = math.ceil(len(kept) / settings.batch_size)
    total = per_epoch * settings.epochs
    optimiser = Optimiser(
        model.module.named_parameters(),
        learning_rate=settings.learning_rate,
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.max_grad_norm,
        warmup=settings.warmup,
        total=total,
        schedule=settings.schedule,
    )
    claim = _fingerprint(model, kept, settings, seed)
    done = _restored(folder / "checkpoints", model, optimiser, claim, say)
    losses: list[float] = []
    order: list[int] = []
    with EventLog(folder / "fit.jsonl") as log:
        log.truncate_after(done)
        if done == 0:
            log.path.unlink(missing_ok=True)
        losses += _losses(log.path)
        tell(done)
        for update in range(done, total):
            epoch, part = divmod(update, per_epoch)
            if part == 0 or not order:
                order = permutation(len(kept), seed, "reward_fit", epoch)
            batch = [kept[place] for place in order[part * settings.batch_size : (part + 1) * settings.batch_size]]
            loss, rate = backward(model, batch, settings.token_budget), optimiser.rate
            norm = optimiser.step()
            if not math.isfinite(norm):
                raise RunError(
                    f"reward model, update {update + 1}: the gradient is not finite, so no update was made of it.",
                    fix="Lower fit.learning_rate, or fit in float32 (fit.dtype=float32).",
                )
            log.append("update", step=update + 1, loss=loss, grad_norm=norm, learning_rate=rate)
            losses.append(loss)
            tell(1)
            if (update + 1) % settings.checkpoint_every == 0 or update + 1 == total:
                _save(folder / "checkpoints", model, optimiser, update + 1, claim)
    return losses


def _save(folder: Path, model: RewardModel, optimiser: Optimiser, updates: int, claim: str) -> None:
    state = State(
        step=updates,
        updates=updates,
        problem_position=0,
        reference_step=0,
        problems_fingerprint=claim,
        resolved={"threads": torch.get_num_threads()},
        totals={},
    )
    checkpoint.save(folder, state, write_model=model.write, optimiser=optimiser.state_tensors(), reference=None, keep=1)


def _restored(folder: Path, model: RewardModel, optimiser: Optimiser, claim: str, say: Callable[[str], None]) -> int:
    """Put a checkpoint's weights and moments where they were; the updates that had been made."""
    found = checkpoint.latest(folder, say) if folder.is_dir() else None
    if found is None:
        return 0
    path, state = found
    if state.problems_fingerprint != claim:
        raise RunError(
            f"reward model: {folder} holds a fit of other examples or settings, which is left as it is.",
            fix="Choose another folder by output=..., or delete that one.",
        )
    torch.set_num_threads(int(state.resolved["threads"]))  # the last bits depend on it
    checkpoint.load_weights(model.module, path)
    optimiser.load_state_tensors(checkpoint.load_tensors(path / "training" / "optimiser.safetensors"), state.updates)
    say(f"going on after update {state.updates} from {path}")
    return state.updates


def _losses(path: Path) -> list[float]:
    if not path.is_file():
        return []
    return [float(json.loads(line)["loss"]) for line in path.read_text(encoding="utf-8").splitlines()]


def _fingerprint(model: RewardModel, examples: Sequence[Example], settings: FitSettings, seed: int) -> str:
    """Of all that the fitted weights depend on, but the number of threads."""
    fixed: dict[str, Any] = settings.model_dump(mode="json", exclude={"checkpoint_every", "device"})
    fixed |= {"seed": seed, "kind": model.kind, "weights": str(next(model.module.parameters()).dtype), "base": model.about.get("base")}
    digest = hashlib.sha256(json.dumps(fixed, sort_keys=True).encode())
    for one in examples:
        digest.update(repr(one).encode())
    return digest.hexdigest()
