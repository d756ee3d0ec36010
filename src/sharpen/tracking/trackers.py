"""Trackers: who else is told a run's numbers. The run's own record is the event log; a tracker is a view that may fail.

Another package adds a tracker with an entry point in the group `sharpen.trackers`, a callable that takes the run's folder and gives a
`Tracker`; a recipe then names it like a built-in one.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from sharpen.errors import MissingPackageError, RecipeError, nearest

GROUP = "sharpen.trackers"

_log = logging.getLogger(__name__)


@runtime_checkable
class Tracker(Protocol):
    """Something that is told a run's metrics."""

    def start(self, run_name: str, config: Mapping[str, Any]) -> None:
        """A run begins, or goes on after a resume."""

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """The metrics of a step. After a resume, steps since the checkpoint come again."""

    def finish(self) -> None:
        """The run is over; write what is left."""


class TensorBoardTracker:
    """Scalars and the settings, for `tensorboard --logdir RUN/tensorboard`.

    Args:
        folder: the run's folder.
    """

    def __init__(self, folder: Path) -> None:
        _require("tensorboard", extra="tensorboard")
        self.folder = Path(folder) / "tensorboard"
        self._config: Mapping[str, Any] = {}
        self._writer: Any = None

    def start(self, run_name: str, config: Mapping[str, Any]) -> None:
        """Remember the settings; the files are made at the first step."""
        self._config = {"run": run_name, **config}

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Write each metric as a scalar. The first step of a resumed run hides what an earlier run wrote from there on."""
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(self.folder), purge_step=step)
            settings = json.dumps(self._config, indent=2, sort_keys=True, default=str)
            self._writer.add_text("settings", "\n".join("    " + line for line in settings.splitlines()), step)
        for name, value in metrics.items():
            self._writer.add_scalar(name, float(value), step)

    def finish(self) -> None:
        """Close the files."""
        if self._writer is not None:
            self._writer.close()


class TrackioTracker:
    """Trackio's local dashboard, for `trackio show --project sharpen`; nothing leaves the machine.

    Args:
        folder: the run's folder; not used, Trackio keeps its own (`TRACKIO_DIR`).
    """

    def __init__(self, folder: Path) -> None:
        _require("trackio", extra="trackio")
        self._run: Any = None

    def start(self, run_name: str, config: Mapping[str, Any]) -> None:
        """Begin or go on with the run of this name."""
        import trackio

        with _without_environment("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL", "TRACKIO_BUCKET_ID", "TRACKIO_WEBHOOK_URL"):
            plain = json.loads(json.dumps(dict(config), default=str))
            quiet: dict[str, Any] = {"embed": False, "auto_log_gpu": False, "auto_log_cpu": False}
            self._run = trackio.init(project="sharpen", name=run_name, config=plain, resume="allow", **quiet)

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Log the step's metrics."""
        self._run.log(dict(metrics), step=step)

    def finish(self) -> None:
        """Write what is left."""
        if self._run is not None:
            self._run.finish()


BUILT_IN: Mapping[str, Callable[[Path], Tracker]] = {"tensorboard": TensorBoardTracker, "trackio": TrackioTracker}


class FanOut:
    """Tells every tracker. One that fails is left out from then on, with one warning in the log; it never stops a run.

    Args:
        trackers: whom to tell.
    """

    def __init__(self, trackers: Iterable[Tracker]) -> None:
        self.trackers = list(trackers)

    def start(self, run_name: str, config: Mapping[str, Any]) -> None:
        """Start all."""
        self._tell("start", run_name, config)

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Log to all."""
        self._tell("log", metrics, step)

    def finish(self) -> None:
        """Finish all."""
        self._tell("finish")

    def _tell(self, what: str, *arguments: Any) -> None:
        for tracker in list(self.trackers):
            try:
                getattr(tracker, what)(*arguments)
            except Exception as error:
                self.trackers.remove(tracker)
                name, reason = type(tracker).__name__, f"{type(error).__name__}: {error}"
                _log.warning("%s failed to %s and is left out from here on (%s). The run goes on.", name, what, reason, exc_info=True)


def load_trackers(names: Sequence[str], folder: str | Path) -> list[Tracker]:
    """The trackers of these names, built-in ones or entry points of the group `sharpen.trackers`.

    Args:
        names: for example `["tensorboard"]`.
        folder: the run's folder.

    Raises:
        RecipeError: for an unknown name, or an entry point that cannot be loaded.
        MissingPackageError: when the tracker's package is not installed.
    """
    others = {point.name: point for point in entry_points(group=GROUP)}
    known = sorted({*BUILT_IN, *others})
    trackers = []
    for name in names:
        if name not in known:
            raise RecipeError(f"Unknown tracker '{name}'.{nearest(name, known)}", fix=f"Known trackers: {', '.join(known)}.")
        try:
            make = BUILT_IN[name] if name in BUILT_IN else others[name].load()
            trackers.append(make(Path(folder)))
        except MissingPackageError:
            raise
        except Exception as error:
            what = f"The tracker '{name}' cannot be loaded: {type(error).__name__}: {error}"
            raise RecipeError(what, fix="Mend its package, or leave it out.") from error
    return trackers


def _require(package: str, *, extra: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise MissingPackageError(package, needed_for=f"The tracker '{extra}'", install=f"pip install 'sharpen[{extra}]'")


@contextmanager
def _without_environment(*names: str) -> Iterator[None]:
    """Hide these environment variables."""
    hidden = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(hidden)
