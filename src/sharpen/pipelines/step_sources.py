"""Completions whose steps are to be labelled: of a run or an evaluation, of a file of texts, or of a file of steps that people marked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sharpen.errors import ProblemError, RewardError, RunError
from sharpen.problems.files import read_rows
from sharpen.problems.source import load_problems
from sharpen.problems.templates import Template
from sharpen.recipe import load_recipe
from sharpen.records import Completion, Problem
from sharpen.rewards.splitters import Decode, Ends, Step, split
from sharpen.rewards.step_files import Marked
from sharpen.rewards.step_labels import Answered
from sharpen.tracking import completions
from sharpen.training.run_folder import RunFolder

COLUMNS = ("group_id", "problem_id", "index", "prompt", "completion", "ground_truth", "kind", "finish_reason", "tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A completion as a file has it.

    Attributes:
        place: where it stands.
        key: its own among those of its problem.
        problem: the problem.
        text: of the completion.
        tokens: None where the file has text alone.
        stopped: it ended by itself.
    """

    place: str
    key: str
    problem: Problem
    text: str
    tokens: tuple[int, ...] | None
    stopped: bool


def read_completions(path: Path) -> tuple[list[Row], Template | None]:
    """The completions of a run (all steps), of a folder that `sharpen eval` wrote, or of one file; and how their prompts were written.

    Args:
        path: a folder, a .parquet file of one, or a .jsonl file with `question` (or `prompt`), `completion` and `answer` (or
            `ground_truth`) a row, and where known `id`, `finish_reason` and `kind`.

    Raises:
        SharpenError: nothing there, or a row without what is needed.
    """
    if path.is_dir():
        folder = path / "completions" if (path / "completions").is_dir() else path
        files = sorted(folder.glob("*.parquet"))
        if not files:
            raise RunError(f"{path}: there are no completions (*.parquet) in it.", fix="Give a run's folder, or a file of completions.")
    elif not path.is_file():
        raise ProblemError(f"{path}: no such file.", fix="Give a run's folder, a .parquet file of its completions, or a .jsonl file.")
    else:
        files = [path]
    if files[0].suffix != ".parquet":
        return [_from_text(place, f"{path.stem}/{number}", row) for number, (place, row) in enumerate(read_rows(path))], None
    recipe_file = next((RunFolder(parent).recipe for parent in files[0].parents[:2] if RunFolder(parent).recipe.is_file()), None)
    if recipe_file is None:
        return [row for file in files for row in _from_parquet(file, None)], None
    recipe, base = load_recipe(recipe_file), recipe_file.parent
    sources = [source for source in (recipe.problems.train, recipe.problems.held_out) if source is not None]
    problems = {problem.id: problem for source in sources for problem in load_problems(source, base=base)}
    return [row for file in files for row in _from_parquet(file, problems)], recipe.template


def _from_parquet(file: Path, problems: Mapping[str, Problem] | None) -> Iterator[Row]:
    for number, row in enumerate(completions.read_columns(file, COLUMNS)):
        place = f"{file}, row {number}"
        if missing := [name for name in COLUMNS if row[name] is None and name not in ("kind", "group_id", "index")]:
            raise RunError(f"{place}: no {', '.join(missing)}.", fix="Give completions that a run or `sharpen eval` wrote.")
        if problems is None:
            problem = Problem(id=row["problem_id"], prompt=row["prompt"], answer=row["ground_truth"], kind=row["kind"] or "math")
        elif (known := problems.get(row["problem_id"])) is not None:
            problem = known
        else:
            raise RunError(f"{place}: the run's problems have no '{row['problem_id']}'.", fix="Put the problems back that the run had.")
        key = f"{file.stem}/{row['group_id']}/{row['index']}"
        yield Row(
            place=place,
            key=key,
            problem=problem,
            text=row["completion"],
            tokens=tuple(row["tokens"]),
            stopped=row["finish_reason"] == "stop",
        )


