"""Problems from the generators of reasoning-gym."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from pydantic import Field

from sharpen.errors import MissingPackageError, ProblemError, nearest
from sharpen.problems.settings import Settings
from sharpen.records import Problem


class GymSource(Settings):
    """Problems from a generator of reasoning-gym.

    Two seeds may give some equal problems where a generator has few: held-out problems are then best taken with other parameters.
    """

    source: Literal["reasoning_gym"] = "reasoning_gym"
    generator: str = Field(description="the generator's name, such as chain_sum")
    parameters: dict[str, Any] = Field(default_factory=dict, description="of the generator, such as num_digits or difficulty bounds")
    count: int = Field(ge=1, description="problems")
    seed: int = Field(0, ge=0, description="of the generator")


def load_gym(source: GymSource) -> list[Problem]:
    """The problems of a generator; their `meta` holds what its scorer needs: `generator`, `parameters` and `entry`.

    A problem that has no single right answer has an empty `answer`; the scorer judges it all the same.

    Raises:
        MissingPackageError: reasoning-gym is not installed.
        ProblemError: an unknown generator, an unknown parameter, or a value that the generator refuses.
    """
    try:
        import reasoning_gym
        from reasoning_gym.factory import DATASETS
    except ImportError as error:
        raise MissingPackageError(
            "reasoning-gym", needed_for=f"the generator '{source.generator}'", install="pip install 'sharpen[reasoning-gym]'"
        ) from error
    if source.generator not in DATASETS:
        raise ProblemError(
            f"reasoning-gym has no generator '{source.generator}'.{nearest(source.generator, DATASETS)}",
            fix=f"Use one of: {', '.join(sorted(DATASETS))}.",
        )
    known = {field.name for field in dataclasses.fields(DATASETS[source.generator][1])} - {"seed", "size"}
    for name in source.parameters:
        if name not in known:
            hint = " Use count and seed of the source." if name in ("seed", "size") else nearest(name, known)
            raise ProblemError(
                f"the generator '{source.generator}' has no parameter '{name}'.{hint}",
                fix=f"It takes: {', '.join(sorted(known)) or 'none'}.",
            )
    try:
        entries = list(reasoning_gym.create_dataset(source.generator, seed=source.seed, size=source.count, **source.parameters))
    except Exception as error:
        raise ProblemError(
            f"the generator '{source.generator}' with parameters {source.parameters}: {type(error).__name__}: {error}.",
            fix="Change the parameters.",
        ) from error
    return [_to_problem(source, number, entry) for number, entry in enumerate(entries)]


def _to_problem(source: GymSource, number: int, entry: dict[str, Any]) -> Problem:
    answer = entry["answer"]
    return Problem(
        id=f"{source.generator}/{source.seed}/{number}",
        prompt=entry["question"],
        answer="" if answer is None else str(answer),
        kind="reasoning_gym",
        meta={"generator": source.generator, "parameters": source.parameters, "entry": entry},
    )
