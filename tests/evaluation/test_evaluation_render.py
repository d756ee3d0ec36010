from __future__ import annotations

import dataclasses
import io
import math

import pytest
from rich.console import Console

from sharpen.evaluation.intervals import Estimate
from sharpen.evaluation.render import comparison_table, summary_table
from sharpen.evaluation.summary import Comparison, Figures, Summary

BEFORE = Summary(
    pass_at_k={1: Estimate(0.085, 0.06, 0.12), 64: Estimate(1.0, 0.912, 1.0)},
    maj_at_k={1: Estimate(0.085, 0.06, 0.12), 64: Estimate(0.538, 0.401, 0.667)},
    finished=Estimate(0.35, 0.31, 0.39),
    right_given_finished=Estimate(math.nan, math.nan, math.nan),
    mean_length=Estimate(34.2, 32.0, 36.6),
    problems=40,
    samples=64,
)
AFTER = dataclasses.replace(
    BEFORE, pass_at_k={1: Estimate(0.839, 0.771, 0.896), 64: Estimate(1.0, 0.912, 1.0)}, short={f"p{i}": i for i in range(5)}
)
CHANGE = Figures(
    pass_at_k={1: Estimate(0.754, 0.681, 0.81), 64: Estimate(0.0, -0.088, 0.088)},
    maj_at_k={1: Estimate(0.754, 0.681, 0.81), 64: Estimate(-1.0, -1.0, -0.9995)},
    finished=Estimate(-0.00001, -0.02, 0.02),
    right_given_finished=Estimate(math.nan, math.nan, math.nan),
    mean_length=Estimate(-23.1, -25.0, -21.0),
)


def lines(table, width=80):
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(table)
    text = console.file.getvalue()
    return [line.rstrip() for line in text.splitlines()]


def row(shown, label):
    found = [" ".join(line.split()) for line in shown if line.startswith(f"{label} ")]
    assert len(found) == 1, (label, shown)
    return found[0]


def test_before_and_after_in_80_columns():
    shown = lines(comparison_table(Comparison(before=BEFORE, after=AFTER, change=CHANGE)))
    assert all(len(line) <= 80 for line in shown)
    assert not any("…" in line and "[" in line for line in shown)  # nothing is cut
    assert row(shown, "Pass@1") == "Pass@1 8.5 [6.0, 12.0] 83.9 [77.1, 89.6] +75.4 [+68.1, +81.0] *"
    assert row(shown, "Pass@64") == "Pass@64 100 [91.2, 100] 100 [91.2, 100] +0.0 [-8.8, +8.8]"
    assert row(shown, "Maj@64").endswith("-100 [-100, -100] *")
    assert row(shown, "finished").endswith("+0.0 [-2.0, +2.0]")  # never −0.0
    assert row(shown, "right if finished") == "right if finished – – –"
    assert row(shown, "mean length") == "mean length 34.2 [32.0, 36.6] 34.2 [32.0, 36.6] -23.1 [-25.0, -21.0] *"
    assert not any(line.startswith("Maj@1 ") for line in shown)
    assert any("40 problems × 64 samples" in line for line in shown)
    assert any("5 short of 64 samples and left out: p0 (0), p1 (1), p2 (2), …" in line for line in shown)


def test_the_widest_numbers_fit():
    wide, change = Estimate(0.999, 0.999, 1.0), Estimate(-0.999, -0.999, -0.999)
    ks = {1: wide, 1024: wide}
    summary = dataclasses.replace(
        BEFORE, pass_at_k=ks, maj_at_k=ks, finished=wide, right_given_finished=wide, mean_length=Estimate(16384.0, 16200.0, 16400.0)
    )
    moved = Figures(
        pass_at_k=dict.fromkeys(ks, change),
        maj_at_k=dict.fromkeys(ks, change),
        finished=change,
        right_given_finished=change,
        mean_length=Estimate(-9000.0, -9100.0, -8900.0),
    )
    shown = lines(comparison_table(Comparison(before=summary, after=summary, change=moved)))
    assert all(len(line) <= 80 for line in shown)
    assert row(shown, "right if finished") == "right if finished 99.9 [99.9, 100] 99.9 [99.9, 100] -99.9 [-99.9, -99.9] *"
    assert row(shown, "mean length, k") == "mean length, k 16.4 [16.2, 16.4] 16.4 [16.2, 16.4] -9.0 [-9.1, -8.9] *"


@pytest.mark.parametrize(("share", "place"), [(0.0, 0), (0.5, 18), (1.0, 35)])
def test_the_bar_marks_the_value_and_its_interval(share, place):
    summary = dataclasses.replace(BEFORE, finished=Estimate(share, max(0, share - 0.1), min(1, share + 0.1)))
    shown = lines(summary_table(summary))
    assert all(len(line) <= 80 for line in shown)
    bar = next(line for line in shown if line.startswith("finished")).split()[-1]
    assert len(bar) == 36
    assert bar.index("●") == place
    low, high = max(0, int((share - 0.1) * 36 + 1e-9)), min(35, int((share + 0.1) * 36 + 1e-9))
    assert [spot for spot, mark in enumerate(bar) if mark != "·"] == list(range(low, high + 1))


def test_a_single_model_shows_lengths_without_a_bar_and_unknown_as_a_dash():
    shown = lines(summary_table(BEFORE, title="embedded"))
    assert shown[0] == "embedded"
    assert row(shown, "mean length") == "mean length 34.2 [32.0, 36.6]"
    assert row(shown, "right if finished").startswith("right if finished –")
