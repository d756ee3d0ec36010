"""A function that fails at one of its calls, as a process does that is killed there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Killed(Exception):
    """What it fails with."""


def dies(count: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, whose call of this number, from 1, raises `Killed`."""
    calls = 0

    def call(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == count:
            raise Killed
        return function(*arguments, **options)

    return call
