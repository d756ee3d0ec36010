"""What a run shows while it goes."""

from __future__ import annotations

import io
import math

import pytest
from rich.console import Console

from sharpen.tracking.display import LEGEND, Pace, clock, expected_zeros, row, sparkline, watching

METRICS = {"reward": 0.5, "pass_rate": 0.25, "length": 12.34, "entropy": 1.5, "clip_fraction": 0.0, "zero_variance": 0.5, "loss": 0.0}
SECONDS = {"step": 10.0, "rollout": 4.0, "training": 6.0, "tokens_per_second": 1234.5}


def test_row() -> None:
    # no KL in the metrics: a dash, not a zero
    assert row(3, 60, METRICS, SECONDS, 65.0) == ["3/60", "0.500", "25%", "12.3", "–", "1.50", "0.0%", "50%", "1,234", "1:05"]


def test_time_left_follows_the_recent_pace() -> None:
    pace = Pace(window=2)
    assert pace.left(1, 10, 10.0) == pytest.approx(90.0)
    assert pace.left(2, 10, 4.0) == pytest.approx(8 * 7.0)
    assert pace.left(3, 10, 2.0) == pytest.approx(7 * 3.0)  # the first step is forgotten


def test_clock_and_sparkline() -> None:
    assert [clock(s) for s in (0, 59.6, 61, 3725)] == ["0:00", "1:00", "1:01", "1:02:05"]
    assert sparkline([0.0, 0.5, 1.0], 10) == "▁▅█"
    assert sparkline([0.0, 0.0, 1.0, 1.0], 2) == "▁█"
    assert sparkline([math.nan, 1.0], 5) == "█"


def test_expected_zeros_are_explained_once() -> None:
    texts = expected_zeros(1, METRICS)
    assert any("ratio is 1" in text for text in texts)
    assert any("loss is 0 on-policy" in text for text in texts)
    assert any("without a KL term" in text for text in texts)
    assert any("the policy is the reference" in text for text in expected_zeros(1, METRICS | {"kl": 0.0}))
    assert expected_zeros(2, METRICS) == []
    assert expected_zeros(1, {"reward": 0.0}) == []  # only the value model was trained


@pytest.mark.parametrize("terminal", [True, False])
def test_both_displays_show_a_run(terminal: bool) -> None:
    out = io.StringIO()
    with watching(Console(file=out, force_terminal=terminal, width=140, color_system=None)) as observer:
        observer.phase("evaluating before", 8)
        observer.advance(8)
        for step in (1, 2):
            observer.phase("rollout", 4)
            observer.advance(4)
            observer.step(step, 2, METRICS, SECONDS)
        observer.notice("a notice")
    shown = out.getvalue()
    assert "2/2" in shown
    assert "0.500" in shown
    assert "a notice" in shown
    assert ("evaluating before (8 completions)" in shown) is not terminal
    assert (LEGEND in shown) is terminal
    if not terminal:
        assert "\x1b" not in shown
