"""Problems from a file: JSON lines, JSON, CSV or Parquet."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from sharpen.errors import ProblemError, nearest
from sharpen.problems import strict_json
from sharpen.problems.rows import Fields, Row, to_problems
from sharpen.records import Problem

if TYPE_CHECKING:
    import pyarrow as pa

_NO_UTF8 = re.compile("[\udc80-\udcff]")  # what open() gives for a byte that is none


class FileSource(Fields):
    """Problems from a file, one a row."""

    source: Literal["file"] = "file"
    path: str = Field(
        min_length=1,
        description="a .jsonl, .json, .csv or .parquet file; a relative path is looked for in the working directory, in the recipe's "
        "folder, and in the folder that the environment variable SHARPEN_DATA names",
    )


def load_file(source: FileSource, base: Path | None = None) -> list[Problem]:
    """The problems of a file.

    Args:
        source: the file, and which field is what.
        base: the recipe's folder.

    Raises:
        ProblemError: no such file, a format that is not known, or a row that makes no problem, with the file and line.
    """
    name = "/".join(Path(source.path).with_suffix("").parts[-2:]).strip("/.")
    return to_problems(read_rows(find_file(source.path, base)), source, name=name)


def read_rows(path: Path) -> Iterator[Row]:
    """Where each row of a file stands, and its fields, in order.

    Raises:
        ProblemError: a format that is not known, a file that cannot be read, or a malformed row, with the file and line.
    """
    read = _READERS.get(path.suffix.lower())
    if read is None:
        raise ProblemError(
            f"{path}: unknown format '{path.suffix}'.{nearest(path.suffix.lower(), _READERS)}",
            fix=f"Give a file that ends in {', '.join(_READERS)}.",
        )
    try:
        yield from read(path)
    except OSError as error:
        raise ProblemError(f"{path}: cannot be read: {error}.", fix="Give a file that can be read.") from error


def find_file(path: str, base: Path | None = None) -> Path:
    """Where a file is: as given, below the recipe's folder, or below the folder that SHARPEN_DATA names.

    Raises:
        ProblemError: it is nowhere; the message lists where it was looked for.
    """
    given = Path(path).expanduser()
    data = os.environ.get("SHARPEN_DATA")
    folders = [Path.cwd(), *([base] if base else []), *([Path(data).expanduser()] if data else [])]
    places = list(dict.fromkeys((folder / given).resolve() for folder in folders))
    for place in places:
        if place.is_file():
            return place
    near = nearest(given.name, [file.name for place in places if place.parent.is_dir() for file in place.parent.iterdir()])
    unset = "" if data or given.is_absolute() else " The environment variable SHARPEN_DATA is not set."
    raise ProblemError(
        f"problem file '{path}': no such file; looked for {', '.join(map(str, places))}.{near}{unset}",
        fix="Give the path from the working directory, the recipe's folder or the folder that SHARPEN_DATA names.",
    )


def _lines(path: Path, newline: str | None = None) -> Generator[str, None, None]:
    """The lines of a file in UTF-8; `newline` as for `open`."""
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline=newline) as lines:
        for number, line in enumerate(lines, start=1):
            if not line.isascii() and (wrong := _NO_UTF8.search(line)) is not None:
                raise ProblemError(
                    f"{path}:{number}: not valid UTF-8: byte 0x{ord(wrong[0]) - 0xDC00:02x} at column {wrong.start() + 1}.",
                    fix="Write the file in UTF-8.",
                )
            yield line


def _read_jsonl(path: Path) -> Iterator[Row]:
    with contextlib.closing(_lines(path)) as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                place = f"{path}:{number}"
                try:
                    row = strict_json.loads(line)
                except json.JSONDecodeError as error:
                    raise ProblemError(
                        f"{place}: not valid JSON: {error.msg} at column {error.colno}.", fix="Give one JSON object a line."
                    ) from error
                yield place, _object(place, row)


def _read_json(path: Path) -> Iterator[Row]:
    try:
        rows = strict_json.loads("".join(_lines(path)))
    except json.JSONDecodeError as error:
        raise ProblemError(
            f"{path}:{error.lineno}: not valid JSON: {error.msg} at column {error.colno}.",
            fix="Give a list of objects; a file with one object a line is named .jsonl.",
        ) from error
    if not isinstance(rows, list):
        raise ProblemError(f"{path}: expected a list of objects, got {type(rows).__name__}.", fix="Give a list of objects.")
    for number, row in enumerate(rows):
        place = f"{path}, row {number}"
        yield place, _object(place, row)


def _object(place: str, row: Any) -> Mapping[str, Any]:
    if not isinstance(row, dict):
        raise ProblemError(f"{place}: expected a JSON object, got {type(row).__name__}.", fix="Give one object a row.")
    if (fault := strict_json.fault(row)) is not None:
        raise ProblemError(f"{place}: {fault}.", fix="Mend or remove the row.")
    return row


def _read_csv(path: Path) -> Iterator[Row]:
    with contextlib.closing(_lines(path, newline="")) as lines:
        reader = csv.DictReader(lines, strict=True)
        first = 1  # the line on which the record that comes next begins
        try:
            columns = len(reader.fieldnames or ())
            _refuse_twice(f"{path}:1", [name for name in reader.fieldnames or () if name])
            first = reader.line_num + 1
            for row in reader:
                place = f"{path}:{first}"
                if None in row or None in row.values():
                    raise ProblemError(
                        f"{place}: expected {columns} columns, as in the header, got {_width(row)}.",
                        fix="Put a text that holds a comma or a line break in double quotes.",
                    )
                yield place, row
                first = reader.line_num + 1
        except csv.Error as error:
            raise ProblemError(f"{path}:{first}: not valid CSV: {error}.", fix="Mend the record that begins on this line.") from error


def _refuse_twice(place: str, columns: Sequence[str]) -> None:
    """Refuse two columns of one name, of which a row would have the last."""
    if (twice := next((name for name in columns if columns.count(name) > 1), None)) is not None:
        raise ProblemError(f"{place}: there are {columns.count(twice)} columns '{twice}'.", fix="Give every column its own name.")


def _width(row: Mapping[Any, Any]) -> int:
    return sum(len(value) if name is None else value is not None for name, value in row.items())


def _read_parquet(path: Path) -> Iterator[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            number = 0
            _refuse_twice(str(path), file.schema_arrow.names)
            for batch in file.iter_batches(batch_size=1024):
                for row in _rows(path, number, batch):
                    yield f"{path}, row {number}", row
                    number += 1
    except pa.ArrowException as error:
        raise ProblemError(
            f"{path}: not a readable Parquet file: {error}.", fix="Write the file again, or name it by its format."
        ) from error


def _rows(path: Path, first: int, batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows of a batch, which Parquet does not keep from having texts that are no UTF-8."""
    with contextlib.suppress(UnicodeDecodeError):
        return batch.to_pylist()
    for number in range(batch.num_rows):
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            try:
                column[number].as_py()
            except UnicodeDecodeError as error:
                raise ProblemError(
                    f"{path}, row {first + number}: column '{name}': not valid UTF-8: {error}.", fix="Write the file with texts in UTF-8."
                ) from error
    raise AssertionError("a batch of which every value can be read can be read")


_READERS: Mapping[str, Callable[[Path], Iterator[Row]]] = {
    ".jsonl": _read_jsonl,
    ".json": _read_json,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
}
