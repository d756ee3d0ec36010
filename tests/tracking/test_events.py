from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from sharpen.errors import RunError
from sharpen.tracking.events import EventLog, read


def write_run(path, steps=range(1, 5)):
    with EventLog(path) as log:
        log.append("start", name="run")
        for step in steps:
            log.append("step", step=step, metrics={"reward": step / 10, "loss": 0.1 + 0.2})
            log.append("note", text="of the step before")
    return path.read_bytes()


def test_a_line_has_sorted_keys_and_floats_by_repr(tmp_path):
    path = tmp_path / "run" / "events.jsonl"
    with EventLog(path) as log:
        log.append("step", step=3, metrics={"reward": 0.25, "loss": 0.1 + 0.2, "kl": 1e-07, "count": 8})
    assert path.read_text() == (
        '{"event": "step", "metrics": {"count": 8, "kl": 1e-07, "loss": 0.30000000000000004, "reward": 0.25}, "step": 3}\n'
    )


def test_equal_runs_write_equal_bytes_whatever_order_their_metrics_come_in(tmp_path):
    with EventLog(tmp_path / "a") as one, EventLog(tmp_path / "b") as two:
        one.append("step", step=1, metrics={"x": 1 / 3, "y": 2.0})
        two.append("step", step=1, metrics={"y": np.float64(2.0), "x": np.float64(1 / 3)})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_what_json_cannot_hold_is_null_and_numbers_of_arrays_are_plain(tmp_path):
    with EventLog(tmp_path / "log") as log:
        log.append("x", values=[math.nan, math.inf, -math.inf, 0.0], one=np.float32(0.5), two=torch.tensor(0.25), three=np.int64(3))
        log.append("y", flag=np.bool_(True), rows=np.array([[1.0, math.nan]]), where=Path("runs/a"), text="π = ½", nothing=None, by={8: 1})
    first, second = (json.loads(line) for line in (tmp_path / "log").read_text(encoding="utf-8").splitlines())
    assert first == {"event": "x", "values": [None, None, None, 0.0], "one": 0.5, "two": 0.25, "three": 3}
    assert second == {
        "event": "y", "flag": True, "rows": [[1.0, None]], "where": "runs/a", "text": "π = ½", "nothing": None, "by": {"8": 1},
    }  # fmt: skip


def test_a_line_is_there_as_soon_as_it_is_written(tmp_path):
    log = EventLog(tmp_path / "log")
    log.append("step", step=1)
    assert list(read(tmp_path / "log")) == [{"event": "step", "step": 1}]
    log.append("step", step=2)
    assert [event["step"] for event in read(tmp_path / "log")] == [1, 2]
    log.close()


@pytest.mark.parametrize("keep", [0, 1, 2, 4])
def test_a_resumed_run_writes_the_bytes_of_one_that_was_not_killed(tmp_path, keep):
    whole = write_run(tmp_path / "whole")
    write_run(tmp_path / "killed", range(1, 5))
    with (tmp_path / "killed").open("ab") as file:
        file.write(b'{"event": "step", "met')  # killed while writing
    log = EventLog(tmp_path / "killed")
    log.truncate_after(keep)
    # the event before the first step, and two for each step kept
    assert len(list(read(tmp_path / "killed"))) == 1 + 2 * keep
    for step in range(keep + 1, 5):
        log.append("step", step=step, metrics={"reward": step / 10, "loss": 0.1 + 0.2})
        log.append("note", text="of the step before")
    log.close()
    assert (tmp_path / "killed").read_bytes() == whole
    assert sorted(path.name for path in tmp_path.iterdir()) == ["killed", "whole"]


def test_truncation_in_the_midst_of_writing(tmp_path):
    log = EventLog(tmp_path / "log")
    for step in (1, 2, 3):
        log.append("step", step=step)
    log.truncate_after(2)
    log.append("step", step=3, again=True)
    log.close()
    assert [event.get("again") for event in read(tmp_path / "log")] == [None, None, True]
    EventLog(tmp_path / "none").truncate_after(3)
    assert not (tmp_path / "none").exists()


def test_a_crash_while_truncating_leaves_the_old_file(tmp_path, monkeypatch):
    whole = write_run(tmp_path / "log")

    def crash(self, target):
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", crash)
    with pytest.raises(KeyboardInterrupt):
        EventLog(tmp_path / "log").truncate_after(1)
    assert (tmp_path / "log").read_bytes() == whole


@pytest.mark.parametrize("tail", [b'{"event": "st', b"\x00\x00\x00", b'{"event": "step", "step": 2}'])
def test_a_last_line_without_its_newline_never_happened(tmp_path, tail):
    path = tmp_path / "log"
    path.write_bytes(b'{"event": "step", "step": 1}\n' + tail)
    assert list(read(path)) == [{"event": "step", "step": 1}]
    with EventLog(path) as log:
        log.append("step", step=2)
    assert path.read_bytes() == b'{"event": "step", "step": 1}\n{"event": "step", "step": 2}\n'


@pytest.mark.parametrize(
    ("line", "message"), [(b'{"event": "st\n', "line 2: not JSON"), (b"[1, 2]\n", r"line 2: expected a JSON object, got \[1, 2\]")]
)
def test_a_broken_line_elsewhere_is_an_error_that_names_it(tmp_path, line, message):
    path = tmp_path / "log"
    path.write_bytes(b'{"event": "a"}\n' + line + b'{"event": "b"}\n')
    with pytest.raises(RunError, match=message):
        list(read(path))


def test_no_file(tmp_path):
    with pytest.raises(RunError, match="no event log"):
        list(read(tmp_path / "events.jsonl"))
