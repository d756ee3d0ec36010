"""How many honest programs are graded a minute, each by a handful of tests, and what the start of a sandbox costs.

python benchmarks/sandbox.py --json sandbox.json
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sharpen.grading import grade_code
from sharpen.grading.sandbox import Sandbox
from sharpen.records import Problem

PROGRAM = "def solve(n):\n    a, b = 0, 1\n    for _ in range(n):\n        a, b = b, a + b\n    return a\n"
VALUES = {1: 1, 10: 55, 20: 6765, 50: 12586269025, 90: 2880067194370816120}


def problems() -> dict[str, tuple[Problem, str]]:
    """A problem of each kind, with a completion that is right."""
    cases = [{"input": f"{n}\n", "output": f"{value}\n"} for n, value in VALUES.items()]
    asserts = [f"assert solve({n}) == {value}" for n, value in VALUES.items()]
    script = f"```python\n{PROGRAM}print(solve(int(input())))\n```"
    functions = f"```python\n{PROGRAM}```"
    return {
        "inputs and outputs": (Problem(id="cases", prompt="?", answer="", kind="code", meta={"tests": cases}), script),
        "assert statements": (Problem(id="asserts", prompt="?", answer="", kind="code", meta={"tests": asserts}), functions),
    }


def rate(work: Callable[[], None], count: int, workers: int) -> float:
    """Calls a minute."""
    begun = time.perf_counter()
    with ThreadPoolExecutor(workers) as pool:
        for future in [pool.submit(work) for _ in range(count)]:
            future.result()
    return 60 * count / (time.perf_counter() - begun)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--programs", type=int, default=60, help="graded in each run")
    options.add_argument("--runs", type=int, default=3, help="of each; the median counts")
    options.add_argument("--workers", type=int, nargs="+", default=[1, os.cpu_count() or 1], help="threads that grade at once")
    options.add_argument("--json", type=Path, help="write all figures to this file")
    args = options.parse_args()
    box = Sandbox()
    box.check()
    starts = sorted(box.run("pass").seconds for _ in range(20))
    print(f"an empty program: {1000 * statistics.median(starts):.0f} ms ({1000 * starts[0]:.0f} to {1000 * starts[-1]:.0f})")
    figures: dict[str, object] = {"empty_program_seconds": starts}
    for name, (problem, text) in problems().items():

        def work(problem: Problem = problem, text: str = text) -> None:
            verdict = grade_code(problem, text)
            assert verdict.outcome == "right", verdict

        for workers in dict.fromkeys(args.workers):
            rates = sorted(rate(work, args.programs, workers) for _ in range(args.runs))
            median, spread = statistics.median(rates), f"({rates[0]:.0f} to {rates[-1]:.0f})"
            print(f"{name}, {len(VALUES)} tests, {workers} at once: {median:.0f} a minute {spread}")
            figures[f"{name}, {workers} at once, a minute"] = rates
    if args.json:
        args.json.write_text(json.dumps(figures, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
