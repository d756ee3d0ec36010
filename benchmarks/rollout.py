"""Completion tokens a second: sharpen's engine, transformers' `generate` and vLLM.

    python benchmarks/rollout.py --grid
    python benchmarks/rollout.py --vllm-python VENV/bin/python --json rollout.json

The same prompts, exactly --new tokens a completion, temperature 1, the same threads. A peer's run is always beside one of ours. The share
of the roofline is the time of a decode step's matrix products and of one read of the key-value cache, over the time that it took.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import common
from common import MARK, Ratio, alternate, ratio, seconds

GRID = ((8, 8, 64), (8, 8, 256), (4, 4, 64), (4, 4, 256))
PEERS = ("transformers", "vllm")


class Vllm:
    """vLLM in its own process. It spins while it waits for work, so between its runs the whole process group is stopped."""

    def __init__(self, python: str, settings: dict[str, Any], threads: int) -> None:
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  (kept as long as the process)
        # The cores that the others have too: left to itself it keeps one free for its scheduler.
        cores = sorted(os.sched_getaffinity(0))[:threads] if hasattr(os, "sched_getaffinity") else range(threads)
        chosen = {"VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cores)), "VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_LOGGING_LEVEL": "WARNING"}
        self.process = subprocess.Popen(
            [python, common.here("vllm_worker.py")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True, start_new_session=True,
            env=chosen | common.environment_of_worker(threads),
        )  # fmt: skip
        self.start_seconds = self._ask(settings)["start_seconds"]
        self._signal(signal.SIGSTOP)

    def seconds(self, prompts: Sequence[tuple[int, ...]], group: int, new: int) -> float:
        """How long it takes for these completions."""
        self._signal(signal.SIGCONT)
        answer = self._ask({"prompts": [list(p) for p in prompts], "group": group, "new": new})
        self._signal(signal.SIGSTOP)
        assert answer["tokens"] == len(prompts) * group * new, f"vLLM wrote {answer['tokens']} tokens"
        return float(answer["seconds"])

    def close(self) -> None:
        """End it and what it started."""
        if self.process.poll() is None:
            self._signal(signal.SIGKILL)
            self.process.wait()
        self.errors.close()

    def _ask(self, job: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        print(json.dumps(job), file=self.process.stdin, flush=True)
        for line in self.process.stdout:
            if line.startswith(MARK):
                return dict(json.loads(line.removeprefix(MARK)))
        self.errors.seek(0)
        raise RuntimeError(f"vLLM ended with {self.process.wait()}:\n{self.errors.read()[-3000:]}")

    def _signal(self, number: int) -> None:
        os.killpg(self.process.pid, number)


def generate_seconds(loaded: Any, prompts: Sequence[tuple[int, ...]], group: int, new: int, device: str) -> float:
    """How long transformers' `generate` takes: one batch, padded on the left."""
    import torch

    width = max(len(p) for p in prompts)
    rows = [p for p in prompts for _ in range(group)]
    ids = torch.tensor([(loaded.pad_id,) * (width - len(p)) + p for p in rows], device=device)
    mask = torch.tensor([(0,) * (width - len(p)) + (1,) * len(p) for p in rows], device=device)
    written: list[int] = []

    @torch.inference_mode()
    def run() -> None:
        out = loaded.model.generate(
            input_ids=ids, attention_mask=mask, do_sample=True, temperature=1.0, top_p=1.0, top_k=0, min_new_tokens=new,
            max_new_tokens=new, pad_token_id=loaded.pad_id,
        )  # fmt: skip
        written.append(out.shape[1] - width)

    taken = seconds(run, device)
    assert written == [new], f"generate wrote {written} tokens a completion"
    return taken


