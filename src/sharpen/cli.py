"""The command line: parse, call one function, print. Heavy imports are inside the commands, so that help is instant."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from sharpen.errors import SharpenError

app = typer.Typer(
    name="sharpen",
    help="Post-train reasoning language models with verifiable rewards, and see what the training really changed.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Template = Annotated[str, typer.Option(help="How a problem becomes a prompt: chat, r1_zero or plain.")]
Seed = Annotated[int, typer.Option(help="Of everything random.")]
MaxNewTokens = Annotated[int, typer.Option(min=1, help="Limit of a completion, in tokens.")]
Temperature = Annotated[float, typer.Option(min=0.0, help="Of sampling; 0 is greedy.")]
TopP = Annotated[float, typer.Option(min=0.0, max=1.0, help="Nucleus share.")]
Model = Annotated[str, typer.Argument(help='"embedded", "tiny", a local folder, or a hub id.')]


@app.command()
def train(
    recipe: Annotated[Path, typer.Argument(help="A TOML file, or the name of a recipe that comes with sharpen.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="section.field=value ...", metavar="[SECTION.FIELD=VALUE]...")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the recipe's output folder.")] = False,
) -> None:
    """Run a recipe: evaluate, train, evaluate again, and show what changed."""
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
        _print(part)


@app.command("eval")
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

    with _interruptible("The same command goes on where it stopped."), watching() as observer:
        found = evaluate_model(
            model,
            source_from_text(problems),
            samples=samples,
            ks=_ks(k, samples),
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            top_p=top_p,
            template=_template(template),
            seed=seed,
            limit=limit,
            require_stop=not count_cut,
            output=output,
            max_rows=batch_size,
            dtype=dtype,
            device=device,
            observer=observer,
        )
    _print(summary_table(found.summary, title=f"{model} on {problems}"))
    for name, parts in found.record.breakdown.items():
        for value, part in parts.items():
            _print(summary_table(part, title=f"{name} {value}"))
    _print(f"Completions and figures: {found.folder}")


@app.command()
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

    found = compare_evaluations(before, after, ks=None if k is None else _ks(k, 0), margin=margin, seed=seed)
    _print(f"before: {found.before}\nafter:  {found.after}\n")
    for part in change_report(found.changes):
        _print(part)
    if output is not None:
        with _writing(output):
            written = write(found.changes, output)
        _print(f"\nFigures, curves and plot: {', '.join(str(path) for path in written)}")


@app.command()
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
        template=_template(template),
        seed=seed,
    )
    for panel in completion_panels(found, graded=answer is not None):
        _print(panel)


@app.command()
def inspect(
    run: Annotated[Path, typer.Argument(help="A run's folder.")],
    step: Annotated[int | None, typer.Option(help="Of training; left out, the last one.")] = None,
    problem: Annotated[str | None, typer.Option(help="Only this problem's id.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many completions.")] = 16,
) -> None:
    """See the completions of a training step, with their rewards."""
    from sharpen.reports.terminal import step_panels

    for part in step_panels(run, step=step, problem=problem, limit=limit):
        _print(part)


@app.command()
def behaviours(
    run: Annotated[Path, typer.Argument(help="A run's folder, or one that `sharpen eval` wrote.")],
    base: Annotated[Path | None, typer.Option(help="An evaluation of the model before training; left out, the run's own.")] = None,
    language: Annotated[str | None, typer.Option(help="Of the chains of thought, as en or zh; left out, the one the recipe names.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many completions a step have their text read, evenly spread.")] = 512,
    output: Annotated[Path | None, typer.Option(help="A folder for every figure (CSV) and a plot (PNG).")] = None,
) -> None:
    """See how completions changed: length, reflective words, languages, form, repetition, entropy, accuracy by level."""
    from sharpen.pipelines import behaviours as pipeline
    from sharpen.reports.behaviours import behaviour_tables, write
    from sharpen.tracking.display import watching

    with watching() as observer:
        found = pipeline.behaviours(run, base=base, language=language, limit=limit, observer=observer)
    for part in behaviour_tables(found, title=f"Completions of {run}"):
        _print(part)
    if output is not None:
        with _writing(output):
            _print(f"\nFigures and plot: {', '.join(str(path) for path in write(found, output))}")


@app.command()
def diagnose(run: Annotated[Path, typer.Argument(help="A run's folder; it may still be training.")]) -> None:
    """Say what is wrong or wasteful in a run, with the evidence; docs/diagnosis.md has the rules."""
    from sharpen.pipelines import diagnose as pipeline
    from sharpen.reports.diagnosis import diagnosis_lines
    from sharpen.tracking.display import watching

    with watching() as observer:
        found = pipeline.diagnose(run, observer=observer)
    for part in diagnosis_lines(found, run):
        _print(part)


@app.command("audit-reward")
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
        _print(part)
    if json is not None:
        pipeline.write_json(found, json)
        _print(f"Counts and findings: {json}")
    if found.accepted:
        raise typer.Exit(1)


@app.command()
def grade(
    file: Annotated[Path, typer.Argument(help="A .jsonl, .json, .csv or .parquet file, a ground truth and a prediction a row.")],
    kind: Annotated[str | None, typer.Option(help="The grader: math, choice, ...; left out, the column `kind`, or else math.")] = None,
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
        _print(part)
    if output is not None:
        _print(f"Verdicts: {output}")


@app.command("make-tiny")
def make_tiny(
    seed: Seed = 0,
    force: Annotated[bool, typer.Option("--force", help="Make it anew, even if it is there.")] = False,
) -> None:
    """Make the model "tiny": trained from scratch on multi-step arithmetic, in minutes; "tiny:SEED" for a seed other than 0."""
    from sharpen.pipelines.make_tiny import make_tiny as make
    from sharpen.tracking.display import watching

    with watching() as observer:
        made = make(seed=seed, force=force, observer=observer)
    _print(f"{'Made' if made.new else 'Already made'}: {made.folder}")
    _print(made.told)


@app.command("post-train")
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
    _print(pipeline.summary_table(result))


@app.command("compare-methods")
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
    _print(curves.table(found))
    _print(f"Plot: {curves.plot(found, Path(settings.output) / 'curves.png')}")


@app.command()
def methods(name: Annotated[str | None, typer.Argument(help="Show this one's equation and settings.")] = None) -> None:
    """List the methods: data source × reward × gradient coefficient."""
    from sharpen.reports.methods import method_page, methods_tables

    if name is not None:
        _print(method_page(name))
        return
    from rich.console import Console

    for table in methods_tables(Console().width):
        _print(table)


@app.command()
def recipes(keys: Annotated[bool, typer.Option("--keys", help="Show every key of a recipe, with its default.")] = False) -> None:
    """List the recipes that come with sharpen, or the keys that a recipe may have."""
    if keys:
        from sharpen.reports.keys import keys_tables

        for table in keys_tables():
            _print(table)
        return
    from sharpen.bundled import recipes_table

    _print(recipes_table())


@app.command()
def doctor() -> None:
    """Show what is installed, which devices there are, and what is in the cache."""
    from sharpen.reports.doctor import doctor_tables

    for table in doctor_tables():
        _print(table)


def _version(show: bool) -> None:
    if show:
        from sharpen import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    """Options before any command."""


def main() -> None:
    """The entry point: a `SharpenError` is told without a traceback, with exit code 2."""
    # Read when torch is first imported. Threads that spin for long while they wait for one another lose tenfold as soon as another
    # process wants one of the cores; those that never spin lose a quarter on their own.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    with _told():
        app()


@contextmanager
def _interruptible(what: str) -> Iterator[None]:
    """Ctrl-C ends the command with a word on what was kept, and exit code 130."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(f"Stopped. {what}", err=True)
        raise typer.Exit(130) from None


