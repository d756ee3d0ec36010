"""One process at a time in a folder, with real processes; and what is said when a disk is full, with a device that always is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sharpen.errors import RunError
from sharpen.folders import LOCK, alone, saving

HOLD = """
import sys
from pathlib import Path
from sharpen.folders import alone
with alone(Path(sys.argv[1]), "evaluates into it", fix=""):
    print("held", flush=True)
    sys.stdin.read()
"""
FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full, the device that is always full")


@contextmanager
def holding(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the folder."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_folder_is_held_by_one_process_and_free_when_that_was_killed(tmp_path: Path) -> None:
    with holding(tmp_path) as other:
        told = rf"output {tmp_path}: another process \({other.pid} on .+\) evaluates into it\.\n  → Wait\."
        with pytest.raises(RunError, match=told), alone(tmp_path, "evaluates into it", fix="Wait."):
            pytest.fail("it is held")
        other.send_signal(signal.SIGKILL)
        other.wait()
        assert (tmp_path / LOCK).read_text() != ""  # nobody tidied up
        with alone(tmp_path, "evaluates into it", fix="Wait."):
            assert (tmp_path / LOCK).read_text().startswith(f"{os.getpid()} on ")
    assert (tmp_path / LOCK).read_text() == ""


def test_a_folder_is_free_after_an_end_and_after_an_error(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(KeyError), alone(tmp_path, "is here", fix=""):
            raise KeyError
    with alone(tmp_path, "is here", fix=""), pytest.raises(RunError, match="is here"), alone(tmp_path, "is here", fix=""):
        pytest.fail("not even in the same process")
    with alone(tmp_path, "is here", fix=""):
        pass


def test_what_is_no_folder_cannot_be_locked(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match=r"file: cannot be locked: .+"), alone(tmp_path / "file", "is here", fix=""):
        pytest.fail("there is nothing to hold")


@needs_full
def test_a_full_disk_does_not_keep_a_folder_from_being_held(tmp_path: Path) -> None:
    with alone(tmp_path, "is here", fix=""):
        (tmp_path / LOCK).unlink()
        (tmp_path / LOCK).symlink_to(FULL)  # where the holder is noted down at the end


@needs_full
def test_a_full_disk_is_told_and_what_there_is_of_the_file_goes(tmp_path: Path) -> None:
    path, partial = tmp_path / "a.json", tmp_path / "a.writing"
    partial.symlink_to(FULL)
    told = rf"{path}: the figures cannot be written: No space left on device\. All is kept\.\n  → Make room\."
    with pytest.raises(RunError, match=told), saving("the figures", path, kept="All is kept.", fix="Make room."):
        partial.write_text("{}")
    assert not partial.is_symlink()
    with saving("the figures", path, kept="", fix=""):
        partial.write_text("{}")
    assert partial.exists()  # what is written well is left to its writer
