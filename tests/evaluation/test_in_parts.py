"""Evaluations in parts: what is cut where, what is taken over, and what an evaluation's file holds."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from sharpen.errors import RunError, SharpenError
from sharpen.evaluation import in_parts, record
from sharpen.evaluation.evaluate import evaluate, groups_of
from sharpen.records import Completion, Group, Problem
from sharpen.rollout.engine import Sampling
from sharpen.tracking import completions

PROBLEMS = [Problem(id=f"p{i}", prompt=f"What is {i} + 1?", answer=str(i + 1), meta={"level": i % 2 + 1}) for i in range(6)]
SETTINGS = {"samples": 4, "seed": 0}
SAMPLING = Sampling(max_new_tokens=4)


class Rollout:
    """Answers right where problem and sample are both even; notes which problems it was asked for."""

    def __init__(self, die_at: int | None = None) -> None:
        self.asked: list[int] = []
        self.die_at = die_at

    def sample(self, problems, group_size, sampling, *, stream, first=0, on_progress=None) -> list[Group]:
        groups = []
        for place, problem in enumerate(problems, start=first):
            if place == self.die_at:
                raise KeyboardInterrupt
            self.asked.append(place)
            texts = [str(place + 1) if (place + i) % 2 == 0 else "0" for i in range(group_size)]
            made = tuple(
                Completion(tokens=(1,) * (place + i + 1), sampling_logprobs=(-0.5,) * (place + i + 1), text=text, finish_reason="stop")
                for i, text in enumerate(texts)
            )
            groups.append(Group(id=f"0/{place}/0", problem=problem, prompt_tokens=(1,), completions=made))
            if on_progress is not None:
                on_progress(group_size)
        return groups


def run(rollout: Rollout, folder: Path, told: list[int] | None = None, **changed):
    options = {"folder": folder, "settings": SETTINGS, "max_rows": 1, "on_progress": (told if told is not None else []).append}
    return in_parts.evaluate_in_parts(rollout, PROBLEMS, 4, SAMPLING, **(options | changed))


def test_parts_are_whole_problems_of_about_equal_size():
    assert in_parts.cut(20, 64, 128) == [(0, 10), (10, 20)]  # 1,280 completions in parts of about 1,024
    assert in_parts.cut(6, 4, 1) == [(0, 2), (2, 4), (4, 6)]  # 24 in parts of 8
    assert in_parts.cut(3, 1000, 1) == [(0, 1), (1, 2), (2, 3)]  # never less than a problem
    assert in_parts.cut(5, 1, 128) == [(0, 5)]
    for problems, samples, rows in [(1319, 64, 128), (7, 3, 2), (500, 16, 32)]:
        parts = in_parts.cut(problems, samples, rows)
        assert [start for start, _ in parts] == [0, *[stop for _, stop in parts[:-1]]]
        assert parts[-1][1] == problems


def test_an_interrupted_evaluation_goes_on_where_it_stopped(tmp_path):
    whole = run(Rollout(), tmp_path / "whole")
    assert whole == evaluate(Rollout(), PROBLEMS, 4, SAMPLING).results
    with pytest.raises(KeyboardInterrupt):
        run(Rollout(die_at=3), tmp_path / "parts")
    assert sorted(p.name for p in (tmp_path / "parts").iterdir()) == ["part-00000.parquet", "settings.json"]
    again, told, notices = Rollout(), [], []
    assert run(again, tmp_path / "parts", told, notice=notices.append) == whole
    assert again.asked == [2, 3, 4, 5]
    assert sum(told) == 24
    assert notices == ["8 of 24 completions had been sampled before, and are taken over"]
    for folder in ("whole", "parts"):
        in_parts.finish(tmp_path / folder, tmp_path / f"{folder}.json", tmp_path / f"{folder}.parquet", kept())
        assert not (tmp_path / folder).exists()
    assert (tmp_path / "whole.parquet").read_bytes() == (tmp_path / "parts.parquet").read_bytes()
    rows = completions.read(tmp_path / "parts.parquet")
    assert [row["problem_id"] for row in rows[::4]] == [f"p{i}" for i in range(6)]
    assert rows[1]["log/reason"] == "bare: another number" or rows[1]["log/reason"]


def test_parts_of_other_settings_and_damaged_ones_are_done_again(tmp_path):
    run(Rollout(), tmp_path)
    other = Rollout()
    run(other, tmp_path, settings=SETTINGS | {"seed": 1})
    assert other.asked == [0, 1, 2, 3, 4, 5]
    part = tmp_path / "part-00001.parquet"
    part.write_bytes(part.read_bytes()[:100])
    mended = Rollout()
    run(mended, tmp_path, settings=SETTINGS | {"seed": 1})
    assert mended.asked == [2, 3]


def full_on(path: Path) -> None:
    """The disk is full when this file is written: its unfinished form is a device that is always full."""
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full, the device that is always full")
    path.with_suffix(".writing").symlink_to("/dev/full")


def test_a_disk_that_is_full_when_a_part_is_written_costs_that_part_alone(tmp_path):
    whole = run(Rollout(), tmp_path / "whole")
    folder = tmp_path / "parts"
    with pytest.raises(KeyboardInterrupt):
        run(Rollout(die_at=2), folder)
    full_on(folder / "part-00001.parquet")
    with pytest.raises(RunError) as told:
        run(Rollout(), folder)
    assert str(told.value) == (
        f"{folder}/part-00001.parquet: graded completions cannot be written: No space left on device. 8 of 24 completions are kept in "
        f"{folder}; those of this part are sampled again, the same ones.\n"
        "  → Make room there, and start it again as before (a run with --resume): it goes on, and what is kept is not sampled again."
    )
    assert sorted(p.name for p in folder.iterdir()) == ["part-00000.parquet", "settings.json"]
    again = Rollout()
    assert run(again, folder) == whole
    assert again.asked == [2, 3, 4, 5]


def test_a_disk_that_is_full_at_the_beginning(tmp_path, monkeypatch):
    def no_room(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(Path, "write_text", no_room)
        rollout = Rollout()
        with pytest.raises(RunError, match=r"settings\.json: the settings of an evaluation cannot be written: No space.*Nothing has been"):
            run(rollout, tmp_path / "parts")
    assert rollout.asked == []
    assert len(run(Rollout(), tmp_path / "parts")) == 6


@pytest.mark.parametrize("name", ["completions.parquet", "evaluation.json"])
def test_a_disk_that_is_full_at_the_end_loses_no_part(tmp_path, name):
    folder, target, together = tmp_path / "parts", tmp_path / "evaluation.json", tmp_path / "completions.parquet"
    run(Rollout(), folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    full_on(tmp_path / name)
    with pytest.raises(RunError, match=rf"{name}: .* cannot be written: No space left on device\. All completions are kept in"):
        in_parts.finish(folder, target, together, kept())
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert not target.exists()
    rollout = Rollout()
    run(rollout, folder)
    assert rollout.asked == []
    in_parts.finish(folder, target, together, kept())
    assert record.read(target) == kept()
    assert len(completions.read(together)) == 24


def test_levels_and_subjects_of_a_problem():
    assert groups_of(replace(PROBLEMS[0], meta={"level": 5, "subject": "Algebra"})) == {"level": "5", "subject": "Algebra"}
    assert groups_of(replace(PROBLEMS[0], meta={"level": "Level 5", "type": "Geometry"})) == {"level": "5", "subject": "Geometry"}
    assert groups_of(replace(PROBLEMS[0], meta={"level": None, "entry": {"a": 1}})) == {}


def kept(**changed):
    results = evaluate(Rollout(), PROBLEMS, 4, SAMPLING).results
    return record.record({"samples": 4, "seed": 0, "temperature": 0.7} | changed, PROBLEMS, results, [1, 2, 4], seed=0, step=3)


def test_a_record_survives_its_file(tmp_path):
    first = kept()
    record.write(tmp_path / "evaluation.json", first)
    assert record.read(tmp_path / "evaluation.json") == first
    again = tmp_path / "again.json"
    record.write(again, record.read(tmp_path / "evaluation.json"))
    assert again.read_bytes() == (tmp_path / "evaluation.json").read_bytes()
    # even problems have samples 0 and 2 right, odd ones 1 and 3
    assert first.summary.pass_at_k[1].value == 0.5
    assert {level: one.problems for level, one in first.breakdown["level"].items()} == {"1": 3, "2": 3}
    text = again.read_text()
    assert text.count('"problem_id"') == len([line for line in text.splitlines() if '"problem_id"' in line]) == 6


def test_what_is_no_record(tmp_path):
    with pytest.raises(RunError, match="there is no evaluation"):
        record.read(tmp_path / "evaluation.json")
    for text in ("{", "[]", '{"results": []}', '{"results": [{}], "breakdown": {}}'):
        (tmp_path / "evaluation.json").write_text(text)
        with pytest.raises(RunError, match="no evaluation of this version"):
            record.read(tmp_path / "evaluation.json")


def test_settings_that_differ_are_told_and_problems_that_differ_are_refused():
    assert record.differences(kept(), kept(seed=1)) == []
    assert record.differences(kept(), kept(temperature=1.0)) == ["temperature is 0.7 before and 1.0 after"]
    first = kept()
    other = replace(first, digests=first.digests | {"p2": record.digest(replace(PROBLEMS[2], answer="4"))})
    with pytest.raises(SharpenError, match=r"1 problems have the same id .* `p2`\."):
        record.differences(first, other)
