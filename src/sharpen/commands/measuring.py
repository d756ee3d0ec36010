"""Commands that measure a model, a reward or answers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sharpen.commands.options import (
    MaxNewTokens,
    Model,
    Seed,
    Temperature,
    Template,
    TopP,
    interruptible,
    ks_of,
    show,
    template_of,
    writing,
)


def evaluate(
    model: Model,
    problems: Annotated[
        str,
        typer.Option(
            help="A file, hub:NAME[:SPLIT], reasoning_gym:GENERATOR[:COUNT], arithmetic:LEVEL[:COUNT] or multi_step:LEVEL[:COUNT]."
        ),
    ],
    samples: Annotated[int, typer.Option("--samples", min=1, help="Completions of each problem.")] = 16,
    k: Annotated[str | None, typer.Option("--k", help="The K of Pass@K and Maj@K, as 1,4,16; left out, powers of 2.")] = None,
    max_new_tokens: MaxNewTokens = 256,
    temperature: Temperature = 1.0,
    top_p: TopP = 1.0,
    template: Template = "chat",
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first so many problems.")] = None,
    seed: Seed = 0,
    count_cut: Annotated[bool, typer.Option("--count-cut", help="Grade completions that the limit cut as well.")] = False,
    batch_size: Annotated[int, typer.Option(min=1, help="Completions decoded at once.")] = 128,
    dtype: Annotated[str, typer.Option(help="Of the weights: auto, float32, bfloat16, float16.")] = "auto",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps.")] = "auto",
    output: Annotated[Path | None, typer.Option(help="A folder for all of it; left out, one in evaluations/.")] = None,
) -> None:
    """Measure Pass@K and Maj@K of a model on problems, with 95 % intervals; interrupted, the same command goes on."""
    from sharpen.evaluation.render import summary_table
    from sharpen.pipelines.evaluate import evaluate_model, source_from_text
    from sharpen.tracking.display import watching

    with interruptible("The same command goes on where it stopped."), watching() as observer:
        found = evaluate_model(
            model,
            source_from_text(problems),
            samples=samples,
            ks=ks_of(k, samples),
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            top_p=top_p,
            template=template_of(template),
            seed=seed,
            limit=limit,
            require_stop=not count_cut,
            output=output,
            max_rows=batch_size,
            dtype=dtype,
            device=device,
            observer=observer,
        )
    show(summary_table(found.summary, title=f"{model} on {problems}"))
    for name, parts in found.record.breakdown.items():
        for value, part in parts.items():
            show(summary_table(part, title=f"{name} {value}"))
    show(f"Completions and figures: {found.folder}")


def compare(
    before: Annotated[Path, typer.Argument(help="A folder that `sharpen eval` wrote, or a run; alone, a run before and after training.")],
    after: Annotated[Path | None, typer.Argument(help="Another one, on the same problems; of a run, its model after training.")] = None,
    k: Annotated[str | None, typer.Option("--k", help="The K of Pass@K and Maj@K, as 1,4,16; left out, powers of 2.")] = None,
    margin: Annotated[float, typer.Option(help="The change of Pass@K at the largest K that is taken for none; 0.05: 5 points.")] = 0.05,
    seed: Seed = 0,
    output: Annotated[Path | None, typer.Option(help="A folder for figures (JSON), curves (CSV) and their plot (PNG).")] = None,
) -> None:
    """Compare two models on the same problems: what changed, and the verdict: sharpened, extended, both or no clear change."""
    from sharpen.pipelines.compare import compare_evaluations
    from sharpen.reports.changes import change_report, write

    found = compare_evaluations(before, after, ks=None if k is None else ks_of(k, 0), margin=margin, seed=seed)
    show(f"before: {found.before}\nafter:  {found.after}\n")
    for part in change_report(found.changes):
        show(part)
    if output is not None:
        with writing(output):
            written = write(found.changes, output)
        show(f"\nFigures, curves and plot: {', '.join(str(path) for path in written)}")


def sample(
    model: Model,
    prompt: Annotated[str, typer.Option(help="The problem.")] = "What is 7 * 8?",
    answer: Annotated[str | None, typer.Option(help="The ground truth, to grade by.")] = None,
    count: Annotated[int, typer.Option(min=1, help="Completions.")] = 4,
    max_new_tokens: MaxNewTokens = 64,
    temperature: Temperature = 1.0,
    top_p: TopP = 1.0,
    template: Template = "chat",
    seed: Seed = 0,
) -> None:
    """See a model's completions of one problem."""
    from sharpen.pipelines.evaluate import sample_model
    from sharpen.records import Problem
    from sharpen.reports.terminal import completion_panels

    found = sample_model(
        model,
        Problem(id="sample", prompt=prompt, answer=answer or ""),
        count=count,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_p=top_p,
        template=template_of(template),
        seed=seed,
    )
    for panel in completion_panels(found, graded=answer is not None):
        show(panel)


