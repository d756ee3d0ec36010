"""Run a recipe in a process of its own, and die by SIGKILL at a chosen moment: `run_and_die.py RECIPE MOMENT [--resume]`.

Moments: `never`, `update:STEP` (between two updates of that step), `checkpoint:STEP` (its weights are written, its manifest is not),
`evaluation:NAME` (its completions are written, its figures are not).
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import torch

from sharpen.evaluation import record
from sharpen.pipelines.train import train
from sharpen.recipe import load_recipe
from sharpen.training import checkpoint
from sharpen.training.learner import Learner


def main() -> None:
    torch.set_num_threads(2)
    recipe, moment = Path(sys.argv[1]), sys.argv[2]
    kind, _, step = moment.partition(":")
    updates, write_manifest = Learner.update, checkpoint.write_manifest
    update = Learner._update

    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def update_or_die(self, batch, *, step: int, constant_length: int):
        Learner._update = update
        if step == wanted:
            # the first update of the step is made, the second is not
            Learner._update = lambda s, part, means, step: (update(s, part, means, step), setattr(Learner, "_update", die))
        return updates(self, batch, step=step, constant_length=constant_length)

    def write_or_die(folder: Path) -> Path:
        if folder.name.endswith(f"step-{wanted:06d}"):
            die()
        return write_manifest(folder)

    def record_or_die(path: Path, kept: record.Record) -> None:
        if path.stem == step:
            die()
        write_record(path, kept)

    write_record, wanted = record.write, int(step) if step.isdigit() else 0
    if kind == "update":
        Learner.update = update_or_die
    elif kind == "checkpoint":
        checkpoint.write_manifest = write_or_die
    elif kind == "evaluation":
        record.write = record_or_die
    train(load_recipe(recipe), recipe_path=recipe, resume="--resume" in sys.argv)


if __name__ == "__main__":
    main()
