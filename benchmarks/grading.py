"""Gradings a second, plain and symbolic; with --hostile, what texts cost that are made to stop a grader.

Nobody stands beside: the goals are our own. On two cores they are 2,000 short plain gradings a second and 200 symbolic ones. Hostile texts
may cost hostile x limit / workers over what the honest ones take, and 10 %; they must change no other verdict and leave nothing behind.
"""

from __future__ import annotations

import argparse
import random
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from common import ALTERNATIONS, environment, finish, human, settings_of, table

from sharpen.grading import GradingPool, Verdict
from sharpen.records import Problem

Item = tuple[Problem, str]

TOWER = r"\dfrac{5^{(5^{(5^{(5^5)})}-4)}-5}{16}"
GOALS = {"plain": 2000, "symbolic": 200}


def plain(count: int) -> list[Item]:
    """Short solutions that end in a plain number, two of three right."""
    texts = (r"{a} + {b} = {c}, so the answer is \boxed{{{c}}}.", "Adding {b} to {a} gives {c}.\n#### {c}", "The answer is {d}.")
    rows = []
    for i in range(count):
        a, b = 17 + 3 * i, 250 + i % 97
        text = texts[i % 3].format(a=a, b=b, c=a + b, d=a + b + 1)
        rows.append((Problem(id=f"plain/{i}", prompt="", answer=str(a + b)), text))
    return rows


def symbolic(count: int) -> list[Item]:
    """Short solutions that end in a formula, two of three right; no two have the same, so nothing is remembered."""
    pairs = (
        (r"\frac{{\sqrt{{{a}}}}}{{{b}}}", r"\frac{{{a}}}{{{b}\sqrt{{{a}}}}}"),
        (r"x^2 + {a}x + {b}", r"{b} + x^2 + {a} x"),
        (r"\left( {a}, \frac{{{b}\pi}}{{7}} \right)", r"({a}, \frac{{{b}}}{{7}}\pi)"),
        (r"\{{ {a}, \sqrt{{{b}}} \}}", r"\{{\sqrt{{{b}}}, {a}\}}"),
        (r"[{a}, \infty)", r"[{a},+\infty)"),
        (r"{a} + {b}i", r"{b}i + {a}"),
        (r"(x - {a})(x + {b})", r"x^2 + {b}x - {a}x - {b} \cdot {a}"),
    )
    rows = []
    for i in range(count):
        gold, same = pairs[i % len(pairs)]
        a, b = 1001 + 2 * i, 5003 + i
        answer = gold.format(a=a + 2, b=b) if i % 3 == 2 else same.format(a=a, b=b)
        rows.append((Problem(id=f"symbolic/{i}", prompt="", answer=gold.format(a=a, b=b)), rf"We simplify, and find $\boxed{{{answer}}}$."))
    return rows


