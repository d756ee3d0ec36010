"""Running code that nobody has read: under bubblewrap, or, where the recipe says so in so many words, in a plain child process.

`docs/sandbox.md` says what that defends against, and what it does not.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from sharpen.errors import SandboxError
from sharpen.grading.confined import Confined, Ending, Limits, Mode, RunOutcome, SandboxKind

__all__ = ["Limits", "RunOutcome", "RunResult", "Sandbox", "SandboxKind", "working"]


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """What became of a run.

    Attributes:
        outcome: `ok` (it ended with 0), `error` (with another code), `timeout`, `memory`, `output` (too much of it) or `killed` (by a
            signal).
        exit_code: negative for a signal; None when the run was ended from outside.
        stdout: at most as many bytes as the limits allow, bytes that are no UTF-8 replaced.
        stderr: likewise.
        seconds: on the wall clock, the start of the sandbox included.
    """

    outcome: RunOutcome
    exit_code: int | None
    stdout: str
    stderr: str
    seconds: float

    @property
    def why(self) -> str:
        """The outcome in a few words: for an error, the last line of its traceback."""
        last = self.stderr.strip().rpartition("\n")[2].strip() if self.outcome == "error" else ""
        return last[:200] or Ending(self.outcome, self.exit_code).why


class Sandbox:
    """Where code of completions runs.

    Safe to use from many threads at once: nothing is shared, and there are no signals.

    Args:
        kind: `bubblewrap`, or `none` for a plain child process.
    """

    def __init__(self, kind: SandboxKind = "bubblewrap") -> None:
        self.kind = kind

    def run(self, program: str, stdin: str = "", *, limits: Limits | None = None) -> RunResult:
        """Run a Python script.

        Args:
            program: its text.
            stdin: what it reads on its standard input.
            limits: what it may use.

        Raises:
            SandboxError: the sandbox does not work. Whatever the program does is a result.
        """
        with self.start("run", program, limits=limits) as confined:
            confined.send(stdin.encode(errors="replace"), last=True)
            outcome, code = confined.wait()
            seconds, most = confined.seconds, confined.limits.output
            stdout, stderr = (bytes(data[:most]).decode(errors="replace") for data in (confined.output, confined.errors))
        return RunResult(outcome=outcome, exit_code=code, stdout=stdout, stderr=stderr, seconds=seconds)

    def start(self, mode: Mode, program: str, *, limits: Limits | None = None) -> Confined:
        """Start a process in a mode of `code_harness.py`."""
        return Confined(mode, program, kind=self.kind, limits=limits or Limits())

    def check(self) -> None:
        """Run a program that prints one word.

        Raises:
            SandboxError: that does not work; the message says what to install or allow.
        """
        result = self.run("print('works')", limits=Limits(seconds=60.0))
        if (result.outcome, result.stdout) != ("ok", "works\n"):
            raise SandboxError(f"The sandbox cannot run Python: {result.why}. {result.stderr[-300:]}", fix="See docs/sandbox.md.")


@functools.cache
def working(kind: SandboxKind = "bubblewrap") -> Sandbox:
    """The sandbox of that kind, checked once in this process.

    Raises:
        SandboxError: it does not work.
    """
    found = Sandbox(kind)
    found.check()
    return found
