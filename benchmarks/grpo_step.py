"""Seconds and peak memory of one whole GRPO step: sharpen and TRL's GRPOTrainer.

    python benchmarks/grpo_step.py --trl-python VENV/bin/python --trl-micro-batch 8 16 32 64 --json step.json

A step samples problems x group completions of exactly --new tokens, scores them by the same cheap reward, reads the reference, makes one
update and hands the weights to whatever samples next. Each run of each side is a process of its own (a step to warm up, then --steps that
are timed), and the sides take turns. TRL runs at each micro-batch size once, and then at its fastest.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import common
from common import alternate, peak_memory, ratio, report, synchronise


def of_sharpen(args: Any) -> dict[str, Any]:
    """Its steps, and the parts that they are made of."""
    import ours

    from sharpen.rollout.weights import Weights

    loaded = ours.load_model(args)
    engine = ours.engine_of(loaded)
    stories = [common.prompts(loaded.tokenizer, args.problems, first=args.problems * step) for step in range(args.steps + 1)]
    longest = max(len(p) for prompts in stories for p in prompts) + args.new
    learner = ours.learner_of(loaded, beta=args.beta, learning_rate=args.learning_rate, sequence=longest, token_budget=args.token_budget)
    parts: dict[str, list[float]] = {"rollout": [], "update": [], "weights": []}
    total: list[float] = []

    def clock() -> float:
        synchronise(args.device)
        return time.perf_counter()

    for step in range(args.steps + 1):
        start = clock()
        # Written again although `stories` has them: TRL applies its chat template within the step too.
        prompts = common.prompts(loaded.tokenizer, args.problems, first=args.problems * step)
        sampled = ours.sample(engine, prompts, args.group, args.new, step=step)
        rewards = [[common.reward(loaded.tokenizer.decode(list(one.tokens))) for one in members] for members in sampled]
        rolled = clock()
        learner.learn(ours.batch_of(prompts, sampled, rewards), step=step + 1, constant_length=args.new)
        end = clock()
        total.append(end - start)
        # Laying the weights out is a part of every rollout; once more, by itself, to see what it takes.
        Weights(loaded.model, engine.decoder)
        for name, taken in zip(parts, (rolled - start, end - rolled, clock() - end), strict=True):
            parts[name].append(taken)
    return {
        "seconds": total[1:],
        "warm_up_seconds": total[0],
        "parts": {name: times[1:] for name, times in parts.items()},
        "peak": peak_memory(args.device),
    }


def about(args: Any) -> dict[str, Any]:
    """The environment, and where the model lies, so that this process need not load anything."""
    import ours  # noqa: F401  (that a model can be loaded at all)

    from sharpen.models.loading import find_folder

    return {"folder": str(find_folder(args.model)), "environment": common.environment(args.threads, args.device)}


def trl_command(args: Any, folder: str, micro_batch: int) -> list[str]:
    """What runs TRL's side."""
    passed = ("problems", "group", "new", "steps", "threads", "device", "dtype", "beta", "learning_rate")
    given = [part for name in passed for part in (f"--{name.replace('_', '-')}", str(getattr(args, name)))]
    return [args.trl_python, common.here("trl_worker.py"), folder, *given, "--micro-batch", str(micro_batch)]


def best_micro_batch(args: Any, folder: str) -> tuple[int, dict[int, float | str]]:
    """TRL's fastest micro-batch size of those asked for, and the seconds of a step at each, or why there are none."""
    total = args.problems * args.group
    sizes = [size for size in args.trl_micro_batch if size <= total and total % size == 0] or [total]
    if len(sizes) == 1:
        return sizes[0], {}
    tried: dict[int, float | str] = {}
    for size in sizes:
        try:
            tried[size] = statistics.median(common.run_worker(trl_command(args, folder, size), threads=args.threads)["seconds"])
        except RuntimeError as error:  # out of memory, most likely: the others may do
            tried[size] = str(error)[-300:]
    done = {size: taken for size, taken in tried.items() if isinstance(taken, float)}
    if not done:
        raise RuntimeError(f"TRL ran at none of the micro-batch sizes: {tried}")
    return min(done, key=lambda size: done[size]), tried


def show(args: Any, results: dict[str, Any]) -> None:
    """Print the figures."""
    rows = []
    for name, times in results["seconds"].items():
        taken = statistics.median(times)
        tokens = args.problems * args.group * args.new / taken
        spread = f"{min(times):.2f} to {max(times):.2f}"
        rows.append([name, f"{taken:.2f}", spread, f"{tokens:.1f}", common.human(results["peak_bytes"][name])])
    title = f"One GRPO step of {args.problems} x {args.group} completions of {args.new} tokens, {args.dtype}"
    common.table(title, ["", "seconds", "of runs", "completion tokens/s", "peak memory"], rows)
    parts = ", ".join(f"{name} {taken:.2f}" for name, taken in results["parts"].items())
    print(f"sharpen's seconds: {parts}")
    if "ratio" in results:
        print(f"TRL takes {results['ratio']} times as long and {results['memory_ratio']:.2f} times the memory.")
    for size, taken in results.get("tried_micro_batches", {}).items():
        print(f"TRL at micro-batches of {size}: {taken if isinstance(taken, str) else f'{taken:.2f} s'}")


def main() -> int:
    parser = common.parser(__doc__)
    parser.add_argument("--trl-python", help="an interpreter that has TRL; sharpen runs alone without one")
    parser.add_argument("--trl-micro-batch", type=int, nargs="+", default=[16], help="sequences of TRL's forward pass; its best counts")
    parser.add_argument("--beta", type=float, default=0.04, help="of the KL term")
    parser.add_argument("--learning-rate", type=float, default=1e-6)
    parser.add_argument("--token-budget", type=int, default=0, help="positions of one forward pass of sharpen's; 0: as it chooses")
    parser.add_argument("--steps", type=int, default=2, help="timed steps of a process, after one that is not")
    parser.add_argument("--worker", choices=["sharpen", "about"], help="for the benchmark's own use")
    args = parser.parse_args()
    if args.worker:
        report(of_sharpen(args) if args.worker == "sharpen" else about(args))
        return 0
    known = common.in_worker(args, "about")
    sides: dict[str, Callable[[], dict[str, Any]]] = {"sharpen": lambda: common.in_worker(args, "sharpen")}
    results: dict[str, Any] = {}
    if args.trl_python:
        size, results["tried_micro_batches"] = best_micro_batch(args, known["folder"])
        sides["trl"] = lambda: common.run_worker(trl_command(args, known["folder"], size), threads=args.threads)
        results["trl_micro_batch"] = size
    else:
        print("TRL is left out: no --trl-python was given.")
    found = alternate(sides, args.runs)
    results["runs"] = found
    results["seconds"] = {name: [statistics.median(run["seconds"]) for run in runs] for name, runs in found.items()}
    results["peak_bytes"] = {name: common.largest([run["peak"] for run in runs], args.device) for name, runs in found.items()}
    parts = {name: [statistics.median(run["parts"][name]) for run in found["sharpen"]] for name in found["sharpen"][0]["parts"]}
    results["parts"] = {name: statistics.median(times) for name, times in parts.items()}
    if "trl" in found:
        results["ratio"] = ratio(results["seconds"]["sharpen"], results["seconds"]["trl"])
        results["memory_ratio"] = results["peak_bytes"]["trl"] / results["peak_bytes"]["sharpen"]
    show(args, results)
    common.finish({"environment": known["environment"], "settings": common.settings_of(args), "results": results}, args.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
