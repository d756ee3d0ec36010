"""Runs side by side: a row for each thing that tells them apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sharpen.evaluation.verdict import shown
from sharpen.recipe import differences, to_table
from sharpen.reports.run_view import RunView


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of text.

    Attributes:
        names: of the runs.
        rows: what, and a cell for each run.
        settings: the keys in which any recipe differs from the first one's, and a cell for each run.
    """

    names: Sequence[str]
    rows: Sequence[tuple[str, Sequence[str]]]
    settings: Sequence[tuple[str, Sequence[str]]]


NONE = "–"


def table(views: Sequence[RunView], names: Sequence[str]) -> Table:
    """The runs in numbers; means over the last quarter of the steps are called late."""
    rows: list[tuple[str, Callable[[RunView], str]]] = [
        ("method", lambda view: view.recipe.method.name),
        ("model", lambda view: view.recipe.model),
        ("steps done", lambda view: f"{view.done} of {view.planned}"),
        ("completions", lambda view: _last(view, "total_completions")),
        ("tokens sampled", lambda view: _last(view, "total_tokens")),
        ("updates", lambda view: _last(view, "updates")),
        ("hours of training", _hours),
        ("reward, late", lambda view: _late(view, "reward", 1, ".3f")),
        ("accuracy, late, %", lambda view: _late(view, "pass_rate", 100, ".1f")),
        ("length, late, tokens", lambda view: _late(view, "length", 1, ".1f")),
        ("entropy, late, nats a token", lambda view: _late(view, "entropy", 1, ".3f")),
        ("KL, late, nats a token", lambda view: _late(view, "kl", 1, ".4f")),
        ("groups of equal rewards, late, %", lambda view: _late(view, "zero_variance", 100, ".0f")),
        ("verdict", lambda view: NONE if view.changes is None or view.changes.verdict is None else view.changes.verdict.word),
        ("Pass@1 before → after, %", lambda view: _pass(view, first=True)),
        ("change of Pass@1, points", lambda view: _change(view, "pass_at_k", first=True)),
        ("largest K", lambda view: NONE if view.changes is None else str(max(view.changes.comparison.change.pass_at_k))),
        ("Pass@K before → after, %", lambda view: _pass(view, first=False)),
        ("change of Pass@K, points", lambda view: _change(view, "pass_at_k", first=False)),
        ("change of Maj@K, points", lambda view: _change(view, "maj_at_k", first=False)),
        ("findings of the diagnosis", lambda view: NONE if view.diagnosis is None else _findings(view)),
    ]
    filled = [(what, [cell(view) for view in views]) for what, cell in rows]
    known = [(what, cells) for what, cells in filled if any(cell != NONE for cell in cells)]
    return Table(names=names, rows=known, settings=_settings(views))


def _settings(views: Sequence[RunView]) -> list[tuple[str, list[str]]]:
    keys = sorted({key for view in views[1:] for key in differences(views[0].recipe, view.recipe)} - {"output"})
    tables = [to_table(view.recipe) for view in views]
    return [(key, [_value(one, key) for one in tables]) for key in keys]


def _value(settings: Any, key: str) -> str:
    for part in key.split("."):
        settings = settings.get(part) if isinstance(settings, dict) else None
    return NONE if settings is None else str(settings)


def _last(view: RunView, name: str) -> str:
    series = view.series(name)
    return f"{series[max(series)]:,.0f}" if series else NONE


def _late(view: RunView, name: str, factor: float, form: str) -> str:
    value = view.late(name)
    return NONE if value is None else format(factor * value, form)


def _hours(view: RunView) -> str:
    return f"{sum(one.get('step', 0.0) for one in view.seconds.values()) / 3600:.2f}" if view.seconds else NONE


def _pass(view: RunView, *, first: bool) -> str:
    if view.changes is None:
        return NONE
    before, after = view.changes.comparison.before.pass_at_k, view.changes.comparison.after.pass_at_k
    k = (min if first else max)(before)
    return f"{100 * before[k].value:.1f} → {100 * after[k].value:.1f}"


def _change(view: RunView, measure: str, *, first: bool) -> str:
    if view.changes is None:
        return NONE
    by_k = getattr(view.changes.comparison.change, measure)
    return shown(by_k[(min if first else max)(by_k)])


def _findings(view: RunView) -> str:
    assert view.diagnosis is not None
    return ", ".join(finding.rule for finding in view.diagnosis.findings) or "none"
