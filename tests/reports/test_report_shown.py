"""Which completions a page holds, and what it tells of their tokens."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import pytest

from made_up_run import GROUPS, SIZE, MadeUp
from sharpen.reports.pieces import pieces
from sharpen.reports.shown import File, Reader, pack, packed_row, spread, unpack
from sharpen.tracking import completions
from tiny import tiny_tokenizer


def row(**given: object) -> dict[str, object]:
    usual = {
        "problem_id": "p", "level": None, "subject": None, "index": 2, "prompt": "q", "completion": "héi", "answer": None,
        "ground_truth": "4", "correct": False, "reward": None, "finish_reason": "length", "length": 3, "tokens": [1, 2, 3],
        "sampling_logprobs": [-0.5, float("nan"), -1.234], "advantages": [0.5, 0.5, 0.5], "reward/accuracy": 0.0,
    }  # fmt: skip
    return usual | given


def test_a_row_by_hand() -> None:
    found = packed_row(row(), place="training", step=7, cut=lambda tokens: ["h", "é", "i😀"])
    assert found == {
        "w": "training", "s": 7, "i": 2, "c": 0, "r": None, "n": 3, "f": 0, "a": None, "m": {"accuracy": 0.0}, "t": "héi😀",
        "k": [1, 1, 3], "l": [50, None, 123], "v": 0.5,
    }  # fmt: skip
    varying = packed_row(row(advantages=[0.12345, -1.0, 0.0]), place="training", step=7, cut=None)
    assert (varying["v"], varying["k"], varying["t"]) == ([0.1235, -1.0, 0.0], None, "héi")  # four digits; without a tokenizer the text
    assert packed_row(row(advantages=None), place="before", step=0, cut=None)["v"] is None


def test_the_text_of_each_token() -> None:
    tokenizer = tiny_tokenizer().backend_tokenizer
    ids = tokenizer.encode("2 + 2", add_special_tokens=False).ids
    assert "".join(pieces(tokenizer, [*ids, 2])) == "2 + 2<|im_end|>"
    assert pieces(tokenizer, [*ids, 2])[-1] == "<|im_end|>"
    assert pieces(tokenizer, [99999]) == ["<id 99999>"]


def test_rows_of_all_groups_in_turn() -> None:
    assert spread([[0, 1], [2, 3], [4, 5]], turn=1) == [2, 4, 0, 3, 5, 1]
    assert spread([[0, 1, 2], [3]], turn=0) == [0, 3, 1, 2]
    assert spread([], turn=3) == []


def test_packed_and_back() -> None:
    value = {"text": "</script><img src=x onerror=alert(1)> 😀 中"}
    packed = pack(json.dumps(value))
    assert set(packed) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=")
    assert unpack(packed) == value
    assert pack(json.dumps(value)) == packed


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[File]:
    run = MadeUp(steps=12, held_out={0: 0.4}, text=lambda right: "long words " * 30).write(tmp_path_factory.mktemp("shown") / "run")
    folder = run / "completions"
    found = [File(path=completions.path_of(folder, step), place="training", step=step) for step in range(1, 13)]
    return [*found, File(path=run / "evaluation" / "before.parquet", place="before", step=0)]


def test_all_where_they_fit(files: list[File]) -> None:
    found = Reader(None).read(files)
    assert (found.shown, found.of) == (12 * GROUPS * SIZE + 40 * SIZE,) * 2
    assert found.places == {"training": (384, 384), "before": (160, 160)}
    assert (found.tokens, found.advantages) == (False, True)
    held = unpack(found.packed)
    assert len(held["rows"]) == found.shown
    assert held["problems"][held["rows"][0]["p"]] == {"id": "p0", "q": "2 + 2?", "a": "4", "l": "1", "s": None}


@pytest.mark.parametrize("budget", [4_000, 9_000])
def test_a_budget_is_kept_and_spread(files: list[File], budget: int) -> None:
    found = Reader(None, budget).read(files)
    assert len(found.packed) <= budget
    assert 20 < found.shown < found.of
    rows = unpack(found.packed)["rows"]
    training = Counter(one["s"] for one in rows if one["w"] == "training")
    assert set(training) == set(range(1, 13))
    middle = [count for step, count in training.items() if step not in (1, 12)]
    assert max(middle) - min(middle) <= 1
    assert min(training[1], training[12]) >= max(middle)
    problems = Counter(one["p"] for one in rows if one["w"] == "training")
    assert len(problems) == GROUPS


def test_a_completion_that_is_too_large_leaves_room_for_others(tmp_path: Path) -> None:
    rng = random.Random(1)
    huge = "".join(chr(rng.randrange(0x4E00, 0x9FFF)) for _ in range(20_000))  # the right ones alone fill the budget many times over
    run = MadeUp(steps=2, held_out={}, text=lambda right: huge if right else "short").write(tmp_path / "run")
    found = Reader(None, 6_000).read([File(path=completions.path_of(run / "completions", 1), place="training", step=1)])
    assert 0 < found.shown < found.of
    assert len(found.packed) <= 6_000
    assert {row["t"] for row in unpack(found.packed)["rows"]} == {"short"}
