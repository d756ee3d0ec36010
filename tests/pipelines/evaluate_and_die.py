"""Evaluate a model in a process of its own, and die by SIGKILL at a chosen moment: `evaluate_and_die.py MODEL OUTPUT MOMENT`.

Moments: `never`, `part:N` (that part is being sampled), `written:N` (it is written, and has not its name yet), `end` (before the
figures are written); and `wait:N`: that part is being sampled, and this process says `waiting` and waits to be killed.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import torch

from sharpen.evaluation import in_parts, record
from sharpen.pipelines.evaluate import evaluate_model, source_from_text
from sharpen.tracking import completions


def main() -> None:
    torch.set_num_threads(2)
    model, output, moment = sys.argv[1:]
    kind, _, number = moment.partition(":")
    evaluate, write, replace = in_parts.evaluate, completions.write, os.replace
    done: list[int] = []

    def die(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def evaluate_or_die(*arguments, on_progress, **options):
        if kind == "wait" and len(done) == int(number):
            print("waiting", flush=True)
            time.sleep(600)
        dies = kind == "part" and len(done) == int(number)
        done.append(1)
        return evaluate(*arguments, on_progress=die if dies else on_progress, **options)

    def write_or_die(path, *arguments):
        if kind == "written" and path.stem.endswith(number):
            os.replace = die
        write(path, *arguments)
        os.replace = replace

    in_parts.evaluate, completions.write = evaluate_or_die, write_or_die
    if kind == "end":
        record.write = die
    evaluate_model(
        model, source_from_text("arithmetic:1,2:6"), samples=8, ks=[1, 2, 4, 8], max_new_tokens=12, temperature=0.7, seed=5,
        max_rows=2, output=Path(output),
    )  # fmt: skip


if __name__ == "__main__":
    main()
