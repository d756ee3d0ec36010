"""Measuring a model on problems, and looking at what it writes."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from sharpen.errors import ProblemError, RecipeError, RunError
from sharpen.evaluation import in_parts, record
from sharpen.evaluation.evaluate import Evaluation, evaluate
from sharpen.evaluation.record import Record
from sharpen.evaluation.summary import Summary
from sharpen.folders import alone, saving
from sharpen.models.loading import find_folder, resolve_device, resolve_dtype
from sharpen.models.manifest import file_digest
from sharpen.pipelines import parts
from sharpen.problems.checks import check_golds, check_sandbox
from sharpen.problems.source import Source, fingerprint, load_problems
from sharpen.problems.templates import Template
from sharpen.records import Problem
from sharpen.rollout.engine import Sampling
from sharpen.tracking.events import EventLog
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
    dtype: str = "auto",
    device: str = "auto",
    observer: Observer | None = None,
) -> Evaluated:
    """Pass@K and Maj@K of a model on problems, with 95 % intervals.

    What is sampled is kept in parts as it goes: where an evaluation was interrupted, the same call goes on, and a finished one is shown
    again.

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
        output: a folder for `evaluation.json`, `completions.parquet` and `timings.jsonl`; None: `evaluations/NAME-DIGEST`, the digest being
            that of everything the results depend on. What it holds of another evaluation is left as it is.
        base: the folder that a relative file is looked for in, after the working directory.
        max_rows: completions decoded at once.
        dtype: of the weights, as `load` takes it.
        device: as `load` takes it.
        observer: who watches.

    Raises:
        SharpenError: anything given that cannot be used.
    """
    observer, template = observer or Silent(), template or Template()
    if samples < 1 or any(not 1 <= k <= samples for k in ks):
        raise RecipeError(f"K: expected numbers from 1 to samples = {samples}, got {list(ks)}.", fix="Pass@K needs at least K samples.")
    if temperature < 0 or max_new_tokens < 1 or not 0 < top_p <= 1:
        raise RecipeError(
            f"sampling: expected temperature ≥ 0, top_p in (0, 1] and max_new_tokens ≥ 1, got {temperature}, {top_p} and {max_new_tokens}."
        )
    if output is not None:
        _writable(output)
    problems = load_problems(source, base=base)[:limit]
    check_sandbox(problems, "bubblewrap", observer.notice)
    check_golds(problems)
    parts.ensure_model(model, observer)
    device = resolve_device(device)
    settings: dict[str, Any] = {
        "model": model,
        "weights": weights_digest(find_folder(model)),
        "problems": source.model_dump(mode="json"),
        "problem_count": len(problems),
        "fingerprint": fingerprint(problems),
        "samples": samples,
        "max_new_tokens": max_new_tokens,
        "temperature": temperature,
        "top_p": top_p,
        "template": template.model_dump(mode="json"),
        "require_stop": require_stop,
        "seed": seed,
        "stream": "evaluation",
        "dtype": resolve_dtype(dtype, device),
        "device": device,
        "max_rows": max_rows,
    }
    output = output or Path("evaluations") / f"{_short(model)}-{_digest(settings)}"
    _writable(output)
    with alone(output, "evaluates into it", fix="Wait for it, or choose another folder with --output."):
        return _evaluate_into(output, settings, problems, ks, template, observer)


def _evaluate_into(
    output: Path, settings: dict[str, Any], problems: Sequence[Problem], ks: Sequence[int], template: Template, observer: Observer
) -> Evaluated:
    """Go on with the evaluation that the folder holds, or begin one; this process alone writes there."""
    model, seed, samples, max_rows = settings["model"], settings["seed"], settings["samples"], settings["max_rows"]
    max_new_tokens = settings["max_new_tokens"]
    threads = _earlier(output, settings)
    settings["threads"] = parts.set_threads(threads)
    if (output / RECORD).is_file():
        observer.notice(f"{output} holds this evaluation already; it is shown again")
        in_parts.discard(output / PARTS)
        kept = record.read(output / RECORD)
        if list(kept.summary.pass_at_k) != sorted(set(ks)):
            kept = record.record(kept.settings, problems, kept.results, ks, seed=seed)
            with saving("the figures", output / RECORD, kept="The evaluation stays as it was.", fix=in_parts.GO_ON):
                record.write(output / RECORD, kept)
        return Evaluated(record=kept, folder=output)
    began = time.monotonic()
    observer.phase("loading", 0)
    loaded, rollout = parts.sampling_model(
        model, template, seed=seed, max_rows=max_rows, dtype=settings["dtype"], device=settings["device"], notice=observer.notice
    )
    parts.longest_sequence(problems, rollout, max_new_tokens, loaded, key="max-new-tokens")
    observer.phase("evaluating", len(problems) * samples)
    results = in_parts.evaluate_in_parts(
        rollout,
        problems,
        samples,
        Sampling(max_new_tokens=max_new_tokens, temperature=settings["temperature"], top_p=settings["top_p"]),
        folder=output / PARTS,
        settings=settings,
        max_rows=max_rows,
        require_stop=settings["require_stop"],
        on_progress=observer.advance,
        notice=observer.notice,
    )
    kept = record.record(settings, problems, results, ks, seed=seed)
    in_parts.finish(output / PARTS, output / RECORD, output / "completions.parquet", kept)
    seconds, timings = time.monotonic() - began, output / "timings.jsonl"
    with saving("the time that it took", timings, kept="The evaluation is whole.", fix=in_parts.GO_ON), EventLog(timings) as log:
        log.append("evaluation", seconds=seconds, completions=len(problems) * samples)
    return Evaluated(record=kept, folder=output)


RECORD, PARTS = "evaluation.json", "parts"


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """An evaluation and where it is kept.

    Attributes:
        record: settings, figures and results.
        folder: with `evaluation.json` and `completions.parquet`.
    """

    record: Record
    folder: Path

    @property
    def summary(self) -> Summary:
        """The figures over all problems."""
        return self.record.summary


def weights_digest(folder: Path) -> str:
    """SHA-256 over a model's weights, settings and tokenizer, whatever the folder is called."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.suffix in MODEL_FILES and path.name != "manifest.json":
            digest.update(f"{path.name} {file_digest(path)}\n".encode())
    return digest.hexdigest()


