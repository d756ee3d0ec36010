"""Making the tiny model: from scratch on equations, then by supervised fine-tuning on worked solutions with mistakes; and measuring it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from sharpen.errors import ModelError
from sharpen.evaluation.evaluate import evaluate
from sharpen.evaluation.summary import summarise
from sharpen.models import tiny
from sharpen.models.cache import build_once
from sharpen.models.saving import save_model
from sharpen.pipelines import parts, tiny_text
from sharpen.pipelines.tiny_training import Fitting
from sharpen.problems.multi_step import MultiStepSource, generate
from sharpen.problems.templates import Template
from sharpen.rollout.engine import Sampling
from sharpen.tracking.observer import Observer, Silent

THREADS = 2
"""Whatever the machine has: sums are ordered by the number of threads, and the weights are to be the same bit for bit."""

MEASURED = "measured.json"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How the tiny model is made; tests make a smaller one.

    Attributes:
        width: of the residual stream.
        layers: how many.
        text_steps: on equations alone.
        text_rows: rows of 64 tokens in a step.
        demonstration_steps: on worked solutions.
        demonstration_rows: solutions in a step.
        problems: held-out problems it is measured on.
        samples: completions of each.
        max_new_tokens: limit of a completion.
    """

    width: int = 192
    layers: int = 3
    text_steps: int = 200
    text_rows: int = 32
    demonstration_steps: int = 280
    demonstration_rows: int = 48
    problems: int = 96
    samples: int = 64
    max_new_tokens: int = 48


@dataclass(frozen=True, kw_only=True)
class TinyModel:
    """What has been made.

    Attributes:
        folder: a Hugging Face folder.
        parameters: how many.
        pass_at_k: on held-out problems at T = 1, for K = 1 and K = `samples`.
        new: whether this call made it.
    """

    folder: Path
    parameters: int
    pass_at_k: Mapping[int, float]
    new: bool

    @property
    def told(self) -> str:
        """Its size and figures in a line."""
        rates = ", ".join(f"Pass@{k} {rate:.2f}" for k, rate in sorted(self.pass_at_k.items()))
        return f"{self.parameters:,} parameters; {rates} on held-out problems of multi_step at T = 1."


def make_tiny(*, seed: int = 0, force: bool = False, plan: Plan | None = None, observer: Observer | None = None) -> TinyModel:
    """The tiny model of a seed: the one in the cache, or a new one where there is none.

    Args:
        seed: of weights and text.
        force: make it anew in any case.
        plan: how; left out, as the model that is called `tiny`.
        observer: who watches.

    Raises:
        ModelError: the cache cannot be written.
    """
    folder, plan, observer = tiny.tiny_folder(seed), plan or Plan(), observer or Silent()
    new = False
    if force or not tiny.is_made(seed):

        def build(into: Path) -> None:
            with _threads(THREADS):
                _build(into, seed, plan, observer)

        try:
            new = build_once(folder, build, name="tiny model", again="making it again", force=force)
        except OSError as error:
            raise ModelError(
                f"The tiny model cannot be written to {folder} ({error.strerror or error}).",
                fix="Make room there (10 MB), or set the environment variable SHARPEN_CACHE to a folder that can be written.",
            ) from error
    known = json.loads((folder / MEASURED).read_text(encoding="utf-8"))
    rates = {int(k): value for k, value in known["pass_at_k"].items()}
    return TinyModel(folder=folder, parameters=known["parameters"], pass_at_k=rates, new=new)


def _build(folder: Path, seed: int, plan: Plan, observer: Observer) -> None:
    tokenizer = tiny.new_tokenizer()
    model = tiny.new_model(tokenizer, seed=seed, width=plan.width, layers=plan.layers)
    fitting = Fitting(model, plan.text_steps + plan.demonstration_steps)
    observer.phase("tiny model: reading equations", plan.text_steps, unit="steps")
    fitting.run(tiny_text.text(tokenizer, seed, plan.text_rows), plan.text_steps, observer.advance)
    observer.phase("tiny model: learning from worked solutions", plan.demonstration_steps, unit="steps")
    fitting.run(tiny_text.demonstrations(tokenizer, seed, plan.demonstration_rows), plan.demonstration_steps, observer.advance)
    save_model(model, tokenizer, folder)
    measured = {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "pass_at_k": _measure(folder, plan, observer),
        "problems": plan.problems,
        "samples": plan.samples,
    }
    (folder / MEASURED).write_text(json.dumps(measured, indent=2) + "\n", encoding="utf-8")


def _measure(folder: Path, plan: Plan, observer: Observer) -> dict[int, float]:
    observer.phase("tiny model: measuring", plan.problems * plan.samples)
    problems = generate(MultiStepSource(split="held_out", count=plan.problems))
    _, rollout = parts.sampling_model(str(folder), Template(), seed=0, dtype="float32", device="cpu")
    sampling = Sampling(max_new_tokens=plan.max_new_tokens, temperature=1.0, top_p=1.0)
    found = evaluate(rollout, problems, plan.samples, sampling, on_progress=observer.advance)
    return {k: estimate.value for k, estimate in summarise(found.results, [1, plan.samples]).pass_at_k.items()}


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
