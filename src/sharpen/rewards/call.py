"""Calling a reward function: which columns it takes, coroutines, one completion at a time after a failure, and what may come back.

Axes: N completions of the batch.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import numbers
import traceback
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sharpen.errors import RewardError
from sharpen.rewards.beside import Logged, TrainerState
from sharpen.rewards.functions import RewardFunction

Value = float | None
Columns = dict[str, list[Any]]

_log = logging.getLogger(__name__)


_MESSAGES = "string indices must be integers"
_HINT = (
    "The function seems to be written for lists of messages, as TRL passes them for conversational prompts. Here a prompt and a completion "
    "are plain text: write `completion` instead of `completion[0]['content']`, and `prompt` instead of `prompt[-1]['content']`."
)


# A coroutine that is cancelled raises no Exception. Nobody else cancels here: the event loop is begun and ended within the call.
_RAISED = (Exception, asyncio.CancelledError)


class _Unbound(Exception):
    """The function needs an argument that there is no column for."""


def call(
    name: str,
    function: RewardFunction,
    columns: Columns,
    parameters: dict[str, Any],
    *,
    state: TrainerState | None = None,
    logged: Logged | None = None,
) -> tuple[list[Value], dict[int, str]]:
    """The function's value for each completion.

    Called once with all; if that raises, once with each, so that only the completions at fault are lost.

    Args:
        name: the function's, for messages.
        function: any callable, a coroutine function too.
        columns: N values each, by name.
        parameters: the recipe's.
        state: where training stands; at its beginning when None.
        logged: takes what the function writes down; a call that raises has written nothing.

    Returns:
        N values, None where there is none, and the reason by place where the function raised.

    Raises:
        RewardError: when what comes back is not one number or None a completion.
    """
    count = len(columns["prompts"])
    state, logged = state or TrainerState(global_step=0, max_steps=0), Logged() if logged is None else logged

    def attempt(places: range) -> list[Value]:
        some = {key: [column[place] for place in places] for key, column in columns.items()}
        beside = Logged()
        found = _call_once(name, function, some, parameters | dict(beside.arguments(state, len(places))))
        logged.add(beside, places, count)
        return found

    try:
        return attempt(range(count)), {}
    except RewardError:
        raise
    except _Unbound as error:
        return [None] * count, dict.fromkeys(range(count), str(error))
    except _RAISED:
        whole = traceback.format_exc()
    values: list[Value] = []
    reasons: dict[int, str] = {}
    for place in range(count):
        try:
            values += attempt(range(place, place + 1))
        except RewardError:
            raise
        except _RAISED as error:
            values.append(None)
            reasons[place] = f"it raised\n{traceback.format_exc()}" + (_HINT if _MESSAGES in str(error) else "")
    if not reasons:
        _log.warning("Reward function '%s' raises on %d completions together and on none of them alone:\n%s", name, count, whole)
    return values, reasons


def _call_once(name: str, function: RewardFunction, columns: Columns, others: dict[str, Any]) -> list[Value]:
    positional, keywords = _arguments(function, columns, others)
    result = function(*positional, **keywords)
    if inspect.isawaitable(result):
        result = _wait(result)
    return _checked(name, result, len(columns["prompts"]))


def _arguments(function: RewardFunction, columns: Columns, others: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """What to call the function with: the columns and others it names, or all for `**columns`; columns as lists of its own.

    Prompts and completions go by name; by position to a function that names neither, like `lambda p, c, **_: …`.
    """
    given: dict[str, Any] = {key: list(column) for key, column in columns.items()} | others
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return [], given
    names = list(signature.parameters)
    positional = []
    if len(names) >= 2 and not given.keys() & set(names[:2]) and not {"prompts", "completions"} & set(names):
        first_two = [signature.parameters[name] for name in names[:2]]
        if all(parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD) for parameter in first_two):
            positional = [given.pop("prompts"), given.pop("completions")]
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values()):
        given = {key: value for key, value in given.items() if key in names}
    try:
        signature.bind(*positional, **given)
    except TypeError as error:
        raise _Unbound(f"it cannot be called: {error}. The columns are {', '.join(sorted(columns))}.") from None
    return positional, given


def _wait(awaitable: Awaitable[Any]) -> Any:
    """The awaitable's result, whether or not this thread runs an event loop (a notebook's does)."""

    async def finish() -> Any:
        return await awaitable

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(finish())
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(finish())).result()


def _checked(name: str, result: Any, count: int) -> list[Value]:
    """The result as `count` numbers; a list, tuple, or array or tensor of shape (count,)."""
    shape = getattr(result, "shape", None)
    if shape is not None:
        got = f"an array of shape {tuple(shape)}"
        values = result.tolist() if tuple(shape) == (count,) else None
    elif isinstance(result, (list, tuple)):
        got = f"{len(result)}"
        values = result if len(result) == count else None
    else:
        got, values = f"{type(result).__name__} {result!r:.60}", None
    if values is None:
        raise RewardError(
            f"Reward function '{name}': expected {count} values, one a completion; got {got}.",
            fix="Return a list with one number (or None) a completion, in order.",
        )
    return [_number(name, value, place) for place, value in enumerate(values)]


def _number(name: str, value: Any, place: int) -> Value:
    if value is not None and getattr(value, "shape", None) == ():
        value = value.item()
    if value is None or isinstance(value, numbers.Real):
        return None if value is None else float(value)
    raise RewardError(
        f"Reward function '{name}': expected a number or None a completion; got {type(value).__name__} {value!r:.60} at place {place}.",
        fix="Return a flat list of numbers.",
    )
