"""The numbers behind the plots of a report."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest

from made_up_run import MadeUp
from sharpen.evaluation.intervals import student
from sharpen.pipelines.behaviours import behaviours
from sharpen.reports import figures, metrics
from sharpen.reports.behaviours import smooth
from sharpen.reports.plots import MOST, Line, Plot, plots
from sharpen.reports.run_view import look, named_apart


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return MadeUp(steps=6, held_out={0: 0.3, 3: 0.5, 6: 0.7}).write(tmp_path_factory.mktemp("plots") / "one")


def test_a_plot_a_metric_with_its_values(run: Path) -> None:
    view = look(run)
    by_key = {plot.key: plot for plot in plots([view], ["one"])}
    assert [key for key, plot in by_key.items() if plot.group == "training"][:4] == ["reward", "accuracy", "kl", "entropy"]
    accuracy = by_key["accuracy"].lines[0]
    assert accuracy.x == [1, 2, 3, 4, 5, 6]
    assert accuracy.y == [100 * view.metrics[step]["pass_rate"] for step in accuracy.x]
    held_out = by_key["held_out_first"].lines[0]
    assert list(held_out.x) == [0, 3, 6]
    assert held_out.y[1] == pytest.approx(100 * view.records[3].summary.pass_at_k[1].value)
    assert held_out.low is not None and held_out.low[1] < held_out.y[1]
    assert by_key["behaviour_length"].lines[1].marks
    assert {plot.group for plot in by_key.values()} == {"pass", "training", "behaviours"}


def test_two_runs_share_a_plot_and_are_told_apart(run: Path, tmp_path: Path) -> None:
    other = MadeUp(steps=4, held_out={}).write(tmp_path / "a" / "one")
    views = [look(run), look(other)]
    names = named_apart(views)
    assert names[1] == "a/one"
    reward = next(plot for plot in plots(views, names) if plot.key == "reward")
    assert [(line.label, len(line.x), line.colour, line.dash) for line in reward.lines] == [(names[0], 6, 0, 0), ("a/one", 4, 1, 1)]
    assert named_apart([views[0], views[0]]) == ["one (1)", "one (2)"]


def test_metrics_have_names_and_units() -> None:
    found = metrics.ordered(["zeta", "finished", "reward/brevity", "reward", "log/words"])
    assert [one.title for one in found] == ["Reward", "Reward: brevity", "Truncation", "zeta", "Logged: words"]
    assert found[2].of(0.875) == 12.5
    assert found[1].key == "reward_brevity"


def test_a_long_line_is_shortened_to_means_on_the_page_only() -> None:
    count = 3 * MOST
    plot = Plot(
        key="k", group="training", title="t", unit="", lines=[Line(label="a", x=range(1, count + 1), y=[2.0, 4.0, math.nan] * MOST)]
    )
    short = plot.to_dict()
    assert short["short"]
    assert len(short["lines"][0]["x"]) == MOST
    assert short["lines"][0]["x"][:2] == [2.0, 5.0]
    assert short["lines"][0]["y"][:2] == [3.0, 3.0]  # NaN is left out
    assert len(list(plot.rows())) == count


def test_csv_and_png_of_a_plot(tmp_path: Path) -> None:
    line = Line(label="a, b", x=[1, 2], y=[0.5, 0.25], low=[0.4, math.nan], high=[0.6, math.nan])
    plot = Plot(key="some", group="training", title="Some", unit="%", lines=[line, Line(label="a, b", x=[1], y=[0.7], thin=True)])
    table, picture = figures.write([plot], tmp_path / "report")
    rows = list(csv.reader(table.open(encoding="utf-8")))
    assert rows[0] == ["line", "step", "value", "low", "high"]
    assert rows[1] == ["a, b", "1", "0.5", "0.4", "0.6"]
    assert rows[3] == ["a, b (single steps)", "1", "0.7", "", ""]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_intervals_are_over_groups() -> None:
    # two groups of two completions, lengths 10, 14 and 20, 24: the ratio 17, influences (12 − 17) and (22 − 17) of means with weight 1
    from sharpen.evaluation.behaviours import figures as to_figures

    sums = {("length", "all"): {"1/0/0": (24.0, 2), "1/1/0": (44.0, 2)}, ("cut", "all"): {"1/0/0": (0.0, 2), "1/1/0": (0.0, 2)}}
    length, cut = to_figures(sums, "training", 1)
    half = student(1) * math.sqrt((25 + 25) / (1 * 2))
    assert (length.value, length.count) == (17.0, 4)
    assert length.high == pytest.approx(17 + half)
    assert length.low == 0.0  # 17 − 63.5, cut at the bound
    assert (cut.value, math.isnan(cut.low), math.isnan(cut.high)) == (0.0, True, True)  # nothing was seen of how it varies


def test_a_running_mean_is_surer_than_a_step() -> None:
    steps = range(1, 49)  # a window is of 2 · (48 // 24) + 1 = 5 steps
    series = dict.fromkeys(steps, (0.5, 32))
    band = dict.fromkeys(steps, (0.4, 0.7))
    value, low, high = smooth(series, band)[24]
    assert value == 0.5
    assert low == pytest.approx(0.5 - 0.1 / math.sqrt(5))
    assert high == pytest.approx(0.5 + 0.2 / math.sqrt(5))
    band[23] = (math.nan, math.nan)  # it counts as those around it
    assert smooth(series, band)[24][2] == pytest.approx(0.5 + 0.2 / math.sqrt(5))
    assert math.isnan(smooth(series, dict.fromkeys(steps, (math.nan, math.nan)))[24][1])


def test_what_was_read_is_kept(run: Path) -> None:
    kept = {}
    first = behaviours(run, kept=kept)
    assert len(kept) == 9  # six steps and three evaluations
    (run / "completions" / "step-000001.parquet").read_bytes()
    again = behaviours(run, kept=dict.fromkeys(kept, ([], 3, 5, True)))
    assert again.figures == ()
    assert "Text was read of 27 of 45 completions" in again.notes[-1]
    assert behaviours(run, kept=kept) == first
