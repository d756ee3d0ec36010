"""TRL's GRPOTrainer in an interpreter of its own; `grpo_step.py` starts it. Reports the seconds of each step and the peak memory.

A step is timed from the trainer's `on_step_begin` to its `on_step_end`: generation, rewards, the reference, every micro-batch's forward
and backward, and the optimiser's step; logging is left out. Everything that costs time and is not asked for is off.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from typing import Any

from common import peak_memory, report, reward, story, synchronise


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("model")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--beta", type=float, default=0.04)
    parser.add_argument("--learning-rate", type=float, default=1e-6)
    for name in ("problems", "group", "new", "steps", "threads", "micro-batch"):
        parser.add_argument(f"--{name}", type=int, required=True)
    return parser.parse_args()


def config(args: argparse.Namespace, folder: str) -> Any:
    """TRL's settings for the same step as ours."""
    from trl import GRPOConfig

    total = args.problems * args.group
    return GRPOConfig(
        output_dir=folder,
        per_device_train_batch_size=args.micro_batch,
        gradient_accumulation_steps=total // args.micro_batch,
        num_generations=args.group,
        max_completion_length=args.new,
        generation_kwargs={"min_new_tokens": args.new},
        temperature=1.0,
        beta=args.beta,
        loss_type="grpo",
        learning_rate=args.learning_rate,
        lr_scheduler_type="constant",
        max_steps=args.steps + 1,  # the first warms up
        shuffle_dataset=False,  # the same prompts as ours, step by step
        gradient_checkpointing=False,
        bf16=False,  # the weights are held in the type asked for, so there is nothing to cast
        use_cpu=not args.device.startswith("cuda"),
        logging_steps=args.steps + 1,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
    )


def main() -> None:
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOTrainer

    args = options()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=getattr(torch, args.dtype)).to(args.device)
    rows = [[{"role": "user", "content": story(i)}] for i in range(args.problems * (args.steps + 1))]
    times: list[float] = []
    written: set[int] = set()

    class Clock(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            synchronise(args.device)
            self.start = time.perf_counter()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            synchronise(args.device)
            times.append(time.perf_counter() - self.start)

    def scored(completions: Any, completion_ids: Any, **_: Any) -> list[float]:
        written.update(len(ids) for ids in completion_ids)
        return [reward(completion[0]["content"]) for completion in completions]

    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            model=model, processing_class=AutoTokenizer.from_pretrained(args.model), reward_funcs=scored, args=config(args, folder),
            train_dataset=Dataset.from_dict({"prompt": rows}), callbacks=[Clock()],
        )  # fmt: skip
        trainer.train()
    assert written == {args.new}, f"completions of {args.new} tokens were asked for, and TRL wrote {sorted(written)}"
    report({"seconds": times[1:], "warm_up_seconds": times[0], "peak": peak_memory(args.device)})


if __name__ == "__main__":
    main()
