"""Making a reward model: sample and label, fit, judge on held-out problems, save. What was killed goes on where it was.

OUTPUT/recipe.toml                 the settings as resolved
OUTPUT/data/train.parquet          labelled completions to learn from; held_out.parquet: to be judged on
OUTPUT/data/completions-*.parquet  the same as text, with the grader's verdicts
OUTPUT/fit/                        an event an update, and the last checkpoint
OUTPUT/judged.parquet              what the model says of each held-out example; judged-before.parquet: where it goes on from another
OUTPUT/model/                      the reward model, a Hugging Face folder, with figures.json and reliability.png
"""

from __future__ import annotations

import gc
import json
import math
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sharpen.errors import RewardError, RunError
from sharpen.evaluation import reward_quality
from sharpen.evaluation.reward_quality import Quality
from sharpen.models import loading, reward_model
from sharpen.models.reward_folder import CARD, kind_of
from sharpen.models.reward_model import RewardModel
from sharpen.pipelines import parts
from sharpen.pipelines.evaluate import weights_digest
from sharpen.pipelines.output_folder import claimed
from sharpen.pipelines.reward_data import Examples, examples
from sharpen.pipelines.reward_recipe import RewardRecipe
from sharpen.tracking.observer import Observer, Silent
from sharpen.training import memory, reward_fit
from sharpen.training.optimiser import state_bytes
from sharpen.training.reward_fit import Balance, Example, Pair

FIGURES, PLOT, BEGUN = "figures.json", "reliability.png", "begun.json"


@dataclass(frozen=True, kw_only=True)
class TrainedRewardModel:
    """What training a reward model leaves.

    Attributes:
        folder: of the model.
        figures: what `figures.json` holds.
        new: whether this call made it.
    """

    folder: Path
    figures: Mapping[str, Any]
    new: bool

    @property
    def quality(self) -> Quality:
        """How good it is on held-out problems."""
        return Quality.from_dict(self.figures["held_out"])

    @property
    def quality_before(self) -> Quality | None:
        """How good the reward model that it goes on from is on the same examples; None where it began anew."""
        return Quality.from_dict(self.figures["before"]) if "before" in self.figures else None


def train_reward_model(recipe: RewardRecipe, *, recipe_path: Path | str, observer: Observer | None = None) -> TrainedRewardModel:
    """Train and judge a reward model; the same call goes on with one that was interrupted, and shows a finished one.

    Args:
        recipe: the settings.
        recipe_path: where they were read from; relative files in them are looked for beside it.
        observer: who watches.

    Raises:
        SharpenError: anything given that cannot be used.
    """
    observer, recipe_path = observer or Silent(), Path(recipe_path)
    output = Path(recipe.output) if recipe.output is not None else Path("reward-models") / recipe_path.stem
    with claimed(output, recipe, "a reward model", free=("output", "fit.checkpoint_every")):
        return _made(recipe, recipe_path, output, observer)


def _made(recipe: RewardRecipe, recipe_path: Path, output: Path, observer: Observer) -> TrainedRewardModel:
    target = output / "model"
    if (target / FIGURES).is_file():
        observer.notice(f"{target} has been made already; it is shown again")
        return TrainedRewardModel(folder=target, figures=json.loads((target / FIGURES).read_text(encoding="utf-8")), new=False)
    parts.ensure_model(recipe.model, observer)
    threads = _begun(output, recipe)
    _check_tokenizer(recipe)
    found = examples(recipe, recipe_path.parent, output, threads, observer)
    gc.collect()  # the policy, which has sampled
    fitted = _balance("learn from", found.fitted, recipe)
    judged = _balance("be judged on", found.held_out, recipe)
    again = f", {found.replayed:,} of them replayed" if recipe.replay is not None else ""
    observer.notice(f"{_told(fitted, recipe)} to learn from{again}, {_told(judged, recipe)} held out")
    observer.phase("loading", 0)
    fit, kind = recipe.fit, recipe.head
    model = reward_model.new(recipe.base or recipe.model, kind, dtype=fit.dtype, device=fit.device, recompute=fit.gradient_checkpointing)
    _check_memory(model)
    model.batch_tokens = max(fit.token_budget, model.batch_tokens)
    goes_on = recipe.base is not None and kind_of(loading.find_folder(recipe.base)) == kind
    before = judge(model, found.held_out, recipe, output / "judged-before.parquet", observer) if goes_on else None
    updates = math.ceil(len(reward_fit.usable(found.fitted, kind)) / fit.batch_size) * fit.epochs
    observer.phase("fitting the reward model", updates, unit="updates")
    losses = reward_fit.fit(
        model, found.fitted, fit, seed=recipe.seed, folder=output / "fit", on_progress=observer.advance, notice=observer.notice
    )
    quality = judge(model, found.held_out, recipe, output / "judged.parquet", observer)
    figures: dict[str, Any] = {
        "held_out": quality.to_dict(),
        **({"before": before.to_dict()} if before is not None else {}),
        "fit": {"updates": updates, "first_loss": losses[0], "last_loss": sum(losses[-10:]) / len(losses[-10:]), **_counts(fitted, found)},
    }
    model.about |= {
        "reward_model": recipe.reward_model,
        "model": recipe.model,
        "template": recipe.template.model_dump(mode="json"),
        "steps": recipe.steps.model_dump(mode="json", include={"splitter", "marker", "marker_place"}, exclude_none=True),
        "figures": {name: quality.to_dict()[name]["value"] for name in reward_quality.FIGURES},
    }
    _save(model, target, figures, quality)
    shutil.rmtree(output / "fit" / "checkpoints", ignore_errors=True)
    return TrainedRewardModel(folder=target, figures=figures, new=True)


