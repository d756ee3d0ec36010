"""Commands that train."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sharpen.commands.options import Seed, show


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
    from sharpen.commands.options import interruptible
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
    show(f"Plot: {curves.plot(found, Path(settings.output) / 'curves.png')}")
