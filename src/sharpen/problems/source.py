"""Where problems come from: one table of a recipe, `[problems.train]` or `[problems.held_out]`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from pydantic import Field

from sharpen.errors import ProblemError
from sharpen.problems.arithmetic import ArithmeticSource, generate
from sharpen.problems.files import FileSource, load_file
from sharpen.problems.gym import GymSource, load_gym
from sharpen.problems.hub import HubSource, load_hub
from sharpen.problems.multi_step import MultiStepSource
from sharpen.problems.multi_step import generate as generate_multi_step
from sharpen.records import Problem

Source = Annotated[FileSource | HubSource | GymSource | ArithmeticSource | MultiStepSource, Field(discriminator="source")]
"""Any source; the key `source` says which."""


def load_problems(source: Source, *, base: Path | None = None) -> list[Problem]:
    """The problems of a source, in its order.

    Args:
        source: where they come from.
        base: the recipe's folder, in which files are looked for after the working directory.

    Raises:
        ProblemError: the source cannot be read, has a row that makes no problem, or has none at all.
        MissingPackageError: an optional package that it needs is not installed.
    """
    match source:
        case FileSource():
            problems, name = load_file(source, base), source.path
        case HubSource():
            problems, name = load_hub(source), source.name
        case GymSource():
            problems, name = load_gym(source), source.generator
        case ArithmeticSource():
            problems, name = generate(source), "arithmetic"
        case MultiStepSource():
            problems, name = generate_multi_step(source), "multi_step"
    if not problems:
        raise ProblemError(f"{name}: there are no problems in it.", fix="Name a source that has at least one.")
    return problems


def fingerprint(problems: Iterable[Problem]) -> str:
    """A SHA-256 of all ids, prompts and answers or tests in order: a resumed run compares it to see whether they have changed."""
    digest = hashlib.sha256()
    for problem in problems:
        tests = [repr(sorted(problem.meta.items()))] if problem.kind == "code" else []
        digest.update(json.dumps([problem.id, problem.prompt, problem.answer, *tests]).encode())
        digest.update(b"\n")
    return digest.hexdigest()
