"""Errors of grading mathematics, beside math-verify alone: right answers turned away, wrong ones accepted, and the seconds that takes.

The answers are of four kinds, none of them judged by a grader beforehand: every ground truth against itself, pairs of ground truths that
differ, ground truths with one thing changed, and cases of our own (tests/grading/cases). `answers.py` says how it is known what is right.
math-verify is called as its README says, with the ground truth in a box, in both directions where it is not symmetric.
"""

from __future__ import annotations

import argparse
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from answers import SETS, Case, cases, golds, near_misses, pairs
from common import environment, finish, settings_of, table

from sharpen.grading import grade_math

Grader = Callable[[str, str], bool]


def ours(gold: str, text: str) -> bool:
    return grade_math(gold, text).outcome == "right"


def math_verify(gold: str, text: str) -> bool:
    from math_verify import parse, verify

    return bool(verify(parse(rf"\boxed{{{gold}}}"), parse(text)))


GRADERS: dict[str, Grader] = {"sharpen": ours, "math-verify": math_verify}


def answers_of(folder: Path | None, *, held_out: bool) -> dict[str, list[Case]]:
    """What is judged, by the name of the set."""
    found: dict[str, list[Case]] = {}
    if folder is not None:
        for name in SETS:
            found[f"{name}, by itself"] = [Case("itself", gold, rf"\boxed{{{gold}}}", True, "the same") for gold in golds(folder, name)]
        found["pairs that differ"] = pairs(folder)
        found["near misses"] = near_misses(folder)
    found["cases, development"] = cases("development")
    if held_out:
        found["cases, held out"] = cases("held_out")
    return found


def judge(grader: Grader, some: Sequence[Case]) -> dict[str, Any]:
    """A grader's errors on some answers, and how long it took."""
    start = time.perf_counter()
    verdicts = [grader(case.gold, case.text) for case in some]
    seconds = time.perf_counter() - start
    wrong = [case for case, verdict in zip(some, verdicts, strict=True) if verdict != case.right]
    return {
        "accepted": [case._asdict() for case in wrong if not case.right],
        "rejected": [case._asdict() for case in wrong if case.right],
        "seconds": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("SHARPEN_DATA"), help="the folder of public data sets")
    parser.add_argument("--held-out", action="store_true", help="judge the held-out cases too")
    parser.add_argument("--only", choices=sorted(GRADERS), action="append", help="only this grader")
    parser.add_argument("--errors", action="store_true", help="print every error")
    parser.add_argument("--json", type=Path, help="write all figures and errors to this file")
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    results: dict[str, dict[str, Any]] = {}
    rows = []
    for name, some in answers_of(args.data, held_out=args.held_out).items():
        right = sum(case.right for case in some)
        results[name] = {"right": right, "wrong": len(some) - right}
        for grader in args.only or GRADERS:
            results[name][grader] = one = judge(GRADERS[grader], some)
            rows.append(
                (
                    name,
                    grader,
                    f"{len(one['accepted'])} of {len(some) - right}",
                    f"{len(one['rejected'])} of {right}",
                    f"{one['seconds']:.1f}",
                )
            )
            if args.errors:
                for fault in ("accepted", "rejected"):
                    for case in one[fault]:
                        print(f"{grader} {fault}: {case['gold']!r} | {case['text']!r} | {case['why']}")
    table("Errors of grading", ["answers", "grader", "wrong accepted", "right rejected", "seconds"], rows)
    kinds = Counter(case.kind for case in cases("development"))
    print(f"The cases of our own are of {len(kinds)} kinds.")
    finish({"settings": settings_of(args), "results": results, "environment": environment(1, "cpu")}, args.json)


if __name__ == "__main__":
    main()
