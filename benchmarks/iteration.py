"""Does iterating help, most of all in the first round (DeepSeekMath, Figure 6)? Two rounds or more of `sharpen iterate`, several seeds.

    python benchmarks/iteration.py --seeds 8 --jobs 2 --output runs/iteration

Each seed is a process of one thread with its own folder: what was stopped goes on. The gain of a round is the change of held-out Pass@1
that it made; the claim is judged seed by seed: gain of round 1 − gain of round 2, with a 95 % interval by Student's t over seeds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from common import environment, finish, settings_of, table

from sharpen.pipelines.compare_methods import Paired, margin


def run(recipe: str, folder: Path, seed: int, overrides: list[str]) -> Path:
    """One seed to its end; what it said lies beside its folder."""
    settings = [f"policy.settings.seed={seed}", f"reward_model.settings.seed={seed}", f"output={json.dumps(str(folder))}"]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".log").open("a", encoding="utf-8") as log:
        command = [sys.executable, "-m", "sharpen.cli", "iterate", recipe, *settings, *overrides]
        subprocess.run(command, check=True, stdout=log, stderr=subprocess.STDOUT, env=os.environ | {"OMP_NUM_THREADS": "1"})
    return folder


def word_of(differences: list[float]) -> str:
    """What the seeds say of a difference that is claimed to be above 0."""
    mean = sum(differences) / len(differences)
    return Paired(name="", better="", than="", metric="", differences=differences, mean=mean, margin=margin(differences)).word


def told(values: list[float], scale: float = 100.0) -> str:
    return f"{scale * sum(values) / len(values):+.1f} ± {scale * margin(values):.1f}"


def gains(found: list[dict[str, Any]]) -> list[list[float]]:
    """The change of held-out Pass@1 of each round, [rounds][seeds]."""
    rounds = range(len(found[0]["rounds"]))
    return [[one["rounds"][k]["held_out"]["change"]["pass_at_k"]["1"]["value"] for one in found] for k in rounds]


def reward_rows(found: list[dict[str, Any]]) -> list[list[str]]:
    """Accuracy, and right above wrong of the same problem, of each reward model and of the one before it, on the same fresh samples."""
    rows = []
    for k in range(len(found[0]["reward_models"])):
        row = [str(k)]
        for name in ("accuracy", "within"):
            for key in ("the_one_before_on_them", "on_fresh_samples"):
                known = [one["reward_models"][k][key][name]["value"] for one in found if one["reward_models"][k][key] is not None]
                row.append(f"{sum(known) / len(known):.3f} ± {margin(known):.3f}" if known else "–")
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("overrides", nargs="*", help="of `sharpen iterate`, such as policy.settings.training.steps=40")
    parser.add_argument("--recipe", default="iterative")
    parser.add_argument("--seeds", type=int, default=8, help="1 to this one")
    parser.add_argument("--jobs", type=int, default=1, help="seeds at once")
    parser.add_argument("--output", type=Path, default=Path("runs/iteration"))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    seeds = range(1, options.seeds + 1)
    with ThreadPoolExecutor(options.jobs) as pool:
        folders = list(pool.map(lambda seed: run(options.recipe, options.output / f"seed-{seed}", seed, options.overrides), seeds))
    found = [json.loads((folder / "rounds.json").read_text(encoding="utf-8")) for folder in folders]
    by_round = gains(found)
    first_kl = [[one["rounds"][k]["first_step"].get("kl", 0.0) for one in found] for k in range(len(by_round))]
    rows = [[str(k + 1), told(gain), f"{max(first_kl[k]):g}"] for k, gain in enumerate(by_round)]
    table("Rounds", ["round", "gain of Pass@1, points", "largest KL at its first step"], rows)
    headings = ["after rounds", "accuracy: the one before", "refitted", "same problem: the one before", "refitted"]
    table("Reward models on fresh samples of the newest policy", headings, reward_rows(found))
    claims: dict[str, Any] = {}
    if len(by_round) > 1:
        differences = [one - two for one, two in zip(by_round[0], by_round[1], strict=True)]
        claims["iteration-helps-once: the first round gains more than the second"] = differences
    claims["all rounds together gain"] = [sum(column) for column in zip(*by_round, strict=True)]
    for name, values in claims.items():
        print(f"{name}: {told(values)} points: {word_of(values)}")
    results = {"gains": by_round, "claims": {name: {"differences": values, "word": word_of(values)} for name, values in claims.items()}}
    finish({"settings": settings_of(options), "results": results, "environment": environment(1, "cpu")}, options.json)


if __name__ == "__main__":
    main()