@contextmanager
def _writing(output: Path) -> Iterator[None]:
    """A folder that cannot be written is the user's to mend."""
    from sharpen.errors import RunError

    try:
        yield
    except OSError as error:
        raise RunError(f"output {output}: cannot be written: {error}.", fix="Choose a folder that you may write, by --output.") from error


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except SharpenError as error:
        from rich.console import Console
        from rich.text import Text

        Console(stderr=True, soft_wrap=True).print(Text("Error: ", style="bold red") + Text(str(error), style="default"), highlight=False)
        sys.exit(2)


def _template(name: str) -> Any:
    from pydantic import ValidationError

    from sharpen.errors import RecipeError
    from sharpen.problems.templates import Template

    try:
        return Template.model_validate({"name": name})
    except ValidationError as error:
        raise RecipeError(f"template '{name}': expected chat, r1_zero or plain.", fix="Give one of these with --template.") from error


def _ks(text: str | None, samples: int) -> list[int]:
    from sharpen.errors import RecipeError

    if text is None:
        return [k for k in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024) if k <= samples]
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise RecipeError(f"--k '{text}': expected numbers with commas between, as 1,4,16.") from None


def _print(what: Any) -> None:
    from rich.console import Console

    Console().print(what)


if __name__ == "__main__":
    main()
