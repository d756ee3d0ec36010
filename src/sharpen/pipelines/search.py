"""Searching for answers with a model, and comparing the ways at equal generated tokens."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sharpen.errors import ModelError, RecipeError, SharpenError
from sharpen.models.loading import LoadedModel
from sharpen.pipelines import parts
from sharpen.problems.checks import check_golds, check_sandbox
from sharpen.problems.source import Source, fingerprint, load_problems
from sharpen.problems.templates import Template
from sharpen.records import Problem
from sharpen.rewards.settings import StepSettings
from sharpen.rollout.engine import Sampling
from sharpen.rollout.rollout import Rollout
from sharpen.search.compare import Plan, Row, Tools, compare
from sharpen.search.judges import Decode, Judge, OfModel, Plain, Reader, Rollouts, of_steps
from sharpen.search.steps import Stepper
from sharpen.search.tree import check_search
from sharpen.tracking.observer import Observer, Silent

ROLLOUTS = "rollouts"


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """How answers are searched for.

    Attributes:
        budget: generated tokens a problem.
        points: budgets compared: the budget, its half, its quarter, ...
        value: what leads the searches: `rollouts` (agreement of the policy's own rollouts), or a step function, as `equations` or
            `file.py:name`.
        reward_model: a folder; it leads the searches and rewards completions, in place of `value`.
        oracle: add a tree search that is led by the ground truth.
        rollouts: of each begun completion, where rollouts value it.
        width: k, steps drawn at once.
        beams: of the beam search.
        exploration: c of the tree search.
        separator: ends a step.
        max_step_tokens: limit of a step.
        max_new_tokens: limit of a completion.
        temperature: of sampling.
        seed: of everything random.
    """

    budget: int
    points: int = 3
    value: str = ROLLOUTS
    reward_model: Path | None = None
    oracle: bool = False
    rollouts: int = 2
    width: int = 4
    beams: int = 4
    exploration: float = 1.0
    separator: str = "\n"
    max_step_tokens: int = 64
    max_new_tokens: int = 256
    temperature: float = 1.0
    seed: int = 0

    def check(self) -> None:
        """RecipeError for what cannot be run."""
        check_search(width=self.width, beams=self.beams, exploration=self.exploration, rollouts=self.rollouts, points=self.points)
        check_search(max_step_tokens=self.max_step_tokens, max_new_tokens=self.max_new_tokens)
        if self.budget // 2 ** (self.points - 1) < 1:
            raise RecipeError(f"search: a budget of {self.budget} tokens has no {self.points} halvings.", fix="Give a larger --budget.")
        if not self.temperature > 0:
            raise RecipeError(
                f"search: temperature is {self.temperature}; without chance all samples are one.", fix="Give a --temperature above 0."
            )


@dataclass(frozen=True, kw_only=True)
class Searched:
    """A comparison: its rows, and what it was made with."""

    rows: list[Row]
    problems: list[Problem]
    settings: dict[str, Any]

    @property
    def baseline(self) -> str:
        """What leads the searches."""
        return str(self.settings["led_by"])


def search_model(
    model: str,
    source: Source,
    settings: SearchSettings,
    *,
    template: Template | None = None,
    limit: int | None = None,
    base: Path | None = None,
    max_rows: int = 128,
    dtype: str = "auto",
    device: str = "auto",
    observer: Observer | None = None,
) -> Searched:
    """Compare greedy decoding, votes, best-of-N, beam and tree search of a model on problems, at equal generated tokens.

    Args:
        model: `embedded`, `tiny`, a folder, or a hub id.
        source: the problems, held out from whatever the model and the reward model learnt.
        settings: of the searches.
        template: how a problem becomes a prompt.
        limit: only the first so many problems.
        base: the folder that a relative file is looked for in, after the working directory.
        max_rows: completions decoded at once.
        dtype: of the weights, as `load` takes it.
        device: as `load` takes it.
        observer: who watches.

    Raises:
        SharpenError: anything given that cannot be used.
    """
    observer, template = observer or Silent(), template or Template()
    settings.check()
    problems = load_problems(source, base=base)[:limit]
    check_sandbox(problems, "bubblewrap", observer.notice)
    check_golds(problems)
    parts.ensure_model(model, observer)
    observer.phase("loading", 0)
    loaded, rollout = parts.sampling_model(
        model, template, seed=settings.seed, max_rows=max_rows, dtype=dtype, device=device, notice=observer.notice
    )
    parts.longest_sequence(problems, rollout, settings.max_new_tokens, loaded, key="max-new-tokens")
    tools, led_by, close = make_tools(loaded, rollout, settings, max_rows=max_rows, base=base)
    sampling = Sampling(max_new_tokens=settings.max_new_tokens, temperature=settings.temperature)
    plan = Plan(
        budgets=[settings.budget // 2**half for half in reversed(range(settings.points))],
        width=settings.width,
        beams=settings.beams,
        exploration=settings.exploration,
        seed=settings.seed,
    )
    try:
        rows = compare(problems, tools, plan, sampling, observer)
    finally:
        close()
    told = {name: str(value) if isinstance(value, Path) else value for name, value in vars(settings).items()}
    told |= {
        "model": model,
        "led_by": led_by,
        "problems": source.model_dump(mode="json"),
        "problem_count": len(problems),
        "fingerprint": fingerprint(problems),
        "template": template.model_dump(mode="json"),
    }
    return Searched(rows=rows, problems=problems, settings=told)


def make_tools(
    loaded: LoadedModel, rollout: Rollout, settings: SearchSettings, *, max_rows: int, base: Path | None = None
) -> tuple[Tools, str, Callable[[], None]]:
    """What the strategies are made of, what leads the searches, in words, and what frees it."""
    reader = Reader(rollout.decode, loaded.stop_ids)
    stepper = Stepper.of_model(
        loaded.model,
        loaded.tokenizer,
        loaded.stop_ids,
        separator=settings.separator,
        max_rows=max_rows,
        max_step_tokens=settings.max_step_tokens,
        max_new_tokens=settings.max_new_tokens,
        temperature=settings.temperature,
    )
    context = getattr(loaded.model.config, "max_position_embeddings", None)
    sampling = Sampling(max_new_tokens=settings.max_new_tokens, temperature=settings.temperature)

    def rollouts(oracle: bool = False) -> Judge:
        return Rollouts(
            rollout.engine, reader, rollouts=settings.rollouts, sampling=sampling, seed=settings.seed, oracle=oracle, context=context
        )

    def oracle() -> Judge:
        return rollouts(oracle=True)

    judge: Callable[[], Judge] = rollouts
    scorer: Judge | None = None
    close: Callable[[], None] = _nothing
    led_by = f"agreement of {settings.rollouts} rollouts"
    if settings.reward_model is not None:
        scorer, close = reward_model_judge(settings.reward_model, loaded, rollout.decode, reader)
        led_by, judge = scorer.name, _same(scorer)
    elif settings.value != ROLLOUTS:
        try:
            function = StepSettings(function=settings.value).load(base)
        except ValidationError as error:
            raise RecipeError(f"search: value: {error.errors()[0]['msg'].removeprefix('Value error, ')}.") from error
        led_by = f"step function {settings.value}"
        scorer = Plain(of_steps(function, rollout.decode, reader), led_by)
        judge = _same(scorer)
    tools = Tools(rollout=rollout, stepper=stepper, reader=reader, judge=judge, scorer=scorer, oracle=oracle if settings.oracle else None)
    return tools, led_by, close


def _same(judge: Judge) -> Callable[[], Judge]:
    """A judge that keeps nothing may serve every search."""
    return lambda: judge


def _nothing() -> None:
    """There is nothing to free."""


def reward_model_judge(path: Path, loaded: LoadedModel, decode: Decode, reader: Reader) -> tuple[Judge, Callable[[], None]]:
    """The judge that a reward model in a folder is, and what frees it.

    Raises:
        SharpenError: reward models cannot be loaded, this one cannot, or it reads other tokens than the policy writes.
    """
    try:
        module = importlib.import_module("sharpen.models.reward_model")
    except ModuleNotFoundError as error:
        raise SharpenError(
            f"reward model {path}: this version of sharpen has no reward models.", fix="Leave it out, and give --value."
        ) from error
    model = module.load(str(path))
    if module.vocabulary_digest(model.tokenizer) != module.vocabulary_digest(loaded.tokenizer):
        raise ModelError(
            f"reward model {path}: its tokens are not those of {loaded.name}.", fix="Take one that was made from the same model."
        )
    return OfModel(model, model.kind, decode, reader, name=f"{model.kind} reward model {path}"), model.close
