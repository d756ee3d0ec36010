"""The page of a run: one HTML file that asks nothing of any network.

Everything is in it: style and scripts in place, numbers and completions as gzipped JSON in base64. What comes from a run is escaped by
jinja2, or set by the scripts as text, never as HTML; and the page's Content-Security-Policy lets only these very scripts run (by their
digests) and no request out.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sharpen import __version__
from sharpen.evaluation.diagnosis import RULES
from sharpen.evaluation.intervals import Estimate
from sharpen.evaluation.verdict import rule, shown
from sharpen.pipelines.behaviours import Kept
from sharpen.reports import side_by_side
from sharpen.reports.pieces import find_tokenizer, load, pieces
from sharpen.reports.plots import Plot, plots
from sharpen.reports.run_view import RunView, look, named_apart
from sharpen.reports.shown import BUDGET, File, Reader, Shown, pack
from sharpen.tracking import completions
from sharpen.tracking.observer import Observer
from sharpen.training.memory import human

if TYPE_CHECKING:
    import jinja2
    from markupsafe import Markup

SCRIPTS = ("chart.js", "completions.js", "page.js")
ORDER = (
    "from_step", "started", "device", "gpus", "dtype", "threads", "token_budget", "processor", "cpus", "cpu_capability", "memory", "system",
    "python", "sharpen", "packages",
)  # fmt: skip
"""The rows of an environment; others follow."""
CHANGED = 40
"""Problems that are listed as newly solved or newly lost."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """A page, and what it was made of.

    Attributes:
        html: all of it.
        views: the runs, the one reported on first.
        names: what they are called.
        plots: every plot in full.
        shown: the completions in it.
    """

    html: str
    views: Sequence[RunView]
    names: Sequence[str]
    plots: Sequence[Plot]
    shown: Shown


class Maker:
    """Makes the page of a run, again and again for one that is watched: what has been read of its completions is kept.

    Args:
        run: its folder.
        others: folders of runs to show beside it.
        budget: bytes for completions.
        observer: who watches.
    """

    def __init__(self, run: Path, others: Sequence[Path] = (), *, budget: int = BUDGET, observer: Observer | None = None) -> None:
        self.paths, self.budget, self.observer = [run, *others], budget, observer
        self._kept: dict[Path, Kept] = {path: {} for path in self.paths}
        self._reader: tuple[Path | None, Reader] | None = None

    def make(self, *, live: str | None = None) -> Page:
        """Read the runs as they are now.

        Args:
            live: the version of the page that `sharpen watch` serves, which may ask it for news; None for a file.

        Raises:
            RunError: a folder that is no run, or a damaged file.
        """
        views = [look(path, observer=self.observer, kept=self._kept[path]) for path in self.paths]
        names, kept = named_apart(views), self._completions(views[0])
        drawn = plots(views, names)
        return Page(html=_html(views, names, drawn, kept, live=live), views=views, names=names, plots=drawn, shown=kept)

    def _completions(self, view: RunView) -> Shown:
        path = find_tokenizer(view.folder, view.recipe)
        if self._reader is None or self._reader[0] != path:
            tokenizer = None if path is None else load(path)
            self._reader = path, Reader(None if tokenizer is None else lambda tokens: pieces(tokenizer, tokens), self.budget)
        return self._reader[1].read(files_of(view))


def files_of(view: RunView) -> list[File]:
    """The files of completions of a run: of each finished step, then of each evaluation."""
    folder = view.folder.completions
    steps = [step for step in completions.steps(folder) if step in view.metrics]
    found = [File(path=completions.path_of(folder, step), place="training", step=step) for step in steps]
    for step, record in sorted(view.records.items()):
        del record
        name, place = _evaluation(view, step)
        path = view.folder.evaluation / f"{name}.parquet"
        if path.is_file():
            found.append(File(path=path, place=place, step=step))
    return found


def write(page: Page, path: Path) -> None:
    """Write the page, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".writing")
    temporary.write_text(page.html, encoding="utf-8")
    os.replace(temporary, path)


def policy(scripts: str, style: str, *, live: bool) -> str:
    """The Content-Security-Policy: this style and these scripts, pictures of the page's own making, and, live, the server it came from."""
    allowed = {"default-src": "'none'", "script-src": _digest(scripts), "style-src": _digest(style), "img-src": "data:"}
    allowed |= {"connect-src": "'self'" if live else "'none'", "base-uri": "'none'", "form-action": "'none'"}
    return "; ".join(f"{name} {value}" for name, value in allowed.items())


