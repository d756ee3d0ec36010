"""`sharpen report` and `sharpen watch` as a user runs them."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

from made_up_run import MadeUp


def sharpen(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "sharpen.cli", *arguments], capture_output=True, text=True, timeout=300, check=False)


def test_report_writes_the_page_and_its_plots(tmp_path: Path) -> None:
    run = MadeUp(steps=2, held_out={}).write(tmp_path / "run")
    done = sharpen("report", str(run))
    assert done.returncode == 0, done.stderr
    assert "64 of 64 completions" in " ".join(done.stdout.split())
    assert (run / "report.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert {"reward.png", "reward.csv", "entropy.csv", "behaviour_length.png"} <= {path.name for path in (run / "report").iterdir()}
    done = sharpen("report", str(run), str(run), "--output", str(tmp_path / "out" / "two.html"), "--no-plots")
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["two.html"]
    (tmp_path / "file").write_text("")
    for arguments in (
        ["report", str(tmp_path)],
        ["watch", str(tmp_path)],
        ["report", str(run), "--output", str(tmp_path / "file" / "r.html")],
    ):
        done = sharpen(*arguments)
        assert done.returncode == 2
        assert done.stderr.count("→") == 1
        assert "Traceback" not in done.stderr


def test_watch_ends_cleanly(tmp_path: Path) -> None:
    run = MadeUp(steps=2, held_out={}).write(tmp_path / "run")
    command = [sys.executable, "-u", "-m", "sharpen.cli", "watch", str(run), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        url = line.split()[2]
        assert url.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(url, timeout=60) as answer:
            assert b"all 2 steps are done" in answer.read()
        taken = sharpen("watch", str(run), "--port", url.rstrip("/").rpartition(":")[2])
        assert taken.returncode == 2
        assert "cannot be used" in taken.stderr and "--port" in taken.stderr
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=60)
        assert (process.returncode, rest.strip()) == (0, "Stopped.")
        assert "Traceback" not in errors