def measure(args: Any, loaded: Any, engine: Any, vllm: Vllm | None, setting: tuple[int, int, int]) -> dict[str, Any]:
    """All figures of one setting: problems, group, new tokens."""
    import ours
    import roofline

    problems, group, new = setting
    prompts = common.prompts(loaded.tokenizer, problems)
    step = iter(range(1_000_000))

    def mine(tokens: int = new) -> float:
        return seconds(lambda: ours.sample(engine, prompts, group, tokens, step=next(step)), args.device)

    peers: dict[str, Callable[[int], float]] = {}
    if "transformers" in args.peers:
        peers["transformers"] = lambda tokens: generate_seconds(loaded, prompts, group, tokens, args.device)
    if vllm is not None:
        peers["vllm"] = lambda tokens: vllm.seconds(prompts, group, tokens)
    for run in (mine, *peers.values()):
        run(min(new, args.warm_up))
    times: dict[str, list[float]] = {"sharpen": []}
    ratios: dict[str, Ratio] = {}
    for name, run in peers.items():
        found = alternate({"sharpen": mine, name: lambda run=run: run(new)}, args.runs)
        times["sharpen"] += found["sharpen"]
        times[name] = found[name]
        ratios[name] = ratio(found["sharpen"], found[name])
    if not peers:
        times["sharpen"] = [mine() for _ in range(args.runs)]
    prefill = statistics.median(mine(1) for _ in range(args.runs))
    limit = roofline.decode_limit(loaded.model, [len(p) for p in prompts], group, new, max_rows=args.max_rows, device=args.device)
    total = statistics.median(times["sharpen"])
    return {
        "setting": "x".join(map(str, setting)),
        "prompt_tokens": [len(p) for p in prompts],
        "seconds": times,
        "tokens_per_second": {name: problems * group * new / statistics.median(each) for name, each in times.items()},
        "ratios": ratios,
        "prefill_seconds": prefill,
        "step_seconds": total / new,
        "roofline": limit,
        "share": limit["step_seconds"] / (total / new),
        "share_without_prefill": limit["step_seconds"] * (new - 1) / (total - prefill) if new > 1 and total > prefill else None,
    }


def show(results: Sequence[dict[str, Any]]) -> None:
    """Print the figures."""
    peers = [name for name in PEERS if name in results[0]["tokens_per_second"]]
    speed = [
        [r["setting"], *(f"{r['tokens_per_second'][name]:.0f}" for name in ("sharpen", *peers)), *(r["ratios"][name] for name in peers)]
        for r in results
    ]
    common.table(
        "Completion tokens a second, by problems x group x new; speed over a peer's: median of pairs [smallest, largest]",
        ["setting", "sharpen", *peers, *(f"over {name}" for name in peers)],
        speed,
    )
    columns = ["setting", "step, ms", "limit, ms", "linear", "cache", "share", "prompts, s", "share after"]
    limits = [
        [
            r["setting"],
            f"{1e3 * r['step_seconds']:.1f}",
            *(f"{1e3 * r['roofline'][key]:.1f}" for key in ("step_seconds", "linear_seconds", "cache_seconds")),
            f"{r['share']:.0%}",
            f"{r['prefill_seconds']:.3f}",
            "" if r["share_without_prefill"] is None else f"{r['share_without_prefill']:.0%}",
        ]
        for r in results
    ]
    common.table("A decode step of sharpen's, prompts counted in, beside the roofline", columns, limits)


def main() -> int:
    parser = common.parser(__doc__)
    parser.add_argument("--grid", action="store_true", help="8x8x64, 8x8x256, 4x4x64 and 4x4x256 instead of one setting")
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS), help="whom to compare with")
    parser.add_argument("--vllm-python", help="an interpreter that has vLLM; left out without one")
    parser.add_argument("--warm-up", type=int, default=8, help="tokens of each side's first, uncounted run")
    parser.add_argument("--max-rows", type=int, default=128, help="completions that sharpen decodes at once")
    args = parser.parse_args()
    import ours

    settings = GRID if args.grid else ((args.problems, args.group, args.new),)
    loaded = ours.load_model(args)
    engine = ours.engine_of(loaded, max_rows=args.max_rows)
    vllm = None
    if "vllm" in args.peers and args.vllm_python:
        longest = max(len(p) for p in common.prompts(loaded.tokenizer, max(s[0] for s in settings))) + max(s[2] for s in settings)
        rows = max(s[0] * s[1] for s in settings)
        told = {"model": str(loaded.path), "dtype": args.dtype, "device": args.device, "max_length": longest, "max_rows": rows}
        vllm = Vllm(args.vllm_python, told, args.threads)
    elif "vllm" in args.peers:
        print("vLLM is left out: no --vllm-python was given.")
    try:
        results = []
        for setting in settings:
            results.append(measure(args, loaded, engine, vllm, setting))
            show(results[-1:])
    finally:
        if vllm is not None:
            vllm.close()
    if len(results) > 1:
        show(results)
    record = {"environment": common.environment(args.threads, args.device), "settings": common.settings_of(args), "results": results}
    if vllm is not None:
        record["vllm_start_seconds"] = vllm.start_seconds
    common.finish(record, args.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
