"""Making labels of steps: completions in, a Parquet file of labels out, part by part."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from sharpen.errors import RecipeError, RewardError, RunError, nearest
from sharpen.evaluation import in_parts
from sharpen.grading import shared
from sharpen.models.loading import find_folder, resolve_device, resolve_dtype
from sharpen.models.manifest import file_digest
from sharpen.pipelines import parts
from sharpen.pipelines.evaluate import weights_digest
from sharpen.pipelines.step_sources import Reader, Row, read_completions
from sharpen.problems.checks import check_sandbox
from sharpen.problems.templates import Template
from sharpen.records import Problem
from sharpen.rewards import labels
from sharpen.rewards.labels import Labelled
from sharpen.rewards.splitters import Place, splitter
from sharpen.rewards.step_files import Marked, Neutral, read_marks
from sharpen.rewards.step_labels import AfterError, Answered, Cost, MonteCarlo, StepLabel, by_completion, by_rule
from sharpen.rollout.rollout import Rollout
from sharpen.rollout.torch_engine import TorchEngine
from sharpen.tracking.observer import Observer, Silent

By = Literal["monte_carlo", "rule", "marks"]
WAYS: tuple[By, ...] = ("monte_carlo", "rule", "marks")
PART = 512  # completions of a part where nothing is sampled


@dataclass(frozen=True, kw_only=True)
class Labelling:
    """What was labelled.

    Attributes:
        path: the file of labels.
        completions: in it.
        steps: of them.
        labelled: steps that have a label.
        right: the mean label of those; NaN where there is none.
        cost: of Monte Carlo labels, of all parts together.
        seconds: wall clock of this call.
    """

    path: Path
    completions: int
    steps: int
    labelled: int
    right: float
    cost: Cost
    seconds: float


def label_steps(
    source: Path,
    model: str,
    *,
    by: str = "monte_carlo",
    output: Path,
    monte_carlo: MonteCarlo | None = None,
    split: str = "lines",
    marker: str | None = None,
    marker_place: Place = "begin",
    after_error: AfterError = "judge",
    neutral: Neutral = "right",
    require_stop: bool = True,
    template: Template | None = None,
    limit: int | None = None,
    max_rows: int = 128,
    dtype: str = "auto",
    device: str = "auto",
    observer: Observer | None = None,
) -> Labelling:
    """Label the steps of completions.

    What is labelled is kept in parts as it goes: where it was interrupted, the same call goes on, and a finished one is shown again.

    Args:
        source: as `read_completions` takes it; with `marks`, as `read_marks` does.
        model: whose tokenizer the completions have; with `monte_carlo`, the completer.
        by: `monte_carlo`, `rule` (do a step's equations hold?) or `marks` (of people, in the file).
        output: the file of labels, a .parquet one.
        monte_carlo: rollouts, limits, seed.
        split: the splitter's name.
        marker: of the splitter `marked`.
        marker_place: whether it begins a step or ends one.
        after_error: what steps after the first wrong one are, by rule and by marks.
        neutral: what a mark of 0 is.
        require_stop: a completion that the limit cut is wrong.
        template: how a problem becomes a prompt; None: as the run has it, or else `chat`.
        limit: only the first so many completions.
        max_rows: continuations decoded at once.
        dtype: of the weights.
        device: as `load` takes it.
        observer: who watches.

    Raises:
        SharpenError: anything given that cannot be used.
    """
    observer, began = observer or Silent(), time.monotonic()
    if by not in WAYS:
        raise RecipeError(f"by '{by}': unknown.{nearest(by, WAYS)}", fix=f"Use {', '.join(WAYS)}.")
    if output.suffix != ".parquet":
        raise RunError(f"output {output}: expected a .parquet file.", fix="Name it so.")
    settings_of_draws = replace(monte_carlo or MonteCarlo(), require_stop=require_stop)
    ends = splitter(split, marker=marker, marker_place=marker_place)
    if by == "marks":
        given: Sequence[Row | Marked] = read_marks(source, after_error=after_error, neutral=neutral)[:limit]
        known_template = None
    else:
        rows, known_template = read_completions(source)
        given = rows[:limit]
    if not given:
        raise RewardError(f"{source}: there are no completions in it.", fix="Give some.")
    template = template or known_template or Template()
    parts.ensure_model(model, observer)
    device = resolve_device(device)
    settings: dict[str, Any] = {
        "by": by,
        "source": _digest(source),
        "completions": len(given),
        "weights": weights_digest(find_folder(model)),
        "template": template.model_dump(mode="json"),
        "require_stop": require_stop,
        **({} if by == "marks" else {"splitter": split, "marker": marker, "marker_place": marker_place}),
        **({"after_error": after_error} if by != "monte_carlo" else {}),
        **({"neutral": neutral} if by == "marks" else {}),
        **(
            {**asdict(settings_of_draws), "dtype": resolve_dtype(dtype, device), "device": device, "max_rows": max_rows}
            if by == "monte_carlo"
            else {}
        ),
    }
    if (found := _earlier(output, settings)) is not None:
        observer.notice(f"{output} holds these labels already")
        return replace(found, seconds=time.monotonic() - began)
    observer.phase("loading", 0)
    loaded, rollout = parts.sampling_model(model, template, seed=0, dtype=dtype, device=device)
    reader = Reader(tokenizer=loaded.tokenizer, decode=rollout.decode, stop_ids=loaded.stop_ids, render=rollout.render)
    work = [one for number, row in enumerate(given) if (one := _answered(reader, row, number, ends)) is not None]
    if (empty := len(given) - len(work)) > 0:
        observer.notice(f"{empty} empty completions are left out")
    if by != "marks":
        check_sandbox([one.problem for one in work], "bubblewrap", observer.notice)
    if by == "monte_carlo":
        _check_length(work, settings_of_draws, loaded)
    engine = TorchEngine(loaded.model, loaded.stop_ids, max_rows=max_rows, share_prefixes=True, notice=observer.notice)
    worker = _Worker(
        by=by,
        engine=engine,
        rollout=rollout,
        draws=settings_of_draws,
        after_error=after_error,
        require_stop=require_stop,
        observer=observer,
    )
    worker.in_parts(work, [row.labels if isinstance(row, Marked) else () for row in given], output, settings, max_rows)
    result = _earlier(output, settings)
    assert result is not None
    return replace(result, seconds=time.monotonic() - began)


def _answered(reader: Reader, row: Row | Marked, number: int, ends: Any) -> Answered | None:
    return reader.marked(row, number) if isinstance(row, Marked) else reader.answered(row, ends)


@dataclass(frozen=True, kw_only=True)
class _Worker:
    """Labels parts."""

    by: str
    engine: TorchEngine
    rollout: Rollout
    draws: MonteCarlo
    after_error: AfterError
    require_stop: bool
    observer: Observer

    def in_parts(
        self, work: Sequence[Answered], marks: Sequence[Sequence[StepLabel]], output: Path, settings: Mapping[str, Any], max_rows: int
    ) -> None:
        """Label all, part by part, and put the parts together."""
        folder = output.with_name(output.name + ".parts")
        try:
            in_parts.claim(folder, settings)
        except OSError as error:
            raise RunError(f"output {output}: cannot be written: {error}.", fix="Choose a folder that you may write.") from error
        rollouts = sum(len(one.steps) - 1 for one in work) * self.draws.rollouts
        sampled = self.by == "monte_carlo"
        mean = max(1, rollouts // len(work))
        ranges = in_parts.cut(len(work), mean, max_rows) if sampled else in_parts.cut(len(work), 1, PART // in_parts.ROWS)
        self.observer.phase("labelling", rollouts if sampled else len(work), "continuations" if sampled else "completions")
        for number, (start, stop) in enumerate(ranges):
            path = folder / f"part-{number:05d}.parquet"
            some = work[start:stop]
            if _is_whole(path, len(some)):
                self.observer.advance(sum(len(one.steps) - 1 for one in some) * self.draws.rollouts if sampled else len(some))
                continue
            some = self.judged(some)
            found, cost = self.label(some, marks[start:stop])
            _write(path, some, found, cost)
        in_parts.finish(folder, output, {labels.ABOUT: json.dumps(dict(settings), sort_keys=True).encode()})
        in_parts.discard(folder)

    def judged(self, some: Sequence[Answered]) -> list[Answered]:
        """Them with the verdicts of their answers; what a file says stands, and where it has no ground truth there is none."""
        cut = [self.require_stop and one.completion.finish_reason == "length" for one in some]
        open_ = [
            one.verdict is None and bool(one.problem.answer or one.problem.kind == "code") and not c
            for one, c in zip(some, cut, strict=True)
        ]
        verdicts = iter(judge([(one.problem, one.completion.text) for one, here in zip(some, open_, strict=True) if here]))
        return [
            replace(one, verdict=next(verdicts)) if here else replace(one, verdict=0.0) if late else one
            for one, here, late in zip(some, open_, cut, strict=True)
        ]

    def label(self, some: Sequence[Answered], marks: Sequence[Sequence[StepLabel]]) -> tuple[list[list[StepLabel]], Cost]:
        """The labels of the steps of each."""
        if self.by == "monte_carlo":
            return by_completion(some, self.engine, self.rollout.decode, judge, self.draws, self.observer.advance)
        self.observer.advance(len(some))
        if self.by == "marks":
            return [list(one) for one in marks], Cost()
        texts = [[step.text for step in one.steps] for one in some]
        return [by_rule(row, one.verdict, after_error=self.after_error) for row, one in zip(texts, some, strict=True)], Cost()


def judge(items: Sequence[tuple[Problem, str]]) -> list[float | None]:
    """Verdicts of the problems' own graders."""
    worth = {"right": 1.0, "wrong": 0.0, "unscorable": None}
    return [worth[verdict.outcome] for verdict in shared().grade_all(items)]


def _write(path: Path, some: Sequence[Answered], found: Sequence[Sequence[StepLabel]], cost: Cost) -> None:
    rows = [
        Labelled(
            problem_id=one.problem.id,
            prompt_tokens=one.prompt_tokens,
            completion_tokens=one.completion.tokens,
            label=math.nan if one.verdict is None else one.verdict,
            steps=tuple((step.end, label.value) for step, label in zip(one.steps, row, strict=True) if label.value is not None),
        )
        for one, row in zip(some, found, strict=True)
    ]
    import pyarrow as pa

    numbers = pa.list_(pa.float64())
    beside = {
        "completion": [one.key for one in some],
        "step_ends": pa.array([[step.end for step in one.steps] for one in some], pa.list_(pa.int32())),
        "step_texts": pa.array([[step.text for step in one.steps] for one in some], pa.list_(pa.string())),
        "step_rollouts": pa.array([[label.rollouts for label in row] for row in found], pa.list_(pa.int32())),
        "step_hard": pa.array([[label.hard for label in row] for row in found], numbers),
        "step_soft": pa.array([[label.soft for label in row] for row in found], numbers),
        # Of the part, shared out among its rows so that their sum is its own.
        **{f"cost_{name}": [value / len(some)] * len(some) for name, value in asdict(cost).items()},
    }
    labels.write(path, rows, beside=beside)


def _is_whole(path: Path, rows: int) -> bool:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return path.is_file() and pq.read_metadata(path).num_rows == rows and pq.read_table(path).num_rows == rows
    except (pa.ArrowException, OSError):
        return False


def _earlier(output: Path, settings: Mapping[str, Any]) -> Labelling | None:
    """What the file holds; None where there is none.

    Raises:
        RunError: it holds other labels.
    """
    if not output.is_file():
        return None
    known = labels.about(output)
    if other := [name for name in sorted(known.keys() | settings.keys()) if known.get(name) != settings.get(name)]:
        told = ", ".join(f"{name} ({known.get(name)} there, {settings.get(name)} here)" for name in other)
        raise RunError(f"output {output}: it holds other labels, which are left as they are: {told}.", fix="Choose another --output.")
    import pyarrow.parquet as pq

    table = pq.read_table(output)
    values = [value for row in table["label_values"].to_pylist() for value in row]
    sums = {name: sum(table[f"cost_{name}"].to_pylist()) for name in Cost.__dataclass_fields__}
    return Labelling(
        path=output,
        completions=len(table),
        steps=sum(map(len, table["step_ends"].to_pylist())),
        labelled=len(values),
        right=sum(values) / len(values) if values else math.nan,
        cost=Cost(**{name: value if name == "seconds" else round(value) for name, value in sums.items()}),
        seconds=0.0,
    )


def _check_length(work: Sequence[Answered], draws: MonteCarlo, loaded: Any) -> None:
    """RecipeError where the context cannot hold a completion's steps and a continuation."""
    context = getattr(loaded.model.config, "max_position_embeddings", None)
    longest = max(work, key=_prefix)
    if context is not None and _prefix(longest) + draws.max_new_tokens > context:
        raise RecipeError(
            f"max-new-tokens: {draws.max_new_tokens} after the steps of a completion of problem {longest.problem.id} need "
            f"{_prefix(longest) + draws.max_new_tokens} positions, and {loaded.name} has {context}.",
            fix=f"Set it to at most {max(0, context - _prefix(longest))}, or take a model with a longer context.",
        )


def _prefix(one: Answered) -> int:
    """Tokens of the prompt and of all steps but the last."""
    return len(one.prompt_tokens) + (one.steps[-2].end + 1 if len(one.steps) > 1 else 0)


def _digest(source: Path) -> str:
    """Of what is labelled: of the file, or of every file of completions of a folder."""
    if source.is_file():
        return file_digest(source)
    digests = " ".join(file_digest(file) for file in sorted([*source.glob("*.parquet"), *source.glob("completions/*.parquet")]))
    return hashlib.sha256(digests.encode()).hexdigest()
