"""A limit on the time that a piece of work may take, and a way to leave out work that needs one."""

from __future__ import annotations

import contextlib
import math
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType

PATIENCE = 3.0
"""How many times its limit a piece of work may last where the machine gives it no processor time."""


_IMPORT_STEP = 0.02  # seconds


class TimeUpError(BaseException):
    """The time is up. Not an `Exception`, so that no library that runs meanwhile swallows it.

    Args:
        seconds: how long the work was allowed to take.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


class NotQuickError(BaseException):
    """Work that has a time limit was to begin where only quick work is wanted. Not an `Exception`, for the same reason."""


class _Thread(threading.local):
    quick_only = False


class _Process:
    """What holds in a whole process that only grades.

    Attributes:
        longest: the most seconds that any limit gives.
        broken_off: whether anything was ever raised out of work with a limit. SymPy keeps half-made facts of what was broken off.
    """

    longest = math.inf
    broken_off = False


_thread = _Thread()
process = _Process()


@contextlib.contextmanager
def quick_only() -> Iterator[None]:
    """Raise `NotQuickError` in this thread's body when work that has a time limit is about to begin."""
    _thread.quick_only, before = True, _thread.quick_only
    try:
        yield
    finally:
        _thread.quick_only = before


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `TimeUpError` in the body when it takes longer than this.

    Both on the wall clock and of processor time, so that what is judged does not depend on what else a machine does; but `PATIENCE` times
    as long on the wall clock alone is too long. The alarm is a signal, which only the main thread receives: in another thread, or where
    there are no such signals, there is no limit. A worker of the grading pool grades in its main thread.

    An import is not broken off, for it would leave a module half loaded: the alarm waits for its end.

    Raises:
        NotQuickError: only quick work is wanted.
    """
    if _thread.quick_only:
        raise NotQuickError
    try:
        with _alarm(min(seconds, process.longest)):
            yield
    except BaseException:
        process.broken_off = True
        raise


@contextlib.contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    start, used = time.monotonic(), time.process_time()

    def ring(number: int, frame: FrameType | None) -> None:
        missing = seconds - (time.process_time() - used)
        if missing > 0.1 * seconds and time.monotonic() - start < PATIENCE * seconds:
            signal.setitimer(signal.ITIMER_REAL, missing)
            return
        if _imports(frame):
            signal.setitimer(signal.ITIMER_REAL, _IMPORT_STEP)
            return
        raise TimeUpError(seconds)

    handler = signal.signal(signal.SIGALRM, ring)
    timer = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, handler)


def _imports(frame: FrameType | None) -> bool:
    """Whether a module is being loaded in this frame or in one that it returns to."""
    while frame is not None:
        if frame.f_code.co_name == "_find_and_load" and frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False
