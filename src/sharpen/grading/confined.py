"""A confined process: how it is started, fed, read within bounds, and ended with all that it has started."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import re
import secrets
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Literal, NamedTuple

from sharpen.errors import SandboxError
from sharpen.grading import cgroups
from sharpen.grading.seccomp import filter_program

SandboxKind = Literal["bubblewrap", "none"]
Mode = Literal["run", "serve", "test"]
RunOutcome = Literal["ok", "error", "timeout", "memory", "output", "killed"]

_HARNESS = Path(__file__).with_name("code_harness.py")
_PYTHON_OPTIONS = ("-s", "-P", "-S", "-B", "-X", "utf8")
_ENVIRONMENT = {"PYTHONHASHSEED": "0"}  # or the order of a set, and so a verdict, would differ between equal runs
_INFO = re.compile(rb'"child-pid":\s*(\d+)')
_START_SECONDS, _KILL_SECONDS = 60.0, 5.0
_CHUNK = 65536
_FIRST_USER, _USERS = 61184, 4000  # a range that distributions leave to passing users
_JOIN = 'n=$1; shift; while [ "$n" -gt 0 ]; do echo $$ > "$1" || exit 1; shift; n=$((n-1)); done; exec "$@"'


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a confined program may use.

    Attributes:
        seconds: of the wall clock, from when the program begins; of processor time, as much and one more.
        memory: address space of each process, in bytes.
        files: what may be written to the working folder, all in all and in one file, in bytes.
        output: of standard output and of standard error, in bytes each; also of one value that a function returns.
        processes: processes and threads.
        open_files: of each process.
    """

    seconds: float = 10.0
    memory: int = 1 << 30
    files: int = 64 << 20
    output: int = 1 << 20
    processes: int = 16
    open_files: int = 64


class Ending(NamedTuple):
    """How a confined process ended.

    `ok` (with 0), `error` (with another exit code), `timeout`, `memory`, `output` (it wrote too much) or `killed` (by a signal). The exit
    code is negative for a signal, and None for a process that was ended from outside.
    """

    outcome: RunOutcome
    exit_code: int | None

    @property
    def why(self) -> str:
        """The outcome in a few words."""
        said = {"timeout": "it took too long", "memory": "it took too much memory", "output": "it printed too much"}
        said |= {"ok": "it ended", "error": f"it ended with exit code {self.exit_code}"}
        return said.get(self.outcome, f"signal {-(self.exit_code or 0)} ended it")


