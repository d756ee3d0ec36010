"""Completions in Parquet."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from sharpen.errors import RunError
from sharpen.records import Completion, Group, Problem, Scores
from sharpen.tracking import completions


def test_there_and_back(tmp_path: Path) -> None:
    one = Completion(tokens=(5, 6, 2), sampling_logprobs=(-0.5, -0.25, -1.0), text="ab", finish_reason="stop")
    group = Group(
        id="3/0/0", problem=Problem(id="p", prompt="q", answer="4", meta={"level": 3}), prompt_tokens=(1,), completions=(one, one)
    )
    scores = Scores(
        total=torch.tensor([[1.0, math.nan]], dtype=torch.float64),
        parts={"accuracy": torch.tensor([[1.0, math.nan]], dtype=torch.float64)},
        correct=torch.tensor([[True, False]]),
        answers=(("4", None),),
    )
    path = completions.path_of(tmp_path / "completions", 3)
    completions.write(path, [group], scores)
    first, second = completions.read(path)
    assert first == {
        "group_id": "3/0/0", "problem_id": "p", "level": "3", "subject": None, "index": 0,
        "prompt": "q", "completion": "ab", "answer": "4", "ground_truth": "4",
        "correct": True, "reward": 1.0, "reward/accuracy": 1.0, "finish_reason": "stop", "length": 3, "tokens": [5, 6, 2],
        "sampling_logprobs": [-0.5, -0.25, -1.0],
    }  # fmt: skip
    assert (second["reward"], second["answer"], second["index"]) == (None, None, 1)
    same = tmp_path / "again.parquet"
    completions.write(same, [group], scores)
    assert same.read_bytes() == path.read_bytes()
    with pytest.raises(RunError, match="it has steps 3 to 3"):
        completions.read(completions.path_of(tmp_path / "completions", 4))
