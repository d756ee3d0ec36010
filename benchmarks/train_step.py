"""Seconds and peak memory of one GRPO update on given completions: sharpen's learner and a padded Hugging Face step.

    python benchmarks/train_step.py --json train.json

The same prompts, made-up completions and rewards, β and learning rate. An update is the reference's forward pass, forward, backward and
the optimiser's step. Each run of each side is a process of its own, so that their memory is apart, and the sides take turns. Both norms
of the first gradient are printed: equal up to rounding, or the two did not do the same work.
"""

from __future__ import annotations

import statistics
import sys
from typing import Any

import common
from common import alternate, peak_memory, ratio, report, seconds


def of_sharpen(args: Any) -> dict[str, Any]:
    """Its updates."""
    import ours

    loaded = ours.load_model(args)
    prompts = common.prompts(loaded.tokenizer, args.problems)
    sampled, rewards = ours.made_up(prompts, args.group, args.new, loaded.model.config.vocab_size)
    batch = ours.batch_of(prompts, sampled, rewards)
    sequence = max(len(p) for p in prompts) + args.new
    learner = ours.learner_of(loaded, beta=args.beta, learning_rate=args.learning_rate, sequence=sequence, token_budget=args.token_budget)
    first = learner.learn(batch, step=1, constant_length=args.new)
    times = [seconds(lambda: learner.learn(batch, step=2, constant_length=args.new), args.device) for _ in range(args.updates)]
    return {"seconds": times, "grad_norm": first["grad_norm"], "peak": peak_memory(args.device), "token_budget": learner.token_budget}


def of_padded(args: Any) -> dict[str, Any]:
    """The padded step's, of the model as sharpen loads it."""
    import ours
    import torch
    from padded_step import PaddedStep

    loaded = ours.load_model(args)
    prompts = common.prompts(loaded.tokenizer, args.problems)
    sampled, rewards = ours.made_up(prompts, args.group, args.new, loaded.model.config.vocab_size)
    completions = [[one.tokens for one in members] for members in sampled]
    step = PaddedStep(loaded.model, micro_batch=args.micro_batch, beta=args.beta, learning_rate=args.learning_rate)
    given = torch.tensor(rewards)
    norm = step.update(prompts, completions, given)
    times = [seconds(lambda: step.update(prompts, completions, given), args.device) for _ in range(args.updates)]
    return {"seconds": times, "grad_norm": norm, "peak": peak_memory(args.device)}


def limits(args: Any) -> dict[str, Any]:
    """The least time of an update: the operations of its linear layers at the fastest matrix product seen."""
    import ours
    import roofline

    loaded = ours.load_model(args)
    lengths = [len(p) for p in common.prompts(loaded.tokenizer, args.problems)]
    rate = roofline.matmul_rate(loaded.model, args.token_budget or 2048, args.device)
    shape: dict[str, Any] = {"group": args.group, "new": args.new, "reference": bool(args.beta)}
    operations = roofline.update_operations(loaded.model, lengths, **shape)
    attention = roofline.attention_operations(loaded.model, lengths, **shape)
    return {
        "operations_per_second": rate,
        "operations": operations,
        "attention_operations": attention,
        "seconds": operations / rate,
        "environment": common.environment(args.threads, args.device),
    }


WORKERS = {"sharpen": of_sharpen, "padded": of_padded, "limits": limits}


def main() -> int:
    parser = common.parser(__doc__)
    parser.add_argument("--beta", type=float, default=0.04, help="of the KL term")
    parser.add_argument("--learning-rate", type=float, default=1e-6)
    parser.add_argument("--micro-batch", type=int, default=16, help="sequences of one forward pass of the padded step")
    parser.add_argument("--token-budget", type=int, default=0, help="positions of one forward pass of sharpen's; 0: as it chooses")
    parser.add_argument("--updates", type=int, default=2, help="timed updates of a process, after one that is not")
    parser.add_argument("--worker", choices=WORKERS, help="for the benchmark's own use")
    args = parser.parse_args()
    if args.worker:
        report(WORKERS[args.worker](args))
        return 0
    sides = ("sharpen", "padded")
    found = alternate({name: lambda name=name: common.in_worker(args, name) for name in sides}, args.runs)
    limit = common.in_worker(args, "limits")
    times = {name: [statistics.median(run["seconds"]) for run in found[name]] for name in sides}
    peaks = {name: common.largest([run["peak"] for run in found[name]], args.device) for name in sides}
    norms = {name: found[name][0]["grad_norm"] for name in sides}
    median = {name: statistics.median(times[name]) for name in sides}
    faster = ratio(times["sharpen"], times["padded"])
    rows = [[name, f"{median[name]:.3f}", f"{limit['seconds'] / median[name]:.0%}", common.human(peaks[name]), f"{norms[name]:.5f}"]
            for name in sides]  # fmt: skip
    title = f"One update of {args.problems} x {args.group} completions of {args.new} tokens, {args.dtype}"
    common.table(title, ["", "seconds", "of the roofline", "peak memory", "gradient norm"], rows)
    print(f"The padded step takes {faster} times as long and {peaks['padded'] / peaks['sharpen']:.2f} times the memory.")
    print(f"Roofline: {limit['operations'] / 1e12:.3g} TFLOP at {limit['operations_per_second'] / 1e12:.3g} TFLOP/s.")
    record = {
        "environment": limit["environment"],
        "settings": common.settings_of(args),
        "results": {"runs": found, "seconds": median, "ratio": faster, "peak_bytes": peaks, "roofline": limit},
    }
    common.finish(record, args.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
