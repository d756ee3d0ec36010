"""The processes that grade: a server, and the workers that it forks.

The server is a fresh interpreter that has imported what grading needs and does nothing but fork, so that a worker is there in milliseconds
and shares its memory, whatever the trainer holds. It ends, with all its workers, when the other end of its control socket is closed: when
the pool closes or the trainer dies, however it dies. `processes.py` has that other end.

Control; answers are lines of JSON, and `fork` comes with a socket for the new worker:

    fork           → {"pid": …}
    end PID        → {"status": …}: the worker is killed where it still lives; its exit status, negative for a signal

A worker reads pickled lists of (kind, problem, text), the problem pickled once more. It answers each list with the processor time it has
used, when it is ready to begin, and then with one line a sample: that time again, whether it should be replaced, and the verdict's outcome,
reason, extracted and seconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import math
import os
import pickle
import resource
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import astuple
from typing import Any

from sharpen.grading import registry, timing
from sharpen.grading.latex import hasten
from sharpen.grading.processes import Settings, too_slow
from sharpen.grading.verdict import Verdict
from sharpen.records import Problem

_C = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1
_LONGEST_REASON = 2000


def serve(control: socket.socket, settings: Settings) -> None:
    """Fork and end workers as asked, until the control socket is closed; then end all that are left."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the trainer's affair
    os.nice(settings.nice)
    try:
        grade = load(settings.grader)
    except Exception as error:
        _answer(control, error=f"the grader '{settings.grader}' cannot be loaded: {type(error).__name__}: {error}")
        return
    if grade is registry.grade:
        hasten()  # also imports the libraries, before any limit on time begins
        registry.prepare("math")
    gc.collect()
    gc.freeze()  # a collection would write to the memory that workers share
    _answer(control, ready=True)
    alive: set[int] = set()
    try:
        while (request := _request(control)) is not None:
            words, sockets = request
            if words[0] == "fork":
                with sockets[0] as theirs:
                    alive.add(_fork(control, theirs, grade, settings))
            else:
                pid = int(words[1])
                _answer(control, status=_end(pid) if pid in alive else None)
                alive.discard(pid)
    finally:
        for pid in alive:
            _end(pid)


def load(grader: str) -> Callable[[Problem, str], Verdict]:
    """The function that `module:function` names."""
    module, _, name = grader.partition(":")
    found: Callable[[Problem, str], Verdict] = getattr(importlib.import_module(module), name)
    return found


def _request(control: socket.socket) -> tuple[list[str], list[socket.socket]] | None:
    """The next request; None when there is nobody left to make one. A request is answered before the next is made, so one read holds it."""
    try:
        data, descriptors, _, _ = socket.recv_fds(control, 100, 1)
    except ConnectionError:
        return None
    return (data.decode().split(), [socket.socket(fileno=one) for one in descriptors]) if data else None


def _answer(control: socket.socket, **fields: Any) -> None:
    with contextlib.suppress(ConnectionError):  # then the next request is None
        control.sendall(json.dumps(fields).encode() + b"\n")


def _fork(control: socket.socket, theirs: socket.socket, grade: Callable[[Problem, str], Verdict], settings: Settings) -> int:
    server = os.getpid()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            control.close()
            _confine(server, settings.memory_limit)
            timing.process.longest = settings.time_limit
            work(theirs, grade, settings)
            code = 0
        finally:
            os._exit(code)
    with contextlib.suppress(OSError):  # the worker does the same; whoever comes first
        os.setpgid(pid, pid)
    _answer(control, pid=pid)
    return pid


def _end(pid: int) -> int:
    """Kill a worker and what it started, and wait for it; its exit status, negative for a signal."""
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _confine(server: int, memory_limit: int) -> None:
    """Bound this worker's memory and life."""
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    if sys.platform == "linux":  # elsewhere a worker ends when the server does only once it is done with its sample
        _C.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != server:
        os._exit(1)
    _limit(resource.RLIMIT_CORE, 0)
    with contextlib.suppress(ValueError, OSError):  # macOS bounds no address space; the pool says so
        _limit(resource.RLIMIT_AS, memory_limit)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # a machine that runs out of memory ends a grader before the trainer


def _limit(kind: int, wanted: int) -> None:
    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))


def work(requests: socket.socket, grade: Callable[[Problem, str], Verdict], settings: Settings) -> None:
    """Grade what is asked until nobody asks, or until this process should be replaced."""
    own = grade is registry.grade
    with requests.makefile("rb") as stream:
        while True:
            try:
                samples = pickle.load(stream)
            except (EOFError, ConnectionError):
                return
            for kind in {kind for kind, _, _ in samples} if own else ():
                registry.prepare(kind)
            requests.sendall(json.dumps([time.process_time()]).encode() + b"\n")
            for _, problem, text in samples:
                _limit_processor_time(settings.time_limit)
                _seed()
                verdict = _judge(grade, problem, text, settings.time_limit)
                spent = timing.process.broken_off or _peak_memory() > settings.memory_limit // 2
                requests.sendall(json.dumps([time.process_time(), spent, *astuple(verdict)]).encode() + b"\n")
                if spent:
                    return


def _judge(grade: Callable[[Problem, str], Verdict], pickled: bytes, text: str, limit: float) -> Verdict:
    start = time.perf_counter()
    try:
        verdict = grade(Problem(**pickle.loads(pickled)), text)
        if not isinstance(verdict, Verdict) or not isinstance(verdict.extracted, str | None):
            raise TypeError(f"expected a Verdict with an extracted text or None, got {verdict!r:.100}")
        return verdict
    except timing.TimeUpError:
        verdict = too_slow(limit)
    except MemoryError:
        timing.process.broken_off = True
        verdict = Verdict("wrong", "grading takes more memory than is allowed", None)
    except Exception:
        verdict = Verdict("unscorable", f"the grader failed\n{traceback.format_exc()[-_LONGEST_REASON:]}", None)
    return Verdict(verdict.outcome, verdict.reason, None, time.perf_counter() - start)


def _seed() -> None:
    """SymPy compares some expressions at random points: the same ones for every sample, whatever was graded before."""
    if "sympy" in sys.modules:
        from sympy.core import random

        random.seed(0)


def _limit_processor_time(seconds: float) -> None:
    """End this process when one sample takes so much processor time: what holds where the trainer is too busy to look."""
    used = time.process_time()
    _limit(resource.RLIMIT_CPU, math.ceil(used + seconds) + 1)


def _peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def main() -> None:
    """Serve on the control socket that the first argument numbers, with the settings that the second gives."""
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    serve(control, Settings(**json.loads(sys.argv[2])))