def judge(model: RewardModel, held_out: Sequence[Example], recipe: RewardRecipe, path: Path, observer: Observer) -> Quality:
    """What the model says of held-out examples, written as Parquet, and how good that is."""
    kept = reward_fit.usable(held_out, model.kind)
    readings = [reading for one in kept for reading in reward_fit.readings(one, model.kind)]
    observer.phase("judging held-out completions", len(readings))
    said = model.read(readings, observer.advance)
    if isinstance(kept[0], Pair):
        margins = [chosen[0] - rejected[0] for chosen, rejected in zip(said[::2], said[1::2], strict=True)]
        problems = [one.problem_id for one in kept]
        _write_judged(path, problems, margins, None)
        return reward_quality.of_pairs(problems, margins, bins=recipe.bins, seed=recipe.seed)
    labels = [reward_fit.targets(one, model.kind) for one in kept]
    problems = [one.problem_id for one, some in zip(kept, labels, strict=True) for _ in some]
    logits, flat = [value for one in said for value in one], [label for some in labels for label in some]
    _write_judged(path, problems, logits, flat)
    what = "steps" if model.kind == "process" else "completions"
    return reward_quality.of_labels(problems, logits, flat, kind=what, bins=recipe.bins, seed=recipe.seed)


def _begun(output: Path, recipe: RewardRecipe) -> int:
    """Note what the output was begun with, or compare: other weights are refused; the threads, on which last bits depend, are set."""
    path = output / BEGUN
    weights = {name: weights_digest(loading.find_folder(name)) for name in (recipe.model, recipe.base) if name is not None}
    if not path.is_file():
        begun = {"threads": parts.set_threads(None), "weights": weights}
        temporary = path.with_suffix(".writing")
        temporary.write_text(json.dumps(begun, indent=2) + "\n", encoding="utf-8")
        os.replace(temporary, path)
    known = json.loads(path.read_text(encoding="utf-8"))
    if changed := [name for name, digest in weights.items() if known["weights"].get(name) != digest]:
        raise RunError(
            f"output {output}: it was begun with other weights of {' and '.join(changed)}.",
            fix="Choose another folder by output=..., or delete that one.",
        )
    return parts.set_threads(int(known["threads"]))


def _balance(what: str, found: Sequence[Example], recipe: RewardRecipe) -> Balance:
    """Counts; RewardError where one side has nothing to tell apart."""
    try:
        return reward_fit.balance(found, recipe.head)
    except RewardError as error:
        raise RewardError(f"The examples to {what}: {error.what.partition(': ')[2]}", fix=error.fix) from error


def _told(balance: Balance, recipe: RewardRecipe) -> str:
    if recipe.reward_model == "preference":
        return f"{balance.examples:,} pairs"
    what = "completions" if recipe.reward_model == "outcome" else f"completions with {balance.labels:,} labelled steps"
    return f"{balance.examples:,} {what} ({balance.positive:.0%} right)"


def _counts(balance: Balance, found: Examples) -> dict[str, Any]:
    problems = len({one.problem_id for one in found.fitted})
    positive = None if math.isnan(balance.positive) else balance.positive
    return {"examples": balance.examples, "labels": balance.labels, "problems": problems, "positive": positive, "replayed": found.replayed}


def _check_tokenizer(recipe: RewardRecipe) -> None:
    """Refuse to fit a model to token ids that mean something else to it."""
    if recipe.base is None or recipe.reward_model == "preference":  # those are encoded by its own tokenizer
        return
    policy, base = (
        reward_model.vocabulary_digest(loading.load_tokenizer(loading.find_folder(name), name)) for name in (recipe.model, recipe.base)
    )
    if policy != base:
        raise RewardError(
            f"base: the tokens of {recipe.base} are not those of {recipe.model}, whose completions are learned from.",
            fix="Choose a base of the policy's family, with its vocabulary, or leave base out.",
        )


def _check_memory(model: RewardModel) -> None:
    """RunError when weights, gradients and the optimiser's state do not fit; activations are not counted."""
    parameters = [p for p in model.module.parameters() if p.requires_grad]
    device = parameters[0].device
    needed = sum(p.numel() * p.element_size() for p in parameters) + state_bytes(parameters, "adamw")
    if needed > memory.available(device):
        raise RunError(
            f"memory: fitting this reward model needs {memory.human(needed)} more for gradients and optimiser, and "
            f"{memory.human(memory.available(device))} can be had.",
            fix="Take a smaller base.",
        )


def _write_judged(path: Path, problems: Sequence[str], values: Sequence[float], labels: Sequence[float] | None) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    name = "margin" if labels is None else "logit"
    columns = {"problem_id": pa.array(problems, pa.string()), name: pa.array(values, pa.float64())}
    if labels is not None:
        columns["label"] = pa.array(labels, pa.float64())
    temporary = path.with_name(f".writing-{path.name}")
    pq.write_table(pa.table(columns), temporary, compression="zstd")
    os.replace(temporary, path)


def _save(model: RewardModel, target: Path, figures: Mapping[str, Any], quality: Quality) -> None:
    from sharpen.reports import reward_model as report

    def beside(folder: Path) -> None:
        (folder / FIGURES).write_text(json.dumps(figures, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        report.plot(quality, folder / PLOT)

    model.save(target, beside)
    assert (target / CARD).is_file()