MODEL_FILES = (".safetensors", ".json", ".txt", ".jinja", ".model")


def _earlier(output: Path, settings: Mapping[str, Any]) -> int | None:
    """The threads of the evaluation that the folder holds, begun or finished, for the last bits depend on them; None where it holds none.

    Raises:
        RunError: it holds another evaluation.
    """
    finished = output / RECORD
    begun = output / PARTS / "settings.json"
    if finished.is_file():
        known = dict(record.read(finished).settings)
    elif begun.is_file():
        known = json.loads(begun.read_text(encoding="utf-8"))
    else:
        return None
    threads: int = known.pop("threads")
    other = [name for name in sorted((known.keys() | settings.keys()) - {"model"}) if known.get(name) != settings.get(name)]
    if other:
        told = ", ".join(f"{name} ({known.get(name)} there, {settings.get(name)} here)" for name in other)
        raise RunError(
            f"output {output}: it holds an evaluation with other settings, which is left as it is: {told}.",
            fix="Choose another folder with --output, or delete that one.",
        )
    return threads


def _short(model: str) -> str:
    """A name for a folder: `runs/quickstart/model` as `quickstart`."""
    names = [part for part in Path(model).parts if part not in ("model", "..", ".", "/", "~")]
    return (names or ["model"])[-1].replace(":", "-")


def _digest(settings: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]


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


def _writable(output: Path) -> None:
    """Make the output folder; RunError where it cannot be written."""
    try:
        output.mkdir(parents=True, exist_ok=True)
        probe = output / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise RunError(f"output {output}: cannot be written: {error}.", fix="Choose a folder that you may write, by --output.") from error