def search(
    model: Model,
    problems: Annotated[str, typer.Option(help="As in `sharpen eval`: a file, hub:NAME[:SPLIT], multi_step:LEVEL[:COUNT], ...")],
    budget: Annotated[int, typer.Option(min=1, help="Tokens generated a problem.")],
    points: Annotated[int, typer.Option(min=1, help="Budgets compared: this one, its half, its quarter, ...")] = 3,
    reward_model: Annotated[Path | None, typer.Option("--reward-model", help="A folder with one: it leads searches and votes.")] = None,
    value: Annotated[
        str, typer.Option(help="What leads without one: rollouts (of the model itself), equations, or your step function file.py:name.")
    ] = "rollouts",
    oracle: Annotated[bool, typer.Option("--oracle", help="Add a tree search led by the ground truth: a ceiling.")] = False,
    rollouts: Annotated[int, typer.Option(min=1, help="Of each begun completion, where rollouts lead.")] = 2,
    width: Annotated[int, typer.Option(min=1, help="Steps that a search draws at once.")] = 4,
    beams: Annotated[int, typer.Option(min=1, help="Beams at most.")] = 4,
    exploration: Annotated[float, typer.Option(min=0.0, help="The constant of the tree search.")] = 1.0,
    max_step_tokens: Annotated[int, typer.Option(min=1, help="Limit of a step.")] = 64,
    max_new_tokens: MaxNewTokens = 256,
    temperature: Temperature = 1.0,
    template: Template = "chat",
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first so many problems.")] = None,
    seed: Seed = 0,
    batch_size: Annotated[int, typer.Option(min=1, help="Completions decoded at once.")] = 128,
    dtype: Annotated[str, typer.Option(help="Of the weights: auto, float32, bfloat16, float16.")] = "auto",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps.")] = "auto",
    output: Annotated[Path | None, typer.Option(help="A folder for figures (JSON, CSV) and a plot (PNG).")] = None,
) -> None:
    """Compare ways to an answer at equal generated tokens: votes, best-of-N, beam and tree search; docs/search.md explains them."""
    from sharpen.pipelines.evaluate import source_from_text
    from sharpen.pipelines.search import SearchSettings, search_model
    from sharpen.reports.search import search_tables, write
    from sharpen.tracking.display import watching

    settings = SearchSettings(
        budget=budget,
        points=points,
        value=value,
        reward_model=reward_model,
        oracle=oracle,
        rollouts=rollouts,
        width=width,
        beams=beams,
        exploration=exploration,
        max_step_tokens=max_step_tokens,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        seed=seed,
    )
    with interruptible("Nothing was kept."), watching() as observer:
        found = search_model(
            model,
            source_from_text(problems),
            settings,
            template=template_of(template),
            limit=limit,
            max_rows=batch_size,
            dtype=dtype,
            device=device,
            observer=observer,
        )
    for part in search_tables(found, title=f"{model} on {problems}"):
        show(part)
    if output is not None:
        with writing(output):
            show(f"\nFigures and plot: {', '.join(str(path) for path in write(found, output))}")


def grade(
    file: Annotated[Path, typer.Argument(help="A .jsonl, .json, .csv or .parquet file, a ground truth and a prediction a row.")],
    kind: Annotated[
        str | None, typer.Option(help="math, choice, exact, numeric, regex, code; left out, the column `kind`, or else math.")
    ] = None,
    mode: Annotated[str, typer.Option(help="strict (equal), or paper (DeepSeekMath's tolerance; mathematics only).")] = "strict",
    gold: Annotated[str | None, typer.Option(help="The column of the ground truth; left out, gold or answer.")] = None,
    prediction: Annotated[str | None, typer.Option(help="The column of the completion; left out, prediction or completion.")] = None,
    label: Annotated[str | None, typer.Option(help="The column of a verdict to compare with; left out, label where there is one.")] = None,
    output: Annotated[Path | None, typer.Option(help="A .jsonl file for the verdicts with their reasons.")] = None,
) -> None:
    """Grade a file of answers, and compare with labels where it has them."""
    from sharpen.pipelines.grade_file import grade_file
    from sharpen.reports.grades import grade_tables
    from sharpen.tracking.display import watching

    with watching() as observer:
        found = grade_file(file, kind=kind, mode=mode, gold=gold, prediction=prediction, label=label, output=output, observer=observer)
    for part in grade_tables(found, file=file):
        show(part)
    if output is not None:
        show(f"Verdicts: {output}")


def audit_reward(
    recipe: Annotated[Path, typer.Argument(help="A TOML file, or the name of a recipe that comes with sharpen.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="section.field=value ...", metavar="[SECTION.FIELD=VALUE]...")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many problems, evenly spread.")] = 50,
    step: Annotated[int | None, typer.Option(min=1, help="Of training, whose reward is tried; left out, the last one.")] = None,
    json: Annotated[Path | None, typer.Option("--json", help="A file for counts and findings.")] = None,
) -> None:
    """Try a recipe's reward with completions that game it; exit code 1 if it pays for any."""
    from sharpen.bundled import find_recipe
    from sharpen.pipelines import audit_reward as pipeline
    from sharpen.recipe import load_recipe
    from sharpen.reports.audit import audit_tables
    from sharpen.tracking.display import watching

    path = find_recipe(recipe)
    settings = load_recipe(path, overrides or [])
    with watching() as observer:
        found = pipeline.audit_reward(settings, recipe_path=path, limit=limit, step=step, observer=observer)
    for part in audit_tables(found):
        show(part)
    if json is not None:
        pipeline.write_json(found, json)
        show(f"Counts and findings: {json}")
    if found.accepted:
        raise typer.Exit(1)
