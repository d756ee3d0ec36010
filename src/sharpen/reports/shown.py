"""The completions that a page holds: as many as fit, spread over steps and problems, packed.

The first and the last step come first, then one completion of every step after the other, of another problem each time, so that whatever
the budget is, what is shown is spread evenly. What is left out stays in the Parquet files.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from sharpen.tracking import completions

BUDGET = 1_900_000
"""Bytes of base64 text. With all else a page stays under 3 MB."""
EDGE = 0.3
"""The share of the budget that the first and the last step may take, before all others get a say."""
KEYS = ("group_id", "problem_id")
COLUMNS = (
    "problem_id", "level", "subject", "index", "prompt", "completion", "answer", "ground_truth", "correct", "reward", "finish_reason",
    "length", "tokens", "sampling_logprobs", "advantages",
)  # fmt: skip
Cut = Callable[[Sequence[int]], Sequence[str]]


@dataclass(frozen=True, kw_only=True)
class File:
    """A file of completions.

    Attributes:
        path: the Parquet file.
        place: `training`, or which evaluation of held-out problems: `before`, `step 50`, `after`.
        step: of training.
    """

    path: Path
    place: str
    step: int


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What a page holds.

    Attributes:
        packed: JSON, gzipped, in base64.
        shown: how many completions are in it.
        of: how many there are.
        places: of how many of how many, by place.
        tokens: whether the text is cut into tokens.
        advantages: whether any completion has advantages.
    """

    packed: str
    shown: int
    of: int
    places: Mapping[str, tuple[int, int]]
    tokens: bool
    advantages: bool


