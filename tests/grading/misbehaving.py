"""A grader for the tests of the grading pool: the text says how it is to misbehave."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from pathlib import Path

from sharpen.grading import Verdict
from sharpen.records import Problem


def grade(problem: Problem, text: str) -> Verdict:
    order, _, rest = text.partition(" ")
    if order == "loop":
        while True:
            pass
    if order == "sleep":
        time.sleep(float(rest))
    elif order == "pow":
        len(str(10**10**9))  # one call into C, which no signal handler interrupts
    elif order == "memory":
        held = []
        while True:
            held.append(bytearray(2**24))
    elif order == "segfault":
        ctypes.string_at(0)
    elif order == "exit":
        os._exit(3)
    elif order == "exit-once":
        once(Path(rest), lambda: os._exit(3))
    elif order == "raise":
        raise RuntimeError("out of order")
    elif order == "nonsense":
        return "right"  # type: ignore[return-value]
    elif order == "wait-once":
        once(Path(rest), lambda: time.sleep(600))
    elif order == "modules":
        return Verdict("right", "done", " ".join(sorted(sys.modules)))
    elif order == "limits":
        return Verdict("right", "done", f"{os.nice(0)} {signal.getsignal(signal.SIGINT) == signal.SIG_IGN}")
    return Verdict("right" if problem.answer == rest else "wrong", "done", str(os.getpid()))


def once(path: Path, act) -> None:
    """Act, but not where somebody has already; the file then holds who did."""
    if not path.exists():
        path.with_suffix(".new").write_text(str(os.getpid()), encoding="utf-8")
        path.with_suffix(".new").rename(path)
        act()