def _from_text(place: str, name: str, row: Mapping[str, Any]) -> Row:
    question = _first(place, row, ("question", "problem", "prompt"))
    text = _first(place, row, ("completion", "prediction"))
    answer = _first(place, row, ("answer", "ground_truth", "gold"))
    reason = row.get("finish_reason", "stop")
    if reason not in ("stop", "length"):
        raise RewardError(f"{place}: finish_reason is {reason!r:.60}; expected stop or length.", fix="Mend the row.")
    problem = Problem(id=str(row.get("id") or name), prompt=question.strip(), answer=answer, kind=str(row.get("kind") or "math"))
    return Row(place=place, key=name, problem=problem, text=text, tokens=None, stopped=reason == "stop")


def _first(place: str, row: Mapping[str, Any], names: Sequence[str]) -> str:
    value = next((row[name] for name in names if row.get(name) is not None), None)
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value.strip():
        raise RewardError(f"{place}: expected {' or '.join(map(repr, names))} as text, got {value!r:.60}.", fix="Mend or remove the row.")
    return value


@dataclass(frozen=True, kw_only=True)
class Reader:
    """From rows to completions in the tokens of a model.

    Attributes:
        tokenizer: the model's.
        decode: token ids → text.
        stop_ids: of the model.
        render: a problem's prompt tokens.
    """

    tokenizer: Any
    decode: Decode
    stop_ids: tuple[int, ...]
    render: Callable[[Problem], tuple[int, ...]]

    @property
    def stop(self) -> int:
        """The token that ends a completion given as text."""
        eos: int | None = self.tokenizer.eos_token_id
        return eos if eos is not None and eos in self.stop_ids else self.stop_ids[0]

    def answered(self, row: Row, ends: Ends) -> Answered | None:
        """A row's completion, split, its verdict still open; None for an empty one.

        Raises:
            RewardError: its tokens are not those of this model's tokenizer.
        """
        tokens = row.tokens if row.tokens is not None else (*self.encode(row.text), *([self.stop] if row.stopped else []))
        if not tokens:
            return None
        body = tokens[: len(tokens) - row.stopped]
        if row.tokens is not None and (not self._knows(tokens) or self.decode(body) != row.text):
            raise RewardError(
                f"{row.place}: its tokens are not its text by the tokenizer of this model.",
                fix="Give the model that wrote the completions, or one with the same tokenizer; or give the texts in a .jsonl file.",
            )
        completion = _completion(tokens, row.text, stopped=row.stopped)
        return Answered(
            key=row.key,
            problem=row.problem,
            prompt_tokens=self.render(row.problem),
            completion=completion,
            steps=tuple(split(completion, self.decode, ends)),
            verdict=None,
        )

    def marked(self, marked: Marked, number: int) -> Answered:
        """A solution that is given in steps: each is encoded by itself with the line's end after it, so that steps end where tokens do."""
        tokens: list[int] = []
        steps: list[Step] = []
        for k, text in enumerate(marked.texts):
            last = k == len(marked.texts) - 1
            tokens += self.encode(text if last else text + "\n")
            tokens += [self.stop] if last else []
            steps.append(Step(len(tokens) - 1, text))
        problem = Problem(id=marked.id, prompt=marked.question, answer=marked.gold or "")
        return Answered(
            key=str(number),
            problem=problem,
            prompt_tokens=self.render(problem),
            completion=_completion(tuple(tokens), "\n".join(marked.texts), stopped=True),
            steps=tuple(steps),
            verdict=marked.correct,
        )

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, without any that begin or end it."""
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def _knows(self, tokens: Sequence[int]) -> bool:
        return max(tokens) < len(self.tokenizer)


def _completion(tokens: tuple[int, ...], text: str, *, stopped: bool) -> Completion:
    return Completion(tokens=tokens, sampling_logprobs=(0.0,) * len(tokens), text=text, finish_reason="stop" if stopped else "length")
