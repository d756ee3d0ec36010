"""How good are labels of steps? Beside the rule on generated arithmetic, and beside people's marks of the first mistake.

    python benchmarks/step_labels.py                       # generated arithmetic, completed by the tiny model
    SHARPEN_DATA=... python benchmarks/step_labels.py --people --solutions 16 --model embedded

On generated arithmetic the tiny model writes the solutions and completes them; the truth is the rule (a step is right when its equation
holds, and every step after a wrong one is wrong). People marked BIG-Bench Mistake and MR-GSM8K: the truth is a right label before the first
mistake, a wrong one at it, and none after it.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from common import environment, finish, settings_of, table

from sharpen.evaluation.intervals import Estimate
from sharpen.evaluation.label_quality import LabelQuality, Labels, quality
from sharpen.pipelines import parts
from sharpen.pipelines.label_steps import judge
from sharpen.pipelines.step_sources import Reader
from sharpen.problems.multi_step import LEVELS, MultiStepSource, generate
from sharpen.problems.templates import Template
from sharpen.rewards.splitters import split
from sharpen.rewards.step_files import Marked, read_marks
from sharpen.rewards.step_labels import Answered, Cost, MonteCarlo, StepLabel, by_completion, by_rule
from sharpen.rollout.engine import Sampling
from sharpen.rollout.torch_engine import TorchEngine

Row = Sequence[StepLabel]
KINDS = ("hard", "soft")


def powers(n: int) -> list[int]:
    return [k for k in (1, 2, 4, 8, 16, 32, 64) if k <= n]


def values(found: Sequence[Row]) -> list[Labels]:
    return [[label.value for label in row] for row in found]


def by_rollouts(found: Sequence[Row], n: int) -> dict[str, list[Labels]]:
    """The labels that the first 1, 2, 4, ... continuations give."""
    return {
        f"{kind}, n = {k}": values([[label.first(k, kind) for label in row] for row in found])  # type: ignore[arg-type]
        for kind in KINDS
        for k in powers(n)
    }


def without_last(rows: Sequence[Labels]) -> list[Labels]:
    """All steps but the last, whose label is the verdict on both sides."""
    return [row[:-1] for row in rows]


def sampled_solutions(loaded: Any, rollout: Any, problems: int, each: int, seed: int) -> list[Answered]:
    """Solutions of held-out problems by the model itself, with their verdicts."""
    source = MultiStepSource(split="held_out", count=problems, levels=list(LEVELS), seed=seed)
    groups = rollout.sample(generate(source), each, Sampling(max_new_tokens=64), stream="benchmark")
    answered = [
        (group, f"{i}", completion, tuple(split(completion, rollout.decode)))
        for group in groups
        for i, completion in enumerate(group.completions)
        if completion.finish_reason == "stop"
    ]
    verdicts = judge([(group.problem, completion.text) for group, _, completion, _ in answered])
    return [
        Answered(key=key, problem=group.problem, prompt_tokens=group.prompt_tokens, completion=completion, steps=steps, verdict=verdict)
        for (group, key, completion, steps), verdict in zip(answered, verdicts, strict=True)
    ]


def complete(loaded: Any, rollout: Any, some: Sequence[Answered], settings: MonteCarlo, *, share: bool = True) -> tuple[list[Row], Cost]:
    engine = TorchEngine(loaded.model, loaded.stop_ids, share_prefixes=share)
    found, cost = by_completion(some, engine, rollout.decode, judge, settings)
    return list(found), cost


def generated(args: argparse.Namespace) -> dict[str, Any]:
    """The tiny model's own solutions: Monte Carlo labels beside the rule."""
    parts.ensure_model(args.tiny, _Told())
    loaded, rollout = parts.sampling_model(args.tiny, Template(), seed=args.seed, dtype="float32")
    some = sampled_solutions(loaded, rollout, args.problems, 2, args.seed)
    texts = [[step.text for step in one.steps] for one in some]
    true = values([by_rule(row, one.verdict, after_error="wrong") for row, one in zip(texts, some, strict=True)])
    found, cost = complete(loaded, rollout, some, MonteCarlo(rollouts=args.tiny_rollouts, max_new_tokens=64, seed=args.seed))
    said = by_rollouts(found, args.tiny_rollouts)
    said["every step right"] = [[1.0] * len(row) for row in true]
    said["every step has the verdict"] = [[one.verdict] * len(one.steps) for one in some]
    costs = {"beginnings shared": cost}
    for share, name in ((False, "each read by itself"), (True, "beginnings shared, again")):
        settings = MonteCarlo(rollouts=args.tiny_rollouts, max_new_tokens=64, seed=args.seed)
        costs[name] = complete(loaded, rollout, some, settings, share=share)[1]
    result = {name: quality(without_last(rows), without_last(true), seed=args.seed) for name, rows in said.items()}
    show("Generated arithmetic, the tiny model's solutions, beside the rule (all steps but the last)", result)
    show_costs(costs)
    right = sum(one.verdict == 1.0 for one in some) / len(some)
    print(f"Of {len(some)} solutions {right:.1%} are right.")
    return {"right": right, "quality": plain(result), "cost": {name: asdict(one) for name, one in costs.items()}}


