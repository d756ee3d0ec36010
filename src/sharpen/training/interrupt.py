"""Ctrl-C and SIGTERM: the first asks the loop to save and leave at the end of its step, the second leaves at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupt:
    """Whether the run has been asked to stop.

    Attributes:
        signal: the number of the signal that asked, or None.
    """

    def __init__(self) -> None:
        self.signal: int | None = None

    def __bool__(self) -> bool:
        return self.signal is not None


@contextmanager
def watch(on_request: Callable[[str], None]) -> Iterator[Interrupt]:
    """Turn SIGINT and SIGTERM into a request while the block runs; outside the main thread nothing is changed.

    Args:
        on_request: told the signal's name when the first arrives.
    """
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if interrupt:
            os._exit(128 + number)
        interrupt.signal = number
        on_request(signal.Signals(number).name)

    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupt
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
