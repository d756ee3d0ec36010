r"""The event log of a run: one JSON object a line, appended and never changed.

    {"event": "step", "metrics": {"loss": 0.0, "reward": 0.25}, "step": 3}

Keys are sorted and floats written by `repr`, so two runs that do the same write the same bytes. Nothing that differs between equal runs
(a time, a host) belongs in `events.jsonl`; timings go to `timings.jsonl` beside it, through this class too. A number that is NaN or
infinite is written as null, for JSON has neither.

A line counts once its newline is written: a line that a crash cut short never happened.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from sharpen.errors import RunError


class EventLog:
    """Appends events to a file; each line is handed to the operating system at once, so a killed run loses none.

    Args:
        path: the file, `events.jsonl` or `timings.jsonl` in the run's folder; made with its folder at the first event.

    Example:
        >>> with EventLog(folder / "events.jsonl") as log:
        ...     log.append("step", step=3, metrics={"reward": 0.25})
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._file: BinaryIO | None = None

    def append(self, event: str, *, step: int | None = None, **fields: Any) -> None:
        """Write one event.

        Args:
            event: what happened, for example `step`.
            step: the training step it belongs to; an event without one belongs with the event before it.
            fields: plain values, lists and mappings of them; numbers of numpy and torch are taken as Python's.
        """
        record = {"event": event, **({} if step is None else {"step": step}), **fields}
        line = json.dumps(_plain(record), sort_keys=True, ensure_ascii=False, allow_nan=False)
        if self._file is None:
            self._file = self._open()
        self._file.write(line.encode() + b"\n")
        self._file.flush()

    def truncate_after(self, step: int) -> None:
        """Drop every event of a later step, and a line cut short: what a run resumed from the checkpoint of `step` will write again.

        The remaining lines keep their bytes. The file is replaced in one move, so a crash leaves the old one or the new one.
        """
        self.close()
        if not self.path.exists():
            return
        kept, current = [], -math.inf
        for line, event in _lines(self.path):
            current = event.get("step", current)
            if current <= step:
                kept.append(line)
        temporary = self.path.with_name(self.path.name + ".tmp")
        with temporary.open("wb") as file:
            file.writelines(kept)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path)
        _sync_folder(self.path.parent)

    def close(self) -> None:
        """Close the file; the next `append` opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> EventLog:
        """The log itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self.close()

    def _open(self) -> BinaryIO:
        """Open to append, after the last whole line."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = self.path.open("ab+")
        file.seek(0)
        content = file.read()
        if not content.endswith(b"\n"):
            file.truncate(content.rfind(b"\n") + 1)
        return file


def read(path: str | Path) -> Iterator[dict[str, Any]]:
    """The events of a log, in order. A last line without its newline was cut short and is left out.

    Raises:
        RunError: when there is no such file, or a whole line is not a JSON object.
    """
    for _, event in _lines(Path(path)):
        yield event


def _lines(path: Path) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """The bytes and the event of every whole line."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise RunError(f"There is no event log at {path}.", fix="Give the folder of a run that has started.") from None
    with file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            try:
                event = json.loads(line)
            except ValueError as error:
                raise RunError(f"{path}, line {number}: not JSON ({error}).", fix="Mend or delete that line.") from None
            if not isinstance(event, dict):
                raise RunError(f"{path}, line {number}: expected a JSON object, got {event!r:.60}.", fix="Mend or delete that line.")
            yield line, event


def _plain(value: Any) -> Any:
    """The value in JSON's types; NaN and infinities become None."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if not isinstance(value, (str, bool, int, float, type(None))) and hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value


def _sync_folder(folder: Path) -> None:
    """Make a rename in the folder last through a power cut, where the system can."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