def _evaluation(view: RunView, step: int) -> tuple[str, str]:
    """The stem of an evaluation's file, and what the page calls it."""
    if step == 0:
        return "before", "before"
    if (view.folder.evaluation / f"step-{step:06d}.parquet").is_file():
        return f"step-{step:06d}", f"step {step}"
    return "after", "after"


def _html(views: Sequence[RunView], names: Sequence[str], drawn: Sequence[Plot], kept: Shown, *, live: str | None) -> str:
    view = views[0]
    scripts, style = "\n".join(_file(name) for name in SCRIPTS), _file("page.css")
    data = {"plots": [plot.to_dict() for plot in drawn], "runs": list(names)}
    found = view.changes
    verdict = None if found is None else found.verdict
    return (
        _templates()
        .get_template("page.html")
        .render(
            name=names[0],
            view=view,
            names=names,
            changes=found,
            verdict=verdict,
            rule=[line.partition(": ") for line in rule(verdict.k, verdict.margin)] if verdict is not None else [],
            changed=_changed(view),
            most_changed=CHANGED,
            rules=len(RULES),
            groups=[group for group in ("pass", "training", "behaviours") if any(plot.group == group for plot in drawn)],
            titles={
                group: [(plot.key, plot.title) for plot in drawn if plot.group == group] for group in ("pass", "training", "behaviours")
            },
            shown=kept,
            table=side_by_side.table(views, names) if len(views) > 1 else None,
            recipe=view.folder.recipe.read_text(encoding="utf-8"),
            starts=[_start(start) for start in view.starts],
            state=_state(view),
            version=__version__,
            style=style,
            scripts=scripts,
            policy=policy(scripts, style, live=live is not None),
            live=live,
            data=pack(json.dumps(data, ensure_ascii=False, separators=(",", ":"))),
        )
    )


def _templates() -> jinja2.Environment:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_file), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"percent": percent, "points": points, "plain": plain, "shown": shown}
    return environment


def percent(found: Estimate) -> Markup:
    """A share and its interval: `72.5 [60.0, 83.1]`."""
    return _interval(found, 100, "")


def points(found: Estimate) -> Markup:
    """A change of a share, in points: `+5.0 [−1.0, +11.0]`."""
    return _interval(found, 100, "+")


def plain(found: Estimate, sign: str = "") -> Markup:
    """Any other number and its interval."""
    return _interval(found, 1, sign)


def _interval(found: Estimate, factor: float, sign: str) -> Markup:
    """The value, and its interval in an element of its own, which stands below it on a phone."""
    from markupsafe import Markup

    if math.isnan(found.value):
        return Markup("–")
    value, low, high = (f"{round(factor * number, 1) + 0.0:{sign}.1f}" for number in (found.value, found.low, found.high))
    value, ends = (text.replace("-", "\u2212") for text in (value, "" if math.isnan(found.low) else f"[{low}, {high}]"))
    return Markup('{} <span class="ends">{}</span>').format(value, ends)


def _changed(view: RunView) -> list[Any]:
    """The problems newly solved and newly lost, the surest first."""
    if view.changes is None:
        return []
    found = [one for one in view.changes.problems if one.what in ("newly solved", "newly lost")]
    return sorted(found, key=lambda one: (one.p, one.problem_id))


def _state(view: RunView) -> str:
    """How far the run is, in a few words."""
    stopped = view.gamed is not None and view.gamed[1] == "stop"
    if view.done < view.planned and not stopped:
        return f"{view.done} of {view.planned} steps are done"
    waits = view.recipe.problems.held_out is not None and view.changes is None
    done = f"stopped after step {view.done} of {view.planned}: the reward was gamed" if stopped else f"all {view.planned} steps are done"
    return done + ("; the evaluation is not" if waits else "")


def _start(start: Any) -> list[tuple[str, str]]:
    """An environment as rows: what, and its value."""
    rows: list[tuple[str, str]] = []
    for name, value in sorted(start.items(), key=lambda item: (ORDER.index(item[0]) if item[0] in ORDER else len(ORDER), item[0])):
        if name == "packages":
            rows += [(package, str(version)) for package, version in value.items()]
        elif name == "memory" and isinstance(value, int):
            rows.append((name, human(value)))
        else:
            told = ", ".join(str(one) for one in value) if isinstance(value, list) else str(value)
            rows.append((name.replace("_", " "), told or "none"))
    return rows


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _file(name: str) -> str:
    return resources.files("sharpen.reports").joinpath("page", name).read_text(encoding="utf-8")
