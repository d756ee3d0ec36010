"""The parts that commands share: a model that samples, and the checks that come before its first completion."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sharpen.errors import ProblemError, RecipeError, RunError
from sharpen.grading import state_gold
from sharpen.methods import Method
from sharpen.models import lora, tiny
from sharpen.models.loading import LoadedModel, load
from sharpen.models.lora_settings import LoraSettings
from sharpen.problems.templates import Template, render
from sharpen.recipe import Recipe, unused_settings
from sharpen.records import Completion, Group, Problem
from sharpen.rewards.learned import OutcomeReward
from sharpen.rewards.score import Scorer
from sharpen.rollout.rollout import Rollout
from sharpen.rollout.torch_engine import TorchEngine
from sharpen.tracking.observer import Observer
from sharpen.training.gaming import Output, Watch


def set_threads(threads: int | None) -> int:
    """Fix the CPU threads of matrix products, on which the last bits of a result depend; how many there are now."""
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
    return torch.get_num_threads()


def ensure_model(name: str, observer: Observer) -> None:
    """Make the tiny model if it is asked for and there is none yet; other models are found or told of when they are loaded."""
    seed = tiny.seed_of(name)
    if seed is None or tiny.is_made(seed):
        return
    from sharpen.pipelines.make_tiny import make_tiny

    observer.notice(f"The model {name} has not been made yet: making it, once, in a few minutes.")
    made = make_tiny(seed=seed, observer=observer)
    observer.notice(f"The model {name} lies in {made.folder}; {made.told}")


def sampling_model(
    name: str,
    template: Template,
    *,
    seed: int,
    dtype: str = "auto",
    device: str = "auto",
    max_rows: int = 128,
    adapter: LoraSettings | None = None,
    notice: Callable[[str], None] | None = None,
) -> tuple[LoadedModel, Rollout]:
    """Load a model, put a new adapter on it where one is to be trained, and make what samples from it."""
    loaded = load(name, dtype=dtype, device=device)
    if adapter is not None:
        lora.attach(loaded.model, adapter, seed=seed, base=loaded.source)
    engine = TorchEngine(loaded.model, loaded.stop_ids, max_rows=max_rows, notice=notice)

    def prompt(problem: Problem) -> tuple[int, ...]:
        return render(problem.prompt, template, loaded.tokenizer)

    return loaded, Rollout(engine=engine, tokenizer=loaded.tokenizer, render=prompt, seed=seed)


def longest_sequence(problems: Sequence[Problem], rollout: Rollout, max_new_tokens: int, loaded: LoadedModel, *, key: str) -> int:
    """The longest prompt and completion in tokens; RecipeError when the model's context cannot hold it.

    Args:
        problems: all that will be sampled.
        rollout: renders prompts.
        max_new_tokens: the largest limit of a completion.
        loaded: the model.
        key: the recipe's key of the limit, for the message.
    """
    longest = max(problems, key=lambda problem: len(rollout.render(problem)))
    prompt = len(rollout.render(longest))
    context = getattr(loaded.model.config, "max_position_embeddings", None)
    if context is not None and prompt + max_new_tokens > context:
        raise RecipeError(
            f"{key}: {max_new_tokens} new tokens after a prompt of {prompt} (problem {longest.id}) need {prompt + max_new_tokens} "
            f"positions, and {loaded.name} has {context}.",
            fix=f"Set {key} to at most {context - prompt}, or take a model with a longer context.",
        )
    return prompt + max_new_tokens


def check_apart(train: Sequence[Problem], held_out: Sequence[Problem]) -> None:
    """ProblemError when a held-out prompt is trained on as well."""
    prompts = {problem.prompt.strip(): problem.id for problem in train}
    shared = [problem for problem in held_out if problem.prompt.strip() in prompts]
    if shared:
        first = shared[0]
        raise ProblemError(
            f"problems: {len(shared)} held-out problems are trained on as well, for example {first.id} as {prompts[first.prompt.strip()]}.",
            fix="Take the held-out problems from another split or file, so that the evaluation shows what was not trained on.",
        )


def usable_method(recipe: Recipe, base: Path, notice: Callable[[str], None]) -> Method:
    """The recipe's method; a setting that it has no use for is told.

    Raises:
        RecipeError: a method that cannot be had, or that compares the completions of groups of one.
    """
    method = recipe.method.build(base)
    if method.needs_group and recipe.rollout.group_size < 2:
        raise RecipeError(
            f"rollout.group_size: {method.name} needs groups of at least 2 completions (G), got {recipe.rollout.group_size}: "
            "one has no baseline.",
            fix="Set rollout.group_size to 2 or more.",
        )
    if idle := unused_settings(recipe.method, method):
        notice(f"{method.name} has no use for method.{', method.'.join(idle)}")
    return method


def tell_of_rewards(recipe: Recipe, notice: Callable[[str], None]) -> None:
    """Tell of parts of the reward whose first step comes after the last one."""
    for name, entry in recipe.rewards.parts.items():
        if entry.from_step > recipe.training.steps:
            notice(
                f"rewards: '{name}' counts from step {entry.from_step} on, and training has {recipe.training.steps}: it is only recorded"
            )


def probe_rewards(scorer: Scorer, problem: Problem, group_size: int) -> None:
    """Score a group of made-up completions that give the ground truth, so that a faulty reward function is told before any work."""
    completion = Completion(tokens=(0,), sampling_logprobs=(0.0,), text=state_gold(problem) or problem.answer, finish_reason="stop")
    scorer.score([Group(id="probe", problem=problem, prompt_tokens=(0,), completions=(completion,) * group_size)])


def watch_on_rewards(recipe: Recipe, method: Method, scorer: Scorer) -> Watch:
    """The watch on a run's learned rewards.

    Raises:
        RecipeError: `[rewards.gaming]` for a model of preferences, or for completions that the trained policy does not write.
    """
    if recipe.rewards.gaming is not None and method.data_source != "current_policy":
        raise RecipeError(
            f"rewards.gaming: '{method.name}' learns from completions that were there before training, so its rewards cannot drift.",
            fix="Leave [rewards.gaming] out, or choose a method that samples from the policy in training, such as grpo.",
        )
    outputs: dict[str, Output] = {}
    for name in recipe.rewards.learned:
        model = scorer.models[name]
        assert isinstance(model, OutcomeReward)
        if model.found.about.get("reward_model") != "preference":
            outputs[name] = model.output
        elif recipe.rewards.gaming is not None:
            raise RecipeError(
                f"rewards.gaming: '{name}' is a model of preferences, whose number is no probability of being right, so there is no gap "
                "to the rule.",
                fix="Leave [rewards.gaming] out, and watch reward/accuracy beside it.",
            )
    return Watch(outputs=outputs, settings=recipe.rewards.gaming, counts=recipe.rewards.learned_at, fall_back=scorer.fall_back)


def know_reward_models(scorer: Scorer, resolved: dict[str, Any], run: Path) -> None:
    """Note the weights of a run's reward models in what its checkpoints keep, and refuse to go on with others.

    Args:
        scorer: has them.
        resolved: what the run has resolved; gets `reward_models`, their digests, where there are any.
        run: its folder, for the message.

    Raises:
        RunError: the run began with other weights.
    """
    digests = {name: model.digest() for name, model in scorer.models.items()}
    if not digests:
        return
    known = resolved.setdefault("reward_models", digests)
    if changed := sorted(name for name in digests.keys() | known.keys() if digests.get(name) != known.get(name)):
        raise RunError(
            f"resume {run}: the weights of a reward model ({', '.join(changed)}) are not those the run began with.",
            fix="Bring the old reward model back, or begin a new run without --resume.",
        )
