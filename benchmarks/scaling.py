"""How cost grows with the work: completions of a prompt, tokens of a completion, prompts; for the rollout and for an update apart.

    python benchmarks/scaling.py
    python benchmarks/scaling.py --axes group --group-sizes 4 8 --runs 1       # a quick look

One size is varied and the others stay at --problems, --group and --new. The exponent is the slope of log seconds against log size by least
squares over all points, and beside it stands the exponent of the work itself, counted or measured apart: for a rollout the roofline of its
decode steps (linear layers at that many rows, and reads of the key-value cache), for an update the operations of linear layers and
attention. Below 1, a part of the cost is shared: a decode step reads all weights for however few rows, a group its prompt once. Above 1 in
the number of tokens, it is attention, which looks back at every earlier token; its share of the work is written beside each point. Where
the seconds' exponent is above that of the work, the code loses by size; where it is below, small sizes carry costs that do not grow.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from typing import Any

import common
from common import exponent, seconds

WORK = ("rollout", "update")


def rollout_seconds(args: Any, loaded: Any, shape: tuple[int, int, int]) -> list[float]:
    """Seconds of sampling, run by run."""
    import ours

    problems, group, new = shape
    prompts = common.prompts(loaded.tokenizer, problems)
    engine = ours.engine_of(loaded, max_rows=args.max_rows)
    ours.sample(engine, prompts, group, min(new, 8), step=0)
    steps = iter(range(1, args.runs + 1))
    return [seconds(lambda: ours.sample(engine, prompts, group, new, step=next(steps)), args.device) for _ in range(args.runs)]


def update_seconds(args: Any, loaded: Any, learner: Any, shape: tuple[int, int, int]) -> list[float]:
    """Seconds of one update on made-up completions, run by run."""
    import ours

    problems, group, new = shape
    prompts = common.prompts(loaded.tokenizer, problems)
    batch = ours.batch_of(prompts, *ours.made_up(prompts, group, new, loaded.model.config.vocab_size))
    return [seconds(lambda: learner.learn(batch, step=1, constant_length=new), args.device) for _ in range(args.runs)]


def work_of(args: Any, module: Any, lengths: Sequence[int], shape: tuple[int, int, int], work: str) -> tuple[float, float]:
    """The work itself (seconds of a rollout's roofline, operations of an update), and attention's share of it."""
    import roofline

    _, group, new = shape
    if work == "rollout":
        limit = roofline.decode_limit(module, lengths, group, new, max_rows=args.max_rows, device=args.device)
        return new * limit["step_seconds"], limit["cache_seconds"] / limit["step_seconds"]
    reference = bool(args.beta)
    attention = roofline.attention_operations(module, lengths, group, new, reference=reference)
    total = attention + roofline.update_operations(module, lengths, group, new, reference=reference)
    return total, attention / total


def shapes_of(args: Any, axis: str) -> list[tuple[int, int, int]]:
    """(problems, group, new) of each point of an axis."""
    sizes = {"group": args.group_sizes, "new": args.new_sizes, "problems": args.problem_sizes}[axis]
    points = [{"problems": args.problems, "group": args.group, "new": args.new} | {axis: size} for size in sorted(sizes)]
    return [(point["problems"], point["group"], point["new"]) for point in points]


def measure(args: Any, loaded: Any, axis: str, work: str) -> dict[str, Any]:
    """The points of one axis, and their exponent."""
    import ours

    at = {"problems": 0, "group": 1, "new": 2}[axis]
    shapes = shapes_of(args, axis)
    lengths = [len(p) for p in common.prompts(loaded.tokenizer, max(shape[0] for shape in shapes))]
    learner = None
    if work == "update":
        longest = max(lengths) + max(shape[2] for shape in shapes)
        learner = ours.learner_of(loaded, beta=args.beta, learning_rate=1e-6, sequence=longest, token_budget=args.token_budget)
        update_seconds(args, loaded, learner, shapes[0])  # makes the optimiser's moments
    points = []
    for shape in shapes:
        times = rollout_seconds(args, loaded, shape) if work == "rollout" else update_seconds(args, loaded, learner, shape)
        amount, share = work_of(args, loaded.model, lengths[: shape[0]], shape, work)
        points.append(
            {
                "size": shape[at],
                "seconds": times,
                "median": statistics.median(times),
                "completion_tokens": shape[0] * shape[1] * shape[2],
                "work": amount,
                "attention_share": share,
            }
        )
    sizes = [p["size"] for p in points]
    slopes = {
        name: exponent(sizes, [p[key] for p in points]) if len(points) > 1 else None
        for name, key in (("exponent", "median"), ("work_exponent", "work"))
    }
    return {"kind": work, "axis": axis, **slopes, "points": points}


def show(args: Any, found: dict[str, Any]) -> None:
    """Print one axis."""
    others = ", ".join(f"{name} {getattr(args, name)}" for name in ("problems", "group", "new") if name != found["axis"])
    slope = "one point"
    if found["exponent"] is not None:
        slope = f"exponent {found['exponent']:.2f}, of the work {found['work_exponent']:.2f}"
    rows = [
        [
            p["size"],
            f"{p['median']:.3f}",
            f"{min(p['seconds']):.3f} to {max(p['seconds']):.3f}",
            f"{p['completion_tokens'] / p['median']:.0f}",
            f"{p['attention_share']:.0%}",
        ]
        for p in found["points"]
    ]
    title = f"{found['kind']} against {found['axis']} ({others}): {slope}"
    common.table(title, [found["axis"], "seconds", "of runs", "tokens/s", "attention"], rows)


def main() -> int:
    parser = common.parser(__doc__)
    parser.add_argument("--axes", nargs="+", choices=["group", "new", "problems"], default=["group", "new", "problems"])
    parser.add_argument("--work", nargs="+", choices=WORK, default=list(WORK))
    parser.add_argument("--group-sizes", type=int, nargs="+", default=[4, 8, 16, 32])
    parser.add_argument("--new-sizes", type=int, nargs="+", default=[64, 128, 256, 512, 1024])
    parser.add_argument("--problem-sizes", type=int, nargs="+", default=[2, 4, 8, 16])
    parser.add_argument("--max-rows", type=int, default=128, help="completions that are decoded at once")
    parser.add_argument("--token-budget", type=int, default=0, help="positions of one forward pass of an update; 0: as sharpen chooses")
    parser.add_argument("--beta", type=float, default=0.04, help="of the KL term")
    args = parser.parse_args()
    import ours

    loaded = ours.load_model(args)
    results = []
    for work in args.work:
        for axis in args.axes:
            results.append(measure(args, loaded, axis, work))
            show(args, results[-1])
    record = {"environment": common.environment(args.threads, args.device), "settings": common.settings_of(args), "results": results}
    common.finish(record, args.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
