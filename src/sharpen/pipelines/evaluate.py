"""Measuring a model on problems, and looking at what it writes."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from sharpen.errors import ProblemError, RecipeError, RunError
from sharpen.evaluation.evaluate import Evaluation, evaluate
from sharpen.evaluation.summary import Summary, summarise
from sharpen.pipelines import parts
from sharpen.problems.checks import check_golds, check_sandbox
from sharpen.problems.source import Source, load_problems
from sharpen.problems.templates import Template
from sharpen.records import Problem
from sharpen.rollout.engine import Sampling
from sharpen.tracking import completions
from sharpen.tracking.observer import Observer, Silent


def source_from_text(text: str) -> Source:
    """Problems named in one word on the command line.

    Args:
        text: a file (`problems.jsonl`), `hub:NAME[:SPLIT]`, `reasoning_gym:GENERATOR[:COUNT]`, `arithmetic:LEVEL[:COUNT]` or
            `multi_step:LEVEL[:COUNT]`; of the last two, the held-out ones are taken. LEVEL may be several, as `1,2`.
    """
    kind, _, rest = text.partition(":")
    name, _, more = rest.partition(":")
    table: dict[str, object]
    if kind == "hub":
        table = {"source": "hub", "name": name, "split": more or "test"}
    elif kind == "reasoning_gym":
        table = {"source": "reasoning_gym", "generator": name, "count": more or "50"}
    elif kind in ("arithmetic", "multi_step"):
        table = {"source": kind, "levels": name.split(","), "split": "held_out", **({"count": more} if more else {})}
    else:
        table = {"source": "file", "path": text, "answer_extraction": "auto"}
    try:
        return TypeAdapter(Source).validate_python(table)
    except ValidationError as error:
        detail = error.errors()[0]
        raise ProblemError(
            f"problems '{text}': {'.'.join(str(part) for part in detail['loc'])}: {detail['msg']}, got {detail['input']!r}.",
            fix="Give a file, hub:NAME[:SPLIT], reasoning_gym:GENERATOR[:COUNT], arithmetic:LEVEL[:COUNT] or multi_step:LEVEL[:COUNT].",
        ) from error


def evaluate_model(
    model: str,
    source: Source,
    *,
    samples: int,
    ks: Sequence[int],
    max_new_tokens: int = 256,
    temperature: float = 1.0,
    top_p: float = 1.0,
    template: Template | None = None,
    seed: int = 0,
    limit: int | None = None,
    require_stop: bool = True,
    output: Path | None = None,
    base: Path | None = None,
    max_rows: int = 128,
    observer: Observer | None = None,
) -> tuple[Summary, Evaluation]:
    """Pass@K and Maj@K of a model on problems, with 95 % intervals.

    Args:
        model: `embedded`, `tiny`, a folder, or a hub id.
        source: the problems.
        samples: completions of each.
        ks: the K, each at most `samples`.
        max_new_tokens: limit of a completion.
        temperature: of sampling; 0 is greedy.
        top_p: nucleus share.
        template: how a problem becomes a prompt.
        seed: of the sampling.
        limit: only the first so many problems.
        require_stop: whether a completion that the limit cut counts as without an answer.
        output: a folder for the completions (Parquet) and the summary (JSON); it must not hold an evaluation yet.
        base: the folder that a relative file is looked for in, after the working directory.
        max_rows: completions decoded at once.
        observer: who watches.

    Raises:
        SharpenError: anything given that cannot be used.
    """
    observer = observer or Silent()
    if samples < 1 or any(not 1 <= k <= samples for k in ks):
        raise RecipeError(f"K: expected numbers from 1 to samples = {samples}, got {list(ks)}.", fix="Pass@K needs at least K samples.")
    if temperature < 0 or max_new_tokens < 1 or not 0 < top_p <= 1:
        raise RecipeError(
            f"sampling: expected temperature ≥ 0, top_p in (0, 1] and max_new_tokens ≥ 1, got {temperature}, {top_p} and {max_new_tokens}."
        )
    if output is not None:
        _claim(output)
    problems = load_problems(source, base=base)[:limit]
    check_sandbox(problems, "bubblewrap", observer.notice)
    check_golds(problems)
    parts.ensure_model(model, observer)
    observer.phase("loading", 0)
    loaded, rollout = parts.sampling_model(model, template or Template(), seed=seed, max_rows=max_rows)
    parts.longest_sequence(problems, rollout, max_new_tokens, loaded, key="max-new-tokens")
    observer.phase("evaluating", len(problems) * samples)
    sampling = Sampling(max_new_tokens=max_new_tokens, temperature=temperature, top_p=top_p)
    found = evaluate(rollout, problems, samples, sampling, require_stop=require_stop, on_progress=observer.advance)
    summary = summarise(found.results, ks, seed=seed, expected_samples=samples)
    if output is not None:
        completions.write(output / "completions.parquet", found.groups, found.scores)
        text = json.dumps({"summary": summary.to_dict(), "results": [asdict(r) for r in found.results]}, indent=2, sort_keys=True)
        temporary = output / "evaluation.writing"
        temporary.write_text(text + "\n", encoding="utf-8")
        os.replace(temporary, output / "evaluation.json")
    return summary, found


def sample_model(
    model: str,
    problem: Problem,
    *,
    count: int = 4,
    max_new_tokens: int = 256,
    temperature: float = 1.0,
    top_p: float = 1.0,
    template: Template | None = None,
    seed: int = 0,
) -> Evaluation:
    """Completions of one problem, graded where it has an answer (an empty answer is graded unscorable)."""
    parts.ensure_model(model, Silent())
    loaded, rollout = parts.sampling_model(model, template or Template(), seed=seed)
    parts.longest_sequence([problem], rollout, max_new_tokens, loaded, key="max-new-tokens")
    sampling = Sampling(max_new_tokens=max_new_tokens, temperature=temperature, top_p=top_p)
    return evaluate(rollout, [problem], count, sampling, stream="sample", require_stop=False)


def _claim(output: Path) -> None:
    """Make the output folder; RunError where it holds an evaluation already or cannot be written."""
    if (output / "evaluation.json").exists():
        raise RunError(f"output {output}: it holds an evaluation, which is left as it is.", fix="Choose another folder with --output.")
    try:
        output.mkdir(parents=True, exist_ok=True)
        probe = output / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise RunError(f"output {output}: cannot be written: {error}.", fix="Choose a folder that you may write, by --output.") from error
