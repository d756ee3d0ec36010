from __future__ import annotations

import logging
import os
import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest

from sharpen.errors import MissingPackageError, RecipeError
from sharpen.tracking import trackers as module
from sharpen.tracking.trackers import FanOut, TensorBoardTracker, Tracker, TrackioTracker, load_trackers


class Recorder:
    def __init__(self, folder=None, fail_at=None):
        self.folder, self.fail_at, self.seen = folder, fail_at, []

    def _note(self, what, *arguments):
        if what == self.fail_at:
            raise ConnectionError("the server is gone")
        self.seen.append((what, *arguments))

    def start(self, run_name, config):
        self._note("start", run_name, config)

    def log(self, metrics, step):
        self._note("log", metrics, step)

    def finish(self):
        self._note("finish")


def run(fan):
    fan.start("run", {"seed": 1})
    for step in (1, 2):
        fan.log({"reward": step / 4}, step)
    fan.finish()


FULL = [("start", "run", {"seed": 1}), ("log", {"reward": 0.25}, 1), ("log", {"reward": 0.5}, 2), ("finish",)]


@pytest.mark.parametrize(("fail_at", "before"), [("start", 0), ("log", 1), ("finish", 3)])
def test_a_tracker_that_fails_is_left_out_with_one_warning_and_the_others_go_on(caplog, fail_at, before):
    broken, healthy = Recorder(fail_at=fail_at), Recorder()
    with caplog.at_level(logging.WARNING):
        run(FanOut([broken, healthy]))
    assert healthy.seen == FULL
    assert broken.seen == FULL[:before]
    (record,) = caplog.records
    assert record.getMessage() == (
        f"Recorder failed to {fail_at} and is left out from here on (ConnectionError: the server is gone). The run goes on."
    )


def test_the_fan_out_is_a_tracker_and_may_be_empty():
    assert isinstance(FanOut([]), Tracker)
    run(FanOut([]))


def test_names_are_built_in_or_entry_points(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "a_tracker_package", sys.modules[__name__])
    points = [EntryPoint("mine", "a_tracker_package:Recorder", module.GROUP), EntryPoint("broken", "no_such_package:X", module.GROUP)]
    monkeypatch.setattr(module, "entry_points", lambda group: points if group == "sharpen.trackers" else [])
    (mine,) = load_trackers(["mine"], tmp_path)
    assert isinstance(mine, Recorder) and mine.folder == tmp_path
    assert load_trackers([], tmp_path) == []
    with pytest.raises(RecipeError, match=r"'minee'\. Did you mean 'mine'\?\n.*Known trackers: broken, mine, tensorboard, trackio"):
        load_trackers(["minee"], tmp_path)
    with pytest.raises(RecipeError, match="'broken' cannot be loaded: ModuleNotFoundError"):
        load_trackers(["broken"], tmp_path)


@pytest.mark.parametrize("name", ["tensorboard", "trackio"])
def test_a_missing_package_says_how_to_install_it(tmp_path, monkeypatch, name):
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda package: None)
    with pytest.raises(MissingPackageError, match=rf"pip install 'sharpen\[{name}\]'"):
        load_trackers([name], tmp_path)


def test_tensorboard_shows_each_step_once_after_a_resume(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    first = TensorBoardTracker(tmp_path)
    first.start("run", {"seed": 1})
    for step in (1, 2, 3):
        first.log({"reward": step / 4}, step)
    first.finish()
    resumed = TensorBoardTracker(tmp_path)  # from the checkpoint of step 1
    resumed.start("run", {"seed": 1})
    for step in (2, 3, 4):
        resumed.log({"reward": step / 8}, step)
    resumed.finish()
    shown = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(event.step, event.value) for event in shown.Scalars("reward")] == [(1, 0.25), (2, 0.25), (3, 0.375), (4, 0.5)]
    text = b"".join(shown.Tensors("settings/text_summary")[-1].tensor_proto.string_val).decode()
    assert '"run": "run"' in text and '"seed": 1' in text


def test_a_tensorboard_run_without_steps_writes_nothing(tmp_path):
    pytest.importorskip("tensorboard")
    tracker = TensorBoardTracker(tmp_path)
    tracker.start("run", {})
    tracker.finish()
    assert list(tmp_path.iterdir()) == []


TRACKIO = """
import json, pathlib, sqlite3, sys
from sharpen.tracking.trackers import TrackioTracker

tracker = TrackioTracker(pathlib.Path(sys.argv[1]))
tracker.start("run", {"seed": 1, "path": pathlib.Path("x")})
tracker.log({"reward": 0.25}, 1)
tracker.log({"reward": 0.5}, 2)
tracker.finish()
(file,) = pathlib.Path(sys.argv[1]).glob("*.db")
rows = sqlite3.connect(file).execute("select step, metrics from metrics order by step").fetchall()
print("ROWS", json.dumps([(step, json.loads(metrics)["reward"]) for step, metrics in rows]))
"""


def test_trackio_stays_on_this_machine(tmp_path):
    """In a process of its own: Trackio reads its folder when imported. The variables would send the numbers elsewhere."""
    pytest.importorskip("trackio")
    variables = {"TRACKIO_DIR": str(tmp_path), "TRACKIO_SPACE_ID": "someone/space", "TRACKIO_SERVER_URL": "http://127.0.0.1:9/"}
    process = subprocess.run(
        [sys.executable, "-c", TRACKIO, str(tmp_path)], env=os.environ | variables, capture_output=True, text=True, timeout=120
    )
    assert process.returncode == 0, process.stderr
    assert "ROWS [[1, 0.25], [2, 0.5]]" in process.stdout


def test_hidden_variables_come_back(monkeypatch):
    monkeypatch.setenv("TRACKIO_SPACE_ID", "someone/space")
    monkeypatch.delenv("TRACKIO_SERVER_URL", raising=False)
    with pytest.raises(KeyError), module._without_environment("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL"):
        assert "TRACKIO_SPACE_ID" not in os.environ
        raise KeyError
    assert os.environ["TRACKIO_SPACE_ID"] == "someone/space"
    assert "TRACKIO_SERVER_URL" not in os.environ


def test_trackers_that_never_started_can_finish(tmp_path):
    pytest.importorskip("trackio")
    TrackioTracker(tmp_path).finish()
