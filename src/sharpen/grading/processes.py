"""The trainer's end of the processes that grade: starting, asking and ending them, with deadlines. The other end is `worker.py`."""

from __future__ import annotations

import contextlib
import json
import math
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sharpen.grading.verdict import Verdict

START_LIMIT = 120.0
"""Seconds that starting, and importing what grading needs, may take on a machine that is busy or reads from a slow disk."""

_PROGRAM = "from sharpen.grading.worker import main; main()"
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class LostError(Exception):
    """A process that grades is gone, or never came."""


class StartError(LostError):
    """The server cannot be started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a server is started with.

    Attributes:
        grader: `module:function`, called with a problem and a text.
        time_limit: seconds a sample.
        memory_limit: bytes a worker, its libraries included.
        nice: added to the niceness.
    """

    grader: str
    time_limit: float
    memory_limit: int
    nice: int


def too_slow(limit: float) -> Verdict:
    """The verdict on a text that takes too long to grade."""
    return Verdict("wrong", f"grading takes longer than {limit:g} s", None)


class Line:
    """A socket that answers in lines of JSON.

    Its reads are our own, without Python's buffers: those have locks, and a fork may come while a thread holds one. A child that is forked
    from this process closes its copies at once, or the processes that grade would outlive this one in it.
    """

    def __init__(self, end: socket.socket) -> None:
        self.socket = end
        self._read = bytearray()
        _lines.add(self)

    def receive(self, deadline: float) -> Any:
        """The next answer.

        Raises:
            TimeoutError: none has come by `deadline`, on the monotonic clock.
            LostError: the other end is closed.
        """
        seen = 0
        while (end := self._read.find(b"\n", seen)) < 0:
            seen = len(self._read)
            self.socket.settimeout(max(1e-6, deadline - time.monotonic()))
            try:
                data = self.socket.recv(65536)
            except TimeoutError:
                raise
            except OSError as error:
                raise LostError(str(error)) from error
            if not data:
                raise LostError("it has ended")
            self._read += data
        line = self._read[:end]
        del self._read[: end + 1]
        return json.loads(line)


class Worker:
    """A process that grades one list of samples after another."""

    def __init__(self, line: Line, pid: int, server: Server) -> None:
        self._line, self.pid, self._server = line, pid, server
        self._used = 0.0

    def send(self, samples: Sequence[tuple[str, bytes, str]]) -> None:
        """Hand over (kind, pickled problem, text) each, and wait until the worker is ready to begin.

        Raises:
            LostError: it is gone, or is not ready in time.
        """
        self._line.socket.settimeout(START_LIMIT)
        try:
            self._line.socket.sendall(pickle.dumps(samples))
            [self._used] = self._line.receive(time.monotonic() + START_LIMIT)
        except OSError as error:
            raise LostError(f"it does not begin: {error}") from error

    def receive(self, seconds: float) -> tuple[Verdict, bool]:
        """The next verdict, and whether the worker should be replaced after it.

        Raises:
            TimeoutError: it takes longer than this.
            LostError: the worker is gone.
        """
        self._used, spent, *verdict = self._line.receive(time.monotonic() + seconds)
        return Verdict(*verdict), spent

    def processor_time(self) -> float:
        """Seconds that it has spent on its present sample; infinite where it has ended."""
        import psutil

        try:
            times = psutil.Process(self.pid).cpu_times()
        except psutil.Error:
            return math.inf
        return times.user + times.system - self._used

    def end(self) -> int | None:
        """Kill the worker where it still lives; its exit status, negative for a signal, None when the server is gone as well."""
        self._line.socket.close()
        try:
            status: int = self._server.ask(f"end {self.pid}")["status"]
        except LostError:
            return None
        return status


class Server:
    """The process that workers are forked from.

    Args:
        settings: limits and grader.

    Raises:
        StartError: it does not start.
    """

    def __init__(self, settings: Settings) -> None:
        if not sys.executable:
            raise StartError("sys.executable is not set, so there is no interpreter to start a worker with")
        self._lock = threading.Lock()
        self._lost = False
        try:
            self._control, self._process = _start(settings)
        except OSError as error:
            raise StartError(str(error)) from error
        try:
            answer = self._control.receive(time.monotonic() + START_LIMIT)
        except (LostError, TimeoutError) as error:
            self.stop()
            raise StartError(f"its process ended with {self._process.returncode}: {error}") from error
        if "error" in answer:
            self.stop()
            raise StartError(answer["error"])

    @property
    def alive(self) -> bool:
        """Whether it can be asked for workers."""
        return not self._lost and self._process.poll() is None

    def fork(self) -> Worker:
        """A new worker.

        Raises:
            LostError: the server is gone, or cannot fork.
        """
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            raise LostError(str(error)) from error
        line = Line(ours)
        with theirs:
            try:
                return Worker(line, self.ask("fork", theirs)["pid"], self)
            except LostError:
                ours.close()
                raise

    def ask(self, request: str, *sockets: socket.socket) -> Any:
        """Make a request and wait for its answer.

        Raises:
            LostError: the server is gone.
        """
        with self._lock:
            try:
                self._control.socket.settimeout(START_LIMIT)
                socket.send_fds(self._control.socket, [request.encode()], [one.fileno() for one in sockets])
                return self._control.receive(time.monotonic() + START_LIMIT)
            except (OSError, LostError) as error:
                self._lost = True
                raise LostError(f"the server of the workers is gone: {error}") from error

    def stop(self) -> None:
        """End the server and all its workers."""
        with contextlib.suppress(OSError):
            self._control.socket.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits for an answer
        self._control.socket.close()
        try:
            self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def forget(self) -> None:
        """Let go of it in a child of this process: there it is nobody to be waited for."""
        self._process.returncode = 0


def _start(settings: Settings) -> tuple[Line, subprocess.Popen[bytes]]:
    ours, theirs = socket.socketpair()
    line = Line(ours)
    with theirs:
        command = [sys.executable, "-P", "-W", "ignore", "-c", _PROGRAM, str(theirs.fileno()), json.dumps(asdict(settings))]
        quiet = subprocess.DEVNULL
        # A session of its own: an interrupt from the keyboard reaches the trainer alone.
        process = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True, env=_environment()
        )
    return line, process


def _environment() -> dict[str, str]:
    """What a server starts with: this process's modules, one thread, and nothing that makes two runs grade differently."""
    package = Path(__file__).parents[2]
    path = [str(Path(entry).absolute()) for entry in (package, *sys.path) if isinstance(entry, str | Path)]
    fixed = {
        "PYTHONPATH": os.pathsep.join(path),
        "PYTHONHASHSEED": "0",
        # Python's own integers, which raise an error where memory is short. GMP would abort the process.
        "SYMPY_GROUND_TYPES": "python",
        "MPMATH_NOGMPY": "1",
    }
    return os.environ | dict.fromkeys(_ONE_THREAD, "1") | fixed


_lines: weakref.WeakSet[Line] = weakref.WeakSet()


def _forget_lines() -> None:
    for line in list(_lines):
        line.socket.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_lines)
