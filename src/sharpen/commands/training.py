"""Commands that train."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, cast

import typer

from sharpen.commands.options import MaxNewTokens, Seed, Temperature, interruptible, one_of, show, template_of


def train(
    recipe: Annotated[Path, typer.Argument(help="A TOML file, or the name of a recipe that comes with sharpen.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="section.field=value ...", metavar="[SECTION.FIELD=VALUE]...")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the recipe's output folder.")] = False,
) -> None:
    """Run a recipe: train, evaluate the model after and before training, and show what changed."""
    from sharpen.bundled import find_recipe
    from sharpen.recipe import load_recipe

    path = find_recipe(recipe)
    settings = load_recipe(path, overrides or [])
    from sharpen.pipelines.train import train as run
    from sharpen.reports.terminal import run_report
    from sharpen.tracking.display import watching
    from sharpen.training.loop import Interrupted

    with watching() as observer:
        try:
            result = run(settings, recipe_path=path, resume=resume, observer=observer)
        except Interrupted as stop:
            observer.notice(str(stop))
            raise typer.Exit(128 + stop.signal) from None
    for part in run_report(result):
        show(part)


def train_reward_model(
    recipe: Annotated[Path, typer.Argument(help="A TOML file with the key reward_model, or the name of one that comes with sharpen.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="section.field=value ...", metavar="[SECTION.FIELD=VALUE]...")] = None,
) -> None:
    """Train a reward model on graded samples, steps or preferences, and judge it; interrupted, the same command goes on."""
    from sharpen.bundled import find_recipe
    from sharpen.pipelines.reward_recipe import load_reward_recipe

    path = find_recipe(recipe)
    settings = load_reward_recipe(path, overrides or [])
    from sharpen.pipelines.reward_model import PLOT
    from sharpen.pipelines.reward_model import train_reward_model as run
    from sharpen.reports.reward_model import tables
    from sharpen.tracking.display import watching

    with interruptible("The same command goes on where it stopped."), watching() as observer:
        result = run(settings, recipe_path=path, observer=observer)
    for table in tables(result.quality, result.figures["fit"]):
        show(table)
    show(f"Model, figures and plot: {result.folder}, {result.folder / PLOT}")


def iterate(
    recipe: Annotated[Path, typer.Argument(help="A TOML file with the keys policy and reward_model, or the name of one that comes along.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="section.field=value ...", metavar="[SECTION.FIELD=VALUE]...")] = None,
) -> None:
    """Iterative GRPO: rounds of training by a reward model that follows the policy; interrupted, the same command goes on."""
    from sharpen.bundled import find_recipe
    from sharpen.pipelines.iterative_recipe import load_iterative

    loaded = load_iterative(find_recipe(recipe), overrides or [])
    from sharpen.pipelines.iterative import iterate as run
    from sharpen.reports import iterative as report
    from sharpen.tracking.display import watching
    from sharpen.training.loop import Interrupted

    with interruptible("The same command goes on where it stopped."), watching() as observer:
        try:
            found = run(loaded, observer=observer)
        except Interrupted as stop:
            observer.notice(f"stopped after step {stop.step} of this round; saved. The same command goes on.")
            raise typer.Exit(128 + stop.signal) from None
    for table in report.tables(found):
        show(table)
    show(f"Model: {found.model} · plot: {report.plot(found, found.folder / report.PLOT)}")


def make_tiny(
    seed: Seed = 0,
    force: Annotated[bool, typer.Option("--force", help="Make it anew, even if it is there.")] = False,
) -> None:
    """Make the model "tiny": trained from scratch on multi-step arithmetic, in minutes; "tiny:SEED" for a seed other than 0."""
    from sharpen.pipelines.make_tiny import make_tiny as make
    from sharpen.tracking.display import watching

    with watching() as observer:
        made = make(seed=seed, force=force, observer=observer)
    show(f"{'Made' if made.new else 'Already made'}: {made.folder}")
    show(made.told)


def post_train(
    algorithm: Annotated[str, typer.Option(help="A method of `sharpen methods`.")] = "grpo",
    dataset: Annotated[str, typer.Option(help="gsm8k-candidate.")] = "gsm8k-candidate",
    maximum_examples: Annotated[int, typer.Option(help="Training questions.")] = 512,
    steps: Annotated[int, typer.Option(help="Updates.")] = 300,
    group_size: Annotated[int, typer.Option(help="Samples of each question (G).")] = 4,
    seed: Seed = 42,
    offline: Annotated[bool, typer.Option("--offline", help="Never ask the hub; without GSM8K, generated questions stand in.")] = False,
    data_dir: Annotated[Path | None, typer.Option(help="Holds gsm8k/train.jsonl and gsm8k/test.jsonl; left out, SHARPEN_DATA.")] = None,
    output_dir: Annotated[Path, typer.Option(help="Where the JSON is written.")] = Path(),
) -> None:
    """Train the candidate policy: six candidate answers a question, in a few seconds, exactly reproducible."""
    from sharpen.pipelines import post_train as pipeline
    from sharpen.tracking.display import watching

    with watching() as observer:
        result = pipeline.post_train(
            algorithm=algorithm,
            dataset=dataset,
            maximum_examples=maximum_examples,
            steps=steps,
            group_size=group_size,
            seed=seed,
            offline=offline,
            data_dir=data_dir,
            output_dir=output_dir,
            observer=observer,
        )
    show(pipeline.summary_table(result))


def compare_methods(
    comparison: Annotated[Path, typer.Argument(help="A TOML file, such as recipes/compare.toml.")] = Path("compare"),
    output: Annotated[Path | None, typer.Option(help="The folder of all runs; left out, the file's own.")] = None,
) -> None:
    """Train by several methods and seeds from one recipe, and show their learning curves side by side."""
    from sharpen.bundled import find_recipe
    from sharpen.pipelines import compare_methods as pipeline
    from sharpen.reports import curves
    from sharpen.tracking.display import watching

    path = find_recipe(comparison)
    settings = pipeline.load_comparison(path)
    if output is not None:
        settings = settings.model_copy(update={"output": str(output)})
    with watching() as observer:
        found = pipeline.compare_methods(settings, path=path, observer=observer)
    show(curves.table(found))
    if against := pipeline.against_baseline(settings, found, curves.headline(found[0])):
        show(curves.baseline_table(against))
    if settings.claims:
        show(curves.claims_table(pipeline.judged(settings, found)))
    show(f"Plot: {curves.plot(found, Path(settings.output) / 'curves.png')}")


def label_steps(
    completions: Annotated[
        Path, typer.Argument(help="A run's folder, a .parquet file of its completions, or a .jsonl file of completions or of marked steps.")
    ],
    model: Annotated[str, typer.Option(help='Whose tokens they are, and who completes them: "embedded", "tiny", a folder, or a hub id.')],
    output: Annotated[Path, typer.Option(help="The file of labels, a .parquet one.")],
    by: Annotated[str, typer.Option(help="monte_carlo, rule (do the equations hold?), or marks (of people, in the file).")] = "monte_carlo",
    rollouts: Annotated[int, typer.Option(min=1, help="Continuations of each step (n).")] = 8,
    estimate: Annotated[str, typer.Option(help="hard (1 if any continuation is right) or soft (the share that is).")] = "hard",
    stop_early: Annotated[
        bool, typer.Option("--stop-early", help="No more continuations of a step once one is right; hard labels only.")
    ] = False,
    max_new_tokens: MaxNewTokens = 256,
    temperature: Temperature = 1.0,
    seed: Seed = 0,
    splitter: Annotated[str, typer.Option(help="What a step is: lines, blank_lines, sentences or marked.")] = "lines",
    marker: Annotated[str | None, typer.Option(help="With marked, a regular expression that begins a step.")] = None,
    marker_ends: Annotated[bool, typer.Option("--marker-ends", help="The marker ends a step.")] = False,
    rule: Annotated[str, typer.Option(help="By rule: equations, or calculations (parentheses, chains, rounding).")] = "equations",
    after_error: Annotated[str, typer.Option(help="Steps after the first wrong one: judge or wrong; by rule and by marks.")] = "judge",
    neutral: Annotated[str, typer.Option(help="What a mark of 0 is: right, wrong or none.")] = "right",
    count_cut: Annotated[bool, typer.Option("--count-cut", help="Grade what the limit cut as well, and not as wrong.")] = False,
    template: Annotated[str | None, typer.Option(help="chat, r1_zero or plain; left out, the run's, or else chat.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first so many completions.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Continuations decoded at once.")] = 128,
    dtype: Annotated[str, typer.Option(help="Of the weights: auto, float32, bfloat16, float16.")] = "auto",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps.")] = "auto",
) -> None:
    """Label the steps of completions, for a process reward model; interrupted, the same command goes on."""
    from sharpen.pipelines import label_steps as pipeline
    from sharpen.reports.labels import labelling_table
    from sharpen.rewards.step_labels import MonteCarlo
    from sharpen.tracking.display import watching

    for name, value, known in (
        ("estimate", estimate, ("hard", "soft")),
        ("after-error", after_error, ("judge", "wrong")),
        ("neutral", neutral, ("right", "wrong", "none")),
    ):
        one_of(name, value, known)
    with interruptible("The same command goes on where it stopped."), watching() as observer:
        found = pipeline.label_steps(
            completions,
            model,
            by=by,
            output=output,
            monte_carlo=MonteCarlo(
                rollouts=rollouts,
                max_new_tokens=max_new_tokens,
                temperature=temperature,
                estimate=cast(Any, estimate),
                stop_early=stop_early,
                seed=seed,
            ),
            split=splitter,
            marker=marker,
            marker_place="end" if marker_ends else "begin",
            rule=rule,
            after_error=cast(Any, after_error),
            neutral=cast(Any, neutral),
            require_stop=not count_cut,
            template=None if template is None else template_of(template),
            limit=limit,
            max_rows=batch_size,
            dtype=dtype,
            device=device,
            observer=observer,
        )
    show(labelling_table(found))