class Confined:
    """A Python process that runs `code_harness.py` in a mode; a context manager whose end ends the process and all that it has started.

    Args:
        mode: the harness's.
        program: its text.
        kind: `bubblewrap`, or `none` for a plain child process with limits.
        limits: what it may use.

    Raises:
        SandboxError: bubblewrap is not installed.
    """

    def __init__(self, mode: Mode, program: str, *, kind: SandboxKind, limits: Limits) -> None:
        self.limits = limits
        self._started = time.monotonic()
        self.output, self.errors = bytearray(), bytearray()
        text = program.encode(errors="replace")
        self._outbox = bytearray(b"%d\n" % len(text) + text)
        self._began: float | None = None  # when the program did
        self._last = False
        self._info: int | None = None  # where bubblewrap tells of its child
        self._group: cgroups.ControlGroup | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        with contextlib.ExitStack() as undo:
            undo.callback(self._tidy)
            command, passed = self._bubblewrap(mode) if kind == "bubblewrap" else self._plain(mode)
            try:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    bufsize=0,
                    env=dict(_ENVIRONMENT),
                    cwd=self._folder.name if self._folder else "/",
                    pass_fds=passed,
                    start_new_session=True,
                )
            finally:
                for number in passed:
                    os.close(number)
            undo.pop_all()
        assert self._process.stdin and self._process.stdout and self._process.stderr
        self._stdin, self._stdout, self._stderr = self._process.stdin, self._process.stdout, self._process.stderr
        for pipe in (self._stdin, self._stdout, self._stderr):
            os.set_blocking(pipe.fileno(), False)

    def __enter__(self) -> Confined:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.end()

    @property
    def seconds(self) -> float:
        """Since its start, that of the sandbox included."""
        return time.monotonic() - self._started

    def send(self, data: bytes, *, last: bool = False) -> None:
        """Put data in line for its standard input; with `last` that is closed when all of it is through."""
        self._outbox += data
        self._last = last

    def wait(self) -> Ending:
        """Read until it ends, or goes over a limit.

        Raises:
            SandboxError: it has not begun: the sandbox does not work.
        """
        over = self._pump(lambda: False)
        if over is None:
            try:
                code = self._process.wait(timeout=max(0.0, self._left()))
            except subprocess.TimeoutExpired:
                over = self._late()
        if over is not None:
            return Ending(over, None)
        if self._began is None:
            raise self._failure()
        code = 128 - code if code > 128 else code
        return Ending(self._outcome(code), code)

    def line(self) -> bytes | Ending:
        """The next line of its standard output, without its end; how it ended when it writes no more.

        Raises:
            SandboxError: as for `wait`.
        """
        over = self._pump(lambda: b"\n" in self.output)
        if over is not None:
            return Ending(over, None)
        if b"\n" not in self.output:
            return self.wait()
        found, _, rest = bytes(self.output).partition(b"\n")
        self.output = bytearray(rest)
        return found

    def _outcome(self, code: int) -> RunOutcome:
        if code == 0:
            return "ok"
        ran_out = self._group is not None and self._group.memory_ran_out()
        if ran_out or self.errors.rstrip().rpartition(b"\n")[2].startswith(b"MemoryError"):
            return "memory"
        if code == -signal.SIGXCPU:
            return "timeout"
        return "error" if code > 0 else "killed"

    def end(self) -> None:
        """End it and all that it has started. Nothing is left of it."""
        if self._process.poll() is None:
            self._kill()
        for pipe in (self._stdin, self._stdout, self._stderr):
            pipe.close()
        self._tidy()

    def _kill(self) -> None:
        """End the first process of the sandbox, which ends all others in it, then bubblewrap, which buries that one; or else the group."""
        if self._info is not None:
            told = None
            with contextlib.suppress(BlockingIOError):  # it has not come so far
                told = _INFO.search(os.read(self._info, _CHUNK))
            if told is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(told[1]), signal.SIGKILL)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(timeout=_KILL_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _tidy(self) -> None:
        if self._info is not None:
            os.close(self._info)
        if self._group is not None:
            self._group.remove()
        if self._folder is not None:
            self._folder.cleanup()

    def _left(self) -> float:
        """Seconds that it still has: to begin, and then to end."""
        return _START_SECONDS - self.seconds if self._began is None else self.limits.seconds - (time.monotonic() - self._began)

    def _late(self) -> RunOutcome:
        if self._began is None:
            raise self._failure()
        return "timeout"

    def _pump(self, done: Callable[[], bool]) -> RunOutcome | None:
        """Write what is in line and read what comes, until that is enough or both outputs are closed; the limit that it went over."""
        poll = select.poll()
        readers = {pipe.fileno(): into for pipe, into in ((self._stdout, self.output), (self._stderr, self.errors)) if not pipe.closed}
        for number in readers:
            poll.register(number, select.POLLIN)
        writer = None if self._stdin.closed else self._stdin.fileno()
        while readers and not done():
            if writer is not None:
                self._watch(poll, writer)
                writer = None if self._stdin.closed else writer
            if (left := self._left()) <= 0:
                return self._late()
            for number, _ in poll.poll(math.ceil(left * 1000)):
                if number == writer:
                    self._write(writer)
                elif not self._read(number, readers[number]):
                    poll.unregister(number)
                    del readers[number]
                if max(len(self.output), len(self.errors)) > self.limits.output:
                    return "output"
        return None

    def _watch(self, poll: select.poll, writer: int) -> None:
        """Ask for room in the standard input while there is something to write; close it after the last."""
        if self._outbox:
            poll.register(writer, select.POLLOUT)
            return
        with contextlib.suppress(KeyError):
            poll.unregister(writer)
        if self._last:
            self._stdin.close()

    def _write(self, number: int) -> None:
        try:
            del self._outbox[: os.write(number, self._outbox[:_CHUNK])]
        except BlockingIOError:
            return
        except OSError:  # it reads no more
            self._outbox.clear()
            self._last = True

    def _read(self, number: int, into: bytearray) -> bool:
        """Read once; False at the end."""
        try:
            data = os.read(number, _CHUNK)
        except BlockingIOError:
            return True
        if number == self._stdout.fileno() and data and self._began is None:
            if not data.startswith(b"+"):
                raise self._failure()
            self._began = time.monotonic()
            into += data[1:]
        else:
            into += data
        return bool(data)

    def _failure(self) -> SandboxError:
        said = self.errors.decode(errors="replace").strip()
        return SandboxError(f"The sandbox does not start: {said[-300:] or f'no word of it in {self.seconds:.1f} s'}.", fix=HOW_TO_ALLOW)

    # --- commands -----------------------------------------------------------------------------------------------------------------

    def _plain(self, mode: Mode) -> tuple[list[str], tuple[int, ...]]:
        self._folder = tempfile.TemporaryDirectory(prefix="sharpen-code-", ignore_cleanup_errors=True)
        rlimits = _rlimits(self.limits, count_processes=False)
        return [sys.executable, *_PYTHON_OPTIONS, "-c", _harness(), mode, "-", *rlimits], ()

    def _bubblewrap(self, mode: Mode) -> tuple[list[str], tuple[int, ...]]:
        bwrap = shutil.which("bwrap")
        if bwrap is None:
            raise SandboxError("Running the code of completions needs bubblewrap, which is not installed.", fix=HOW_TO_INSTALL)
        limits, is_root = self.limits, os.geteuid() == 0
        self._group = cgroups.make(processes=limits.processes + 4, memory=limits.memory + limits.files + (64 << 20))
        user = str(_FIRST_USER + secrets.randbelow(_USERS)) if is_root else "-"
        command = [bwrap, *(_AS_ROOT if is_root else _AS_USER), *_NAMESPACES, *_tree()]
        command += ["--perms", "1777", "--size", str(limits.files), "--tmpfs", "/tmp", "--remount-ro", "/", "--chdir", "/tmp"]
        self._info, told = os.pipe()
        os.set_blocking(self._info, False)
        command += ["--info-fd", str(told)]
        passed: tuple[int, ...] = (told,)
        if (rules := filter_program()) is not None:
            reader, writer = os.pipe()
            os.write(writer, rules)
            os.close(writer)
            passed = (told, reader)
            command += ["--seccomp", str(reader)]
        command += ["--", _PYTHON_INSIDE, *_PYTHON_OPTIONS, "-c", _harness(), mode, user, *_rlimits(limits, count_processes=True)]
        if self._group is not None:
            files = [str(file) for file in self._group.members]
            command = ["/bin/sh", "-c", _JOIN, "sh", str(len(files)), *files, *command]
        return command, passed


_UNPROTECTED = 'Where that cannot be had, sandbox = "none" in [rewards] runs the code unprotected, as you.'
HOW_TO_INSTALL = f"Install it: `apt-get install bubblewrap` or `dnf install bubblewrap`, on Linux only. {_UNPROTECTED}"
HOW_TO_ALLOW = (
    "bubblewrap needs namespaces: start a container with `--privileged`, or with `--cap-add SYS_ADMIN --security-opt seccomp=unconfined "
    f"--security-opt apparmor=unconfined`. {_UNPROTECTED}"
)

_NAMESPACES = (
    *("--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try", "--new-session", "--die-with-parent"),
    "--as-pid-1",
    *("--hostname", "sandbox", "--clearenv", "--setenv", "PYTHONHASHSEED", "0"),
)
# Root of a new user namespace would still be root to the files and to the limit on processes. So root makes none, and the harness takes
# on a user of its own before the program begins, which ends these two capabilities.
_AS_ROOT = ("--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID")
_AS_USER = ("--unshare-user", "--uid", "65534", "--gid", "65534")
_PYTHON_INSIDE = "/python/bin/python3"
_PACKAGES = frozenset({"site-packages", "dist-packages"})


@cache
def _harness() -> str:
    return _HARNESS.read_text(encoding="utf-8")


@cache
def _tree() -> tuple[str, ...]:
    """The mounts: shared libraries and this interpreter's standard library, read-only; /dev/null and /dev/urandom. No /proc, no /etc.

    Installed packages lie among both. Their folders are empty inside.
    """
    tree: list[str] = []
    for folder in ("/dev", "/etc", "/usr", "/python", "/python/bin"):  # bubblewrap makes them for root alone
        tree += ["--perms", "0755", "--dir", folder]
    inside: dict[str, Path] = {}  # which folder of the machine is seen where
    for folder in ("/usr/lib", "/usr/lib32", "/usr/lib64"):
        tree += ["--ro-bind-try", folder, folder]
        inside[folder] = Path(folder)
    for name in ("/lib", "/lib32", "/lib64"):
        path = Path(name)
        if path.is_symlink():
            tree += ["--symlink", os.readlink(path), name]
        elif path.is_dir():
            tree += ["--ro-bind", name, name]
            inside[name] = path
    prefix, binary = Path(sys.base_prefix).resolve(), Path(sys.executable).resolve()
    tree += ["--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]
    tree += ["--ro-bind", str(prefix / "lib"), "/python/lib", "--ro-bind", str(binary), _PYTHON_INSIDE]
    inside["/python/lib"] = prefix / "lib"
    for place in _packages(inside):  # read-only, or a program might fill the memory with files
        tree += ["--perms", "0755", "--tmpfs", place, "--remount-ro", place]
    return (*tree, "--dev-bind", "/dev/null", "/dev/null", "--dev-bind", "/dev/urandom", "/dev/urandom")


def _packages(inside: Mapping[str, Path]) -> list[str]:
    """Where, as it is seen inside, installed packages lie below these folders of the machine.

    A folder of packages that is a link is one where it leads; a link that leads nowhere inside needs no mask.
    """
    found: set[Path] = set()
    for top, names, _ in itertools.chain.from_iterable(os.walk(folder) for folder in set(inside.values())):
        found.update(Path(top, name).resolve() for name in _PACKAGES.intersection(names))
        names[:] = [name for name in names if name not in _PACKAGES]
    seen = ((real, folder.resolve(), name) for real in found for name, folder in inside.items())
    return sorted(str(Path(name) / real.relative_to(folder)) for real, folder, name in seen if real.is_relative_to(folder))


def _rlimits(limits: Limits, *, count_processes: bool) -> list[str]:
    """The harness's arguments for `setrlimit`."""
    seconds = math.ceil(limits.seconds) + 1
    values = {"CORE": 0, "AS": limits.memory, "FSIZE": limits.files, "NOFILE": limits.open_files}
    if count_processes:  # of a plain child's user there are others
        values["NPROC"] = limits.processes
    return [f"RLIMIT_CPU={seconds}:{seconds + 1}", *(f"RLIMIT_{name}={value}:{value}" for name, value in values.items())]
