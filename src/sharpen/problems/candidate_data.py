"""GSM8K with its worked solutions: from a folder, from the hub, or, without either, generated questions of the same form."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from sharpen.errors import ProblemError
from sharpen.problems.files import FileSource
from sharpen.problems.hub import HubSource
from sharpen.problems.source import load_problems
from sharpen.problems.word_problems import generate
from sharpen.records import Problem

HUB = "openai/gsm8k"
SPLITS = ("train", "test")
GENERATED_HELD_OUT = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkedProblems:
    """Problems with worked solutions in `meta["solution"]`.

    Attributes:
        name: `gsm8k`, or `generated`.
        origin: where they come from, in words.
        train: what may be trained on.
        held_out: what is measured on.
    """

    name: Literal["gsm8k", "generated"]
    origin: str
    train: Sequence[Problem]
    held_out: Sequence[Problem]


def load_worked(data_dir: Path | None, *, offline: bool, seed: int, generated: int) -> WorkedProblems:
    """GSM8K from `data_dir`, from the folder that SHARPEN_DATA names, or from the hub; offline without it, generated questions.

    Args:
        data_dir: a folder with `gsm8k/train.jsonl` and `gsm8k/test.jsonl`, or with the two files themselves.
        offline: never ask the hub.
        seed: of generated questions.
        generated: how many of them to train on.

    Raises:
        ProblemError: `data_dir` does not hold the files, they cannot be read, or the hub does not give them.
        MissingPackageError: the hub is needed, and `datasets` is not installed.
    """
    folder = find_folder(data_dir)
    if folder is not None:
        files = [FileSource(path=str(folder / f"{split}.jsonl"), answer_extraction="hashes") for split in SPLITS]
        train, held_out = (_named(load_problems(file), split) for file, split in zip(files, SPLITS, strict=True))
        return WorkedProblems(name="gsm8k", origin="the GSM8K files", train=train, held_out=held_out)
    if not offline:
        sources = [HubSource(name=HUB, subset="main", split=split, answer_extraction="hashes") for split in SPLITS]
        train, held_out = (_named(load_problems(source), split) for source, split in zip(sources, SPLITS, strict=True))
        return WorkedProblems(name="gsm8k", origin=f"{HUB} of the hub", train=train, held_out=held_out)
    made = generate(generated + GENERATED_HELD_OUT, seed=seed)
    return WorkedProblems(
        name="generated", origin="generated word problems, for want of GSM8K", train=made[:generated], held_out=made[generated:]
    )


def find_folder(data_dir: Path | None) -> Path | None:
    """The folder with `train.jsonl` and `test.jsonl`; None where no folder is given and SHARPEN_DATA names none that has them.

    Raises:
        ProblemError: a folder is given and has not both files.
    """
    given = data_dir if data_dir is not None else os.environ.get("SHARPEN_DATA")
    if not given:
        return None
    root = Path(given).expanduser()
    for folder in (root / "gsm8k", root):
        if all((folder / f"{split}.jsonl").is_file() for split in SPLITS):
            return folder
    if data_dir is None:
        return None
    what = "no such folder" if not root.is_dir() else "it holds neither gsm8k/train.jsonl and gsm8k/test.jsonl nor these files themselves"
    raise ProblemError(f"data_dir {root}: {what}.", fix="Give the folder that holds GSM8K, or leave data_dir out.")


def _named(problems: list[Problem], split: str) -> list[Problem]:
    """The problems under one name, wherever they were read, so that what is seeded by their ids is the same."""
    return [replace(problem, id=f"gsm8k/{split}/{number}") for number, problem in enumerate(problems)]
