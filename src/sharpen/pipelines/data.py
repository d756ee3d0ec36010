"""What a run learns from, and the value model that goes with it, by the method's data source and baseline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sharpen.methods import Method
from sharpen.models.loading import LoadedModel
from sharpen.models.value import LanguageValue
from sharpen.problems.source import fingerprint
from sharpen.recipe import Recipe
from sharpen.records import Completion, Group, Problem
from sharpen.rewards.score import Scorer
from sharpen.rollout.engine import Sampling
from sharpen.rollout.rollout import Rollout
from sharpen.tracking import completions
from sharpen.tracking.observer import Observer
from sharpen.training.learner import Critic
from sharpen.training.optimiser import Optimiser
from sharpen.training.problem_stream import ProblemStream
from sharpen.training.run_folder import RunFolder
from sharpen.training.sources import CurrentPolicy, Demonstrations, Source, Stored, demonstration, needed


def source(
    recipe: Recipe,
    method: Method,
    problems: list[Problem],
    position: int,
    loaded: LoadedModel,
    rollout: Rollout,
    scorer: Scorer,
    folder: RunFolder,
    observer: Observer,
) -> Source:
    """The method's source of completions; one that is sampled once is sampled here, or read where that has been done.

    Args:
        recipe: the settings.
        method: tells who writes.
        problems: to train on.
        position: how many problems have been drawn before.
        loaded: the model before any training (or about to be restored, when its samples are already stored).
        rollout: samples with it.
        scorer: scores.
        folder: keeps what is sampled once.
        observer: who watches.

    Raises:
        ProblemError: demonstrations are asked for and a problem has none.
    """
    settings, stream = recipe.rollout, ProblemStream(problems, recipe.seed, position=position)
    if method.data_source == "current_policy":
        return CurrentPolicy(
            rollout=rollout,
            scorer=scorer,
            problems=stream,
            count=settings.problems,
            group_size=settings.group_size,
            refills=settings.refills,
        )
    if method.data_source == "sft_policy":
        wanted = needed(problems, recipe.seed, recipe.training.steps * settings.problems)
        groups = _sampled_once(recipe, wanted, rollout, scorer, folder.path / "sampled_once", observer)
        return Stored(groups=groups, scorer=scorer, problems=stream, count=settings.problems)
    stop = loaded.tokenizer.eos_token_id if loaded.tokenizer.eos_token_id in loaded.stop_ids else loaded.stop_ids[0]
    written: dict[str, Completion] = {problem.id: demonstration(problem, loaded.tokenizer, stop, settings.longest) for problem in problems}
    return Demonstrations(
        demonstrate=lambda problem: written[problem.id],
        render=rollout.render,
        scorer=scorer,
        problems=stream,
        count=settings.problems * settings.group_size,
    )


def _sampled_once(
    recipe: Recipe, problems: list[Problem], rollout: Rollout, scorer: Scorer, folder: Path, observer: Observer
) -> dict[str, Group]:
    """G completions of each problem by the policy before training, by problem id; kept in a file of the run, for it cannot be had again."""
    settings = recipe.rollout
    path = folder / f"{fingerprint(problems)[:16]}.parquet"
    if not path.is_file():
        observer.phase("sampling once", len(problems) * settings.group_size)
        sampling = Sampling(max_new_tokens=settings.limit(1), temperature=settings.temperature)
        groups = rollout.sample(problems, settings.group_size, sampling, stream="sft_policy", on_progress=observer.advance)
        completions.write(path, groups, scorer.score(groups))
    found: dict[str, list[Completion]] = {}
    for row in completions.read(path):
        completion = Completion(
            tokens=tuple(row["tokens"]),
            sampling_logprobs=tuple(row["sampling_logprobs"]),
            text=row["completion"],
            finish_reason=row["finish_reason"],
        )
        found.setdefault(row["problem_id"], []).append(completion)
    return {
        problem.id: Group(id=f"0/{place}/0", problem=problem, prompt_tokens=rollout.render(problem), completions=tuple(found[problem.id]))
        for place, problem in enumerate(problems)
    }


def critic(recipe: Recipe, method: Method, loaded: LoadedModel) -> Critic | None:
    """The value model of a method that has one, with its optimiser."""
    if method.value is None:
        return None
    model, training = LanguageValue(loaded.model), recipe.training
    optimiser = Optimiser(
        model.module.named_parameters(),
        learning_rate=training.value_learning_rate,
        kind=training.optimiser,
        betas=training.betas,
        weight_decay=training.weight_decay,
        max_grad_norm=training.max_grad_norm,
    )
    return Critic(model=model, optimiser=optimiser, warmup=training.value_warmup)


def parameters(loaded: LoadedModel, critic: Critic | None) -> dict[str, Any]:
    """What the run trains: parameters of the policy and of the value model, and the bytes that the latter costs."""
    return {
        "policy_parameters": sum(p.numel() for p in loaded.model.parameters() if p.requires_grad),
        "value_parameters": critic.parameters if critic is not None else 0,
        "value_memory": critic.memory if critic is not None else 0,
    }