def hostile(count: int) -> list[Item]:
    """Texts that are made to stop a grader, of 14 kinds: towers of powers, endless digits, nested braces, bait for regular expressions."""
    million = 10**6
    kinds: list[Callable[[int], str]] = [
        lambda i: rf"\boxed{{{TOWER} + {i}}}",
        lambda i: rf"\boxed{{9^{{9^{{9^{{{9 + i}}}}}}}}}",
        lambda i: rf"\boxed{{({10 + i}^{{10^{{9}}}})!}}",
        lambda i: rf"\boxed{{\sum_{{k=1}}^{{10^{{{12 + i}}}}} \frac{{1}}{{k^k}}}}",
        lambda i: r"\boxed{" + str(1 + i % 9) * million + "}",
        lambda i: str(1 + i % 9) * million,
        lambda i: r"\boxed{" + "{" * 100_000 + str(i) + "}" * 100_001,
        lambda i: r"\boxed{" + r"\frac{" * 100 + str(i) + "}{2}" * 100 + "}",
        lambda i: r"\boxed{" + "(" * 400 + str(i) + ")" * 400 + "}",
        lambda i: r"\boxed{" * (million // 8) + str(i),
        lambda i: "$ " * (million // 2) + str(i),
        lambda i: "<answer>" * (million // 8) + str(i),
        lambda i: "the answer is " * (million // 14) + str(i),
        lambda i: r"\boxed{1} or " * (million // 13) + str(i),
    ]
    golds = (r"\frac{\pi}{2}", "x^2 + 1", "12")
    return [(Problem(id=f"hostile/{i}", prompt="", answer=golds[i % 3]), kinds[i % len(kinds)](i)) for i in range(count)]


@contextmanager
def started(workers: int | None, limit: float) -> Iterator[GradingPool]:
    """A pool that has graded formulas already, so that what is measured is grading and no start."""
    with GradingPool(workers=workers, time_limit=limit) as pool:
        pool.grade_all([(Problem(id="start", prompt="", answer="y"), rf"\boxed{{y + {i}}}") for i in range(64)])
        yield pool


def speed(args: argparse.Namespace) -> dict[str, Any]:
    """Gradings a second of each kind: the median of several runs, each in a pool of its own."""
    found: dict[str, Any] = {}
    for kind, items in (("plain", plain(args.samples)), ("symbolic", symbolic(args.samples // 5))):
        rates = []
        for _ in range(args.runs):
            with started(args.workers, args.limit) as pool:
                start = time.perf_counter()
                verdicts = pool.grade_all(items)
                rates.append(len(items) / (time.perf_counter() - start))
            right = sum(verdict.outcome == "right" for verdict in verdicts)
            if right != sum(i % 3 != 2 for i in range(len(items))):
                raise SystemExit(f"{kind}: {right} of {len(items)} verdicts are right, which is not as it should be")
        found[kind] = {"samples": len(items), "per_second": sorted(rates), "goal": GOALS[kind]}
    rows = [
        (kind, one["samples"], f"{statistics.median(one['per_second']):,.0f}", f"{one['per_second'][0]:,.0f}", f"{one['goal']:,}")
        for kind, one in found.items()
    ]
    table("Gradings a second", ["kind", "samples", "median", "slowest run", "goal"], rows)
    return found


def mixed(count: int, share: float) -> tuple[list[Item], set[int]]:
    """Honest samples, seven plain ones to three symbolic, with hostile ones strewn in; and where those are."""
    bad = round(count * share)
    places = set(random.Random(0).sample(range(count), bad))
    honest = plain((count - bad) * 7 // 10)
    honest += symbolic(count - bad - len(honest))
    random.Random(1).shuffle(honest)
    good, evil = iter(honest), iter(hostile(bad))
    return [next(evil if i in places else good) for i in range(count)], places


def attacked(args: argparse.Namespace) -> list[dict[str, Any]]:
    """The same mixed samples without and with the hostile ones, from the main thread and from another."""
    items, places = mixed(args.samples, args.share)
    found = [_attack(items, places, args, threaded) for threaded in (False, True)]
    columns = ["from", "honest alone", "with hostile", "allowed", "changed", "processes left", "memory kept", "hostile verdicts"]
    rows = [
        (
            one["from"],
            f"{one['honest_seconds']:.1f} s",
            f"{one['seconds']:.1f} s",
            f"{one['allowed_seconds']:.1f} s",
            one["changed"],
            one["processes_left"],
            human(one["memory_kept"]),
            ", ".join(f"{count} {outcome}" for outcome, count in one["hostile_verdicts"].items()),
        )
        for one in found
    ]
    table(f"{len(items):,} samples, {len(places)} of them hostile", columns, rows)
    return found


def _attack(items: Sequence[Item], places: set[int], args: argparse.Namespace, threaded: bool) -> dict[str, Any]:
    run = _in_thread if threaded else _here
    honest = [item for i, item in enumerate(items) if i not in places]
    with started(args.workers, args.limit) as pool:
        alone, expected = run(pool, honest)
    before = psutil.Process().memory_info().rss
    with started(args.workers, args.limit) as pool:
        workers = pool.workers
        took, verdicts = run(pool, items)
    others = [verdict for i, verdict in enumerate(verdicts) if i not in places]
    return {
        "from": "another thread" if threaded else "the main thread",
        "honest_seconds": alone,
        "seconds": took,
        "allowed_seconds": 1.1 * (alone + len(places) * args.limit / workers),
        "changed": sum(a != b for a, b in zip(expected, others, strict=True)),
        "hostile_verdicts": Counter(verdicts[i].outcome for i in sorted(places)),
        "hostile_reasons": Counter(verdicts[i].reason[:80] for i in sorted(places)),
        "hostile_seconds": sum(verdicts[i].seconds for i in places),
        "processes_left": len(psutil.Process().children(recursive=True)),
        "memory_kept": max(0, psutil.Process().memory_info().rss - before),
    }


def _here(pool: GradingPool, items: Sequence[Item]) -> tuple[float, list[Verdict]]:
    start = time.perf_counter()
    verdicts = pool.grade_all(items)
    return time.perf_counter() - start, verdicts


def _in_thread(pool: GradingPool, items: Sequence[Item]) -> tuple[float, list[Verdict]]:
    found: list[tuple[float, list[Verdict]]] = []
    thread = threading.Thread(target=lambda: found.append(_here(pool, items)))
    thread.start()
    thread.join()
    return found[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--samples", type=int, default=10_000, help="plain or mixed samples; a fifth as many symbolic ones")
    parser.add_argument("--workers", type=int, help="processes; one a core, at most 8, where it is not given")
    parser.add_argument("--limit", type=float, default=5.0, help="seconds a sample")
    parser.add_argument("--hostile", action="store_true", help="mix in texts that are made to stop a grader")
    parser.add_argument("--share", type=float, default=0.01, help="of hostile samples")
    parser.add_argument("--runs", type=int, default=ALTERNATIONS, help="of each kind; fewer than 3 are no measurement")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    args = parser.parse_args()
    results = attacked(args) if args.hostile else speed(args)
    record = {"settings": settings_of(args), "results": results, "environment": environment(1, "cpu")}
    finish(record, args.json)


if __name__ == "__main__":
    main()