def marked_sets(folder: Path) -> dict[str, list[Marked]]:
    """Solutions that people marked, by the name of the set."""
    bench = read_marks(folder / "steps" / "bigbench_mistake.jsonl")
    arithmetic = [one for one in bench if one.id.startswith("multistep_arithmetic")]
    return {
        "BIG-Bench, arithmetic": arithmetic,
        "BIG-Bench, logic": [one for one in bench if not one.id.startswith("multistep_arithmetic")],
        "MR-GSM8K": read_marks(folder / "steps" / "mr_gsm8k_subset.jsonl"),
    }


def people(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The rule, and Monte Carlo by a model, beside people's marks."""
    sets = marked_sets(folder)
    result: dict[str, Any] = {}
    for name, rows in sets.items():
        true = [[label.value for label in one.labels] for one in rows]
        said = {
            "rule": values([by_rule(one.texts) for one in rows]),
            "every step right": [[1.0] * len(row) for row in true],
            "every step wrong": [[0.0] * len(row) for row in true],
        }
        found = {way: quality(labels, true, seed=args.seed) for way, labels in said.items()}
        show(f"{name}, beside people's first mistake", found)
        result[name] = {"quality": plain(found)}
    if args.solutions:
        loaded, rollout = parts.sampling_model(args.model, Template(), seed=args.seed, dtype=args.dtype)
        reader = Reader(tokenizer=loaded.tokenizer, decode=rollout.decode, stop_ids=loaded.stop_ids, render=rollout.render)
        for name in ("BIG-Bench, arithmetic", "MR-GSM8K"):
            rows = [one for one in sets[name] if one.gold is not None]
            rows = [rows[i * len(rows) // args.solutions] for i in range(min(args.solutions, len(rows)))]
            some = [reader.marked(one, number) for number, one in enumerate(rows)]
            settings = MonteCarlo(rollouts=args.rollouts, max_new_tokens=args.new, seed=args.seed)
            labelled, cost = complete(loaded, rollout, some, settings)
            true = [[label.value for label in one.labels] for one in rows]
            said = by_rollouts(labelled, args.rollouts)
            said["rule, the same solutions"] = values([by_rule(one.texts) for one in rows])
            said["every step wrong"] = [[0.0] * len(row) for row in true]
            found = {way: quality(labels, true, seed=args.seed) for way, labels in said.items()}
            show(f"{name}, completed by {args.model}, beside people's first mistake", found)
            show_costs({args.model: cost})
            outcomes = [outcome for row in labelled for label in row for outcome in label.outcomes if outcome is not None]
            share = sum(outcomes) / len(outcomes)
            print(f"{share:.1%} of the continuations are right.")
            result[name]["completed"] = {"quality": plain(found), "cost": asdict(cost), "right": share}
    return result


class _Told:
    """Prints what making the tiny model tells."""

    def phase(self, name: str, total: int, unit: str = "completions") -> None:
        print(f"{name} ({total} {unit})")

    def advance(self, count: int) -> None: ...

    def step(self, step: int, total: int, metrics: Mapping[str, float], seconds: Mapping[str, float]) -> None: ...

    def notice(self, text: str) -> None:
        print(text)


def cell(one: Estimate) -> str:
    return "–" if one.value != one.value else f"{100 * one.value:.0f} ({100 * one.low:.0f}–{100 * one.high:.0f})"


def show(title: str, found: Mapping[str, LabelQuality]) -> None:
    columns = ["labels", "coverage", "accuracy", "wrong: precision", "wrong: recall", "first error"]
    figures = ("coverage", "accuracy", "precision", "recall", "first_error")
    some = next(iter(found.values()))
    table(
        f"{title}: {some.solutions} solutions, % with 95 % intervals",
        columns,
        [(name, *(cell(getattr(one, figure)) for figure in figures)) for name, one in found.items()],
    )


def show_costs(costs: Mapping[str, Cost]) -> None:
    columns = ["", "steps", "continuations", "tokens read", "tokens written", "seconds"]
    rows = [(name, c.steps, c.rollouts, f"{c.read:,}", f"{c.written:,}", f"{c.seconds:.1f}") for name, c in costs.items()]
    table("Cost", columns, rows)


def plain(found: Mapping[str, LabelQuality]) -> dict[str, Any]:
    return {
        name: {key: value.to_dict() if isinstance(value := getattr(one, key), Estimate) else value for key in one.__dataclass_fields__}
        for name, one in found.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("SHARPEN_DATA"), help="the folder of public data sets, for --people")
    parser.add_argument("--people", action="store_true", help="beside people's marks, in place of generated arithmetic")
    parser.add_argument("--tiny", default="tiny", help="writes and completes generated arithmetic")
    parser.add_argument("--problems", type=int, default=180, help="generated problems, two solutions each")
    parser.add_argument("--tiny-rollouts", type=int, default=16, help="continuations of each step")
    parser.add_argument("--model", default="embedded", help="completes solutions that people marked")
    parser.add_argument("--solutions", type=int, default=16, help="of each set that are completed; 0: none")
    parser.add_argument("--rollouts", type=int, default=8, help="continuations of each of their steps")
    parser.add_argument("--new", type=int, default=160, help="limit of a continuation, in tokens")
    parser.add_argument("--dtype", default="auto", help="of the model's weights")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1, help="of matrix products")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    args = parser.parse_args()
    if args.people and args.data is None:
        parser.error("--people needs --data, or the environment variable SHARPEN_DATA")
    parts.set_threads(args.threads)
    results = people(args, Path(args.data)) if args.people else generated(args)
    finish({"settings": settings_of(args), "results": results, "environment": environment(args.threads, "cpu")}, args.json)


if __name__ == "__main__":
    main()