class Reader:
    """Chooses and packs completions; keeps the rows that it has read, for a run that is watched.

    Args:
        cut: the text of each token; None where no tokenizer is there.
        budget: bytes of base64 text.
    """

    def __init__(self, cut: Cut | None, budget: int = BUDGET) -> None:
        self.cut, self.budget = cut, budget
        self._places: dict[Path, list[list[int]]] = {}
        self._rows: dict[tuple[Path, int], tuple[dict[str, Any], dict[str, Any], str]] = {}

    def read(self, files: Sequence[File]) -> Shown:
        """Choose from these files.

        Args:
            files: of training in the order of steps, then those of evaluations.
        """
        chosen: list[tuple[int, int]] = []
        room = Room(self.budget * 3 // 4)
        for number, row in self._order(files, room):
            if room.take(self._row(files[number], row)[2]):
                chosen.append((number, row))
        packed = self._pack(files, chosen)
        while len(packed) > self.budget and chosen:
            chosen = chosen[: math.floor(len(chosen) * min(0.95, self.budget / len(packed)))]
            packed = self._pack(files, chosen)
        totals = dict.fromkeys(file.place for file in files)
        counts = {
            place: (
                sum(files[number].place == place for number, _ in chosen),
                sum(self._count(file) for file in files if file.place == place),
            )
            for place in totals
        }
        self._rows = {(files[number].path, row): self._row(files[number], row) for number, row in chosen}
        return Shown(
            packed=packed,
            shown=len(chosen),
            of=sum(count for _, count in counts.values()),
            places=counts,
            tokens=self.cut is not None,
            advantages=any(row[0]["v"] is not None for row in self._rows.values()),
        )

    def _order(self, files: Sequence[File], room: Room) -> Iterator[tuple[int, int]]:
        """(file, row) of every completion, the most wanted first."""
        training = [i for i, file in enumerate(files) if file.place == "training"]
        edges = list(dict.fromkeys(training[:1] + training[-1:]))
        orders = {i: spread(self._groups(file), turn=file.step) for i, file in enumerate(files)}
        given = dict.fromkeys(orders, 0)
        for pair in zip_longest(*(orders[i] for i in edges)):
            if room.used > EDGE * room.size:
                break
            for i, row in zip(edges, pair, strict=True):
                if row is not None:
                    given[i] += 1
                    yield i, row
        rest = [orders[i][given[i] :] for i in orders]
        for rows in zip_longest(*rest):
            yield from ((i, row) for i, row in zip(orders, rows, strict=True) if row is not None)
            if room.full:
                return

    def _groups(self, file: File) -> list[list[int]]:
        """The rows of a file by group."""
        if file.path not in self._places:
            found: dict[tuple[str, str], list[int]] = {}
            for i, row in enumerate(completions.read_columns(file.path, KEYS)):
                found.setdefault((row["group_id"], row["problem_id"]), []).append(i)
            self._places[file.path] = list(found.values())
        return self._places[file.path]

    def _count(self, file: File) -> int:
        return sum(len(rows) for rows in self._groups(file))

    def _row(self, file: File, number: int) -> tuple[dict[str, Any], dict[str, Any], str]:
        """What a page holds of a completion, of its problem, and both as JSON."""
        key = (file.path, number)
        if key not in self._rows:
            wanted = spread(self._groups(file), turn=file.step)
            start = wanted.index(number)
            for place, row in zip(batch := wanted[start : start + 16], _read(file.path, batch), strict=True):
                problem = {"id": row["problem_id"], "q": row["prompt"], "a": row["ground_truth"], "l": row["level"], "s": row["subject"]}
                told = packed_row(row, place=file.place, step=file.step, cut=self.cut)
                self._rows[file.path, place] = told, problem, _json(told)
        return self._rows[key]

    def _pack(self, files: Sequence[File], chosen: Sequence[tuple[int, int]]) -> str:
        problems: dict[str, int] = {}
        rows = []
        for number, row in sorted(chosen):
            told, problem, _ = self._row(files[number], row)
            rows.append(told | {"p": problems.setdefault(_json(problem), len(problems))})
        text = _json({"problems": [json.loads(problem) for problem in problems], "rows": rows})
        return pack(text)


class Room:
    """How much of so many bytes is used, when rows are compressed one after the other."""

    def __init__(self, size: int) -> None:
        self.size, self.used, self.refused = size, 0, 0
        self._stream = zlib.compressobj(6)

    @property
    def full(self) -> bool:
        """Whether nothing more is worth trying."""
        return self.used >= self.size or self.refused > 50

    def take(self, text: str) -> bool:
        """Whether there is room for one more; an estimate, on the safe side by what flushing costs."""
        raw = text.encode()
        tried = self._stream if self.used + len(raw) < self.size else self._stream.copy()
        needed = len(tried.compress(raw)) + len(tried.flush(zlib.Z_SYNC_FLUSH))
        if self.used + needed > self.size:
            self.refused += 1
            return False
        self._stream, self.used = tried, self.used + needed
        return True


def spread(groups: Sequence[Sequence[int]], *, turn: int) -> list[int]:
    """The rows of all groups, one of each in turn, beginning with another group for each `turn`.

    `spread([[0, 1], [2, 3]], turn=1)` is [2, 0, 3, 1].
    """
    if not groups:
        return []
    start = turn % len(groups)
    turned = [*groups[start:], *groups[:start]]
    return [row for rows in zip_longest(*turned) for row in rows if row is not None]


def packed_row(row: Mapping[str, Any], *, place: str, step: int, cut: Cut | None) -> dict[str, Any]:
    """A completion as a page holds it.

    Keys: w place, s step, i index in its group, c right, r reward, n tokens, f finished, a answer, m parts of the reward, t text,
    k lengths of the tokens' texts (UTF-16 code units, as JavaScript counts), l −100 log π of each, v advantages (one number where all are
    equal).
    """
    parts = {name.removeprefix("reward/"): value for name, value in row.items() if name.startswith("reward/")}
    texts = cut(row["tokens"]) if cut is not None and row["tokens"] else None
    logprobs = row["sampling_logprobs"] or []
    advantages = row["advantages"]
    if advantages is not None:
        short = [_short(value) for value in advantages]
        advantages = short[0] if short and len(set(short)) == 1 else short
    return {
        "w": place, "s": step, "i": row["index"], "c": int(row["correct"]), "r": _short(row["reward"]), "n": row["length"],
        "f": int(row["finish_reason"] == "stop"), "a": row["answer"], "m": {name: _short(value) for name, value in parts.items()},
        "t": row["completion"] if texts is None else "".join(texts),
        "k": None if texts is None else [len(text.encode("utf-16-le")) // 2 for text in texts],
        "l": [round(-100 * value) if value is not None and math.isfinite(value) else None for value in logprobs],
        "v": advantages,
    }  # fmt: skip


def pack(text: str) -> str:
    """The text gzipped, in base64; the same text gives the same bytes."""
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


def unpack(packed: str) -> Any:
    """What was packed, from JSON."""
    return json.loads(gzip.decompress(base64.b64decode(packed)))


def _read(path: Path, rows: Sequence[int]) -> list[dict[str, Any]]:
    """These rows, with the parts of the reward."""
    import pyarrow.parquet as pq

    names = [*COLUMNS, *(name for name in pq.read_schema(path).names if name.startswith("reward/"))]
    return completions.read_columns(path, names, rows)


def _short(value: float | None) -> float | None:
    return float(f"{value:.4g}") if value is not None and math.isfinite(value) else None


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
