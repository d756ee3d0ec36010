"""What a reward model learns from: samples of a policy labelled by the rule, a file of labels, or a file of preferences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sharpen.errors import ProblemError, RewardError
from sharpen.evaluation import in_parts
from sharpen.models import loading
from sharpen.pipelines import parts
from sharpen.pipelines.reward_recipe import RewardRecipe
from sharpen.problems.checks import check_golds, check_sandbox
from sharpen.problems.files import find_file, read_rows
from sharpen.problems.source import Source, fingerprint, load_problems
from sharpen.problems.templates import render
from sharpen.records import Problem
from sharpen.rewards import labels
from sharpen.rewards.labels import Labelled
from sharpen.rewards.splitters import split_tokens
from sharpen.rewards.steps import judge, step_columns
from sharpen.rollout.engine import Sampling
from sharpen.rollout.rollout import Rollout
from sharpen.streams import permutation
from sharpen.tracking import completions
from sharpen.tracking.observer import Observer
from sharpen.training.reward_fit import Example, Pair


@dataclass(frozen=True, kw_only=True)
class Examples:
    """What there is to learn from and to be judged on; no problem is in both.

    Attributes:
        fitted: examples to learn from, the replayed ones last.
        held_out: examples to be judged on.
        replayed: how many of the fitted ones are earlier ones.
    """

    fitted: list[Example]
    held_out: list[Example]
    replayed: int = 0


def examples(recipe: RewardRecipe, base: Path, folder: Path, threads: int, observer: Observer) -> Examples:
    """The examples of a recipe; samples are kept in the folder and taken only once.

    Args:
        recipe: the settings.
        base: the recipe's folder.
        folder: the output's.
        threads: of the CPU, on which the last bits of samples depend.
        observer: who watches.

    Raises:
        SharpenError: problems, labels or preferences that cannot be used, or that leave one side empty.
    """
    if recipe.pairs is not None:
        found: list[Example] = list(_pairs(recipe, base, observer))
        return _parted(recipe, found)
    return _with_replay(recipe, base, _new(recipe, base, folder, threads, observer))


def _new(recipe: RewardRecipe, base: Path, folder: Path, threads: int, observer: Observer) -> Examples:
    """The examples without replayed ones."""
    if recipe.labels is not None:
        path = find_file(recipe.labels, base)
        return _parted(recipe, list(labels.read(path)))
    assert recipe.problems is not None
    kept = {name: folder / "data" / f"{name}.parquet" for name in ("train", "held_out")}
    if not all(path.is_file() for path in kept.values()):
        _sample(recipe, base, folder, threads, observer)
    fitted, held_out = (list[Example](labels.read(path)) for path in kept.values())
    return Examples(fitted=fitted, held_out=held_out)


def _with_replay(recipe: RewardRecipe, base: Path, found: Examples) -> Examples:
    """The same with a share of earlier examples; none of them is of a problem that the model is judged on."""
    if recipe.replay is None:
        return found
    held_out = {one.problem_id for one in found.held_out}
    earlier = [one for file in recipe.replay.files for one in labels.read(find_file(file, base)) if one.problem_id not in held_out]
    count = round(recipe.replay.share * len(earlier))
    chosen = sorted(permutation(len(earlier), recipe.seed, "reward_model_replay")[:count])
    return Examples(fitted=[*found.fitted, *(earlier[place] for place in chosen)], held_out=found.held_out, replayed=count)


def _sample(recipe: RewardRecipe, base: Path, folder: Path, threads: int, observer: Observer) -> None:
    """Sample completions, grade them, and write them with their labels to `data/`."""
    sides = _problems(recipe, base, observer)
    device = loading.resolve_device(recipe.fit.device)
    observer.phase("loading", 0)
    loaded, rollout = parts.sampling_model(
        recipe.model, recipe.template, seed=recipe.seed, dtype=recipe.fit.dtype, device=device, max_rows=recipe.samples.max_rows,
        notice=observer.notice,
    )  # fmt: skip
    limit = recipe.samples.max_new_tokens
    parts.longest_sequence([problem for side in sides.values() for problem in side], rollout, limit, loaded, key="samples.max_new_tokens")
    for name, problems in sides.items():
        target = folder / "data" / f"{name}.parquet"
        if not target.is_file():
            rows = _completions(recipe, name, problems, rollout, folder / "data", threads, observer)
            labels.write(target, _labelled(recipe, base, problems, rows, rollout))
            in_parts.discard(folder / "data" / f"{name}.parts")


def _problems(recipe: RewardRecipe, base: Path, observer: Observer) -> dict[str, list[Problem]]:
    """The problems to learn from and to be judged on."""
    assert recipe.problems is not None
    limit, settings = recipe.samples.limit, recipe.problems

    def some(source: Source) -> list[Problem]:
        return load_problems(source, base=base)[:limit]

    train = some(settings.train)
    if settings.held_out is not None:
        held_out = some(settings.held_out)
        parts.check_apart(train, held_out)
    else:
        chosen = held_out_of([problem.id for problem in train], recipe)
        held_out = [problem for problem in train if problem.id in chosen]
        train = [problem for problem in train if problem.id not in chosen]
    check_sandbox([*train, *held_out], recipe.samples.sandbox, observer.notice)
    check_golds([*train, *held_out], sandbox=recipe.samples.sandbox)
    return {"train": train, "held_out": held_out}


def _completions(
    recipe: RewardRecipe, name: str, problems: list[Problem], rollout: Rollout, folder: Path, threads: int, observer: Observer
) -> list[dict[str, Any]]:
    """The graded completions of one side, sampled part by part; the rows of `completions-NAME.parquet`."""
    samples, path = recipe.samples, folder / f"completions-{name}.parquet"
    settings = {
        "model": recipe.model,
        "side": name,
        "fingerprint": fingerprint(problems),
        "template": recipe.template.model_dump(mode="json"),
        "seed": recipe.seed,
        "threads": threads,
        **samples.model_dump(mode="json"),
    }
    observer.phase(f"sampling completions to {'learn from' if name == 'train' else 'judge'}", len(problems) * samples.per_problem)
    in_parts.evaluate_in_parts(
        rollout,
        problems,
        samples.per_problem,
        Sampling(max_new_tokens=samples.max_new_tokens, temperature=samples.temperature),
        folder=folder / f"{name}.parts",
        settings=settings,
        max_rows=samples.max_rows,
        stream=f"reward_model_{name}",
        require_stop=samples.require_stop,
        sandbox=samples.sandbox,
        on_progress=observer.advance,
        notice=observer.notice,
    )
    in_parts.join(folder / f"{name}.parts", path)
    rows = completions.read(path)
    finished = sum(row["finish_reason"] == "stop" for row in rows)
    if finished == 0 and samples.require_stop:
        raise RewardError(
            f"None of {len(rows)} completions ended within samples.max_new_tokens = {samples.max_new_tokens}, so all of them are wrong.",
            fix="Raise samples.max_new_tokens, or take a policy that ends its answers.",
        )
    unscorable = sum(row["reward"] is None for row in rows)
    if unscorable:
        observer.notice(f"{unscorable} of {len(rows)} completions cannot be graded and are left out")
    return rows


def _labelled(recipe: RewardRecipe, base: Path, problems: list[Problem], rows: list[dict[str, Any]], rollout: Rollout) -> list[Labelled]:
    """The completions with their labels: of the whole by the grader, and for a process model of each step by the rule."""
    prompts = {problem.id: rollout.render(problem) for problem in problems}
    scorable = [row for row in rows if row["reward"] is not None and row["tokens"]]
    steps: list[tuple[tuple[int, float], ...]] = [() for _ in scorable]
    if recipe.reward_model == "process":
        settings, by_id = recipe.steps, {problem.id: problem for problem in problems}
        function = settings.load(base)
        cut = [split_tokens(row["tokens"], rollout.decode, settings.ends, stopped=row["finish_reason"] == "stop") for row in scorable]
        columns: dict[str, list[Any]] = {
            "prompts": [row["prompt"] for row in scorable],
            "completions": [row["completion"] for row in scorable],
            "completion_ids": [row["tokens"] for row in scorable],
            "finish_reason": [row["finish_reason"] for row in scorable],
            "answer": [by_id[row["problem_id"]].answer for row in scorable],
            "problem_id": [row["problem_id"] for row in scorable],
        }
        taken = step_columns(function, columns, range(len(scorable)))
        steps = judge(settings.function, function, cut, [row["reward"] for row in scorable], taken)
    return [
        Labelled(
            problem_id=row["problem_id"],
            prompt_tokens=prompts[row["problem_id"]],
            completion_tokens=tuple(row["tokens"]),
            label=row["reward"],
            steps=judged,
        )
        for row, judged in zip(scorable, steps, strict=True)
    ]


def _pairs(recipe: RewardRecipe, base: Path, observer: Observer) -> list[Pair]:
    """The preferences of a file, in tokens of the model that is fitted."""
    assert recipe.pairs is not None
    name = recipe.base or recipe.model
    folder = loading.find_folder(name)
    loading.check_folder(folder, name)
    tokenizer = loading.load_tokenizer(folder, name)
    context = getattr(_config(folder), "max_position_embeddings", None)
    end = () if tokenizer.eos_token_id is None else (tokenizer.eos_token_id,)
    found: list[Pair] = []
    long = 0
    for place, row in read_rows(find_file(recipe.pairs.path, base)):
        if recipe.pairs.limit is not None and len(found) == recipe.pairs.limit:
            break
        prompt, chosen, rejected = _texts(place, row)
        pair = Pair(
            problem_id=prompt,
            prompt_tokens=render(prompt, recipe.template, tokenizer),
            chosen=(*tokenizer(chosen, add_special_tokens=False)["input_ids"], *end),
            rejected=(*tokenizer(rejected, add_special_tokens=False)["input_ids"], *end),
        )
        if not pair.chosen or not pair.rejected:
            raise ProblemError(
                f"{place}: an empty text has no token, and the tokenizer of {name} has no end of text that could stand for it.",
                fix="Remove the row, or take a base whose tokenizer has an eos_token.",
            )
        if context is not None and len(pair.prompt_tokens) + max(len(pair.chosen), len(pair.rejected)) > context:
            long += 1
        else:
            found.append(pair)
    if long:
        observer.notice(f"{long} pairs are longer than the {context} positions of {name} and are left out")
    if not found:
        raise ProblemError(
            f"pairs '{recipe.pairs.path}': there is no pair in it that can be used.", fix="Give prompt, chosen and rejected in each row."
        )
    return found


def _config(folder: Path) -> Any:
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(folder, trust_remote_code=False).get_text_config()


def _texts(place: str, row: Any) -> tuple[str, str, str]:
    """Prompt, chosen and rejected of a row; the message quotes none of it, for preferences of harm hold harmful text."""
    for name in ("prompt", "chosen", "rejected"):
        if not isinstance(row.get(name), str) or (name == "prompt" and not row[name].strip()):
            got = f"it has {', '.join(row)}" if name not in row else "it is empty" if row[name] is None or row[name] == "" else "it is none"
            raise ProblemError(f"{place}: expected a text in '{name}'; {got}.", fix="Give prompt, chosen and rejected, each a text.")
    if row["chosen"] == row["rejected"]:
        raise ProblemError(f"{place}: 'chosen' and 'rejected' are the same text.", fix="Remove the row: it prefers nothing.")
    return row["prompt"], row["chosen"], row["rejected"]


def held_out_of(problems: Sequence[str], recipe: RewardRecipe) -> set[str]:
    """The ids of the problems that the model is judged on: the recipe's share of them, at least one, drawn by the seed.

    Raises:
        ProblemError: fewer than two problems.
    """
    ids = list(dict.fromkeys(problems))
    if len(ids) < 2:
        raise ProblemError(
            f"A reward model is judged on other problems than it is fitted to; there are {len(ids)} to divide.",
            fix="Give more problems, or name problems.held_out.",
        )
    count = min(len(ids) - 1, max(1, round(recipe.held_out_share * len(ids))))
    return {ids[place] for place in permutation(len(ids), recipe.seed, "reward_model_held_out")[:count]}


def _parted(recipe: RewardRecipe, found: list[Example]) -> Examples:
    chosen = held_out_of([one.problem_id for one in found], recipe)
    return Examples(
        fitted=[one for one in found if one.problem_id not in chosen], held_out=[one for one in found if one.problem_id in chosen]
    )
