"""The candidate run: the same bytes twice, what its file says, and what it refuses."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from sharpen.errors import ProblemError, RecipeError, RunError
from sharpen.methods import METHODS
from sharpen.ops.advantages import group_norm
from sharpen.pipelines import post_train as pipeline
from sharpen.pipelines.candidate_task import PARTIAL_CREDIT, make_task, measure, most_probable, standardised
from sharpen.problems import candidate_data
from sharpen.problems.candidate_data import load_worked
from sharpen.tracking.observer import Silent

NAME = "classic-post-training-gsm8k-seed7.json"


@pytest.fixture(autouse=True)
def few_generated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Generated questions, and few of them."""
    monkeypatch.delenv("SHARPEN_DATA", raising=False)
    monkeypatch.setattr(candidate_data, "GENERATED_HELD_OUT", 40)


def run(folder: Path, **given: Any) -> dict[str, Any]:
    settings = {"maximum_examples": 48, "steps": 35, "seed": 7, "offline": True, "output_dir": folder, **given}
    result = pipeline.post_train(**settings)
    assert json.loads(result.path.read_text()) == result.data
    return dict(result.data)


class Notes(Silent):
    def __init__(self) -> None:
        self.notices, self.steps = list[str](), list[int]()

    def notice(self, text: str) -> None:
        self.notices.append(text)

    def step(self, step: int, total: int, metrics: Any, seconds: Any) -> None:
        self.steps.append(step)
        assert {"reward", "pass_rate", "kl", "clip_fraction", "loss"} <= set(metrics) and seconds["step"] > 0


def test_the_same_bytes_twice_whatever_the_threads(tmp_path: Path) -> None:
    texts = []
    threads = torch.get_num_threads()
    try:
        for number in (1, 2):
            torch.set_num_threads(number)
            run(tmp_path / str(number))
            assert torch.get_num_threads() == number
            texts.append((tmp_path / str(number) / NAME).read_bytes())
    finally:
        torch.set_num_threads(threads)
    assert texts[0] == texts[1]
    assert json.dumps(json.loads(texts[0]), indent=2, sort_keys=True) + "\n" == texts[0].decode()
    run(tmp_path / "other", seed=8)
    assert (tmp_path / "other" / NAME.replace("7", "8")).read_bytes() != texts[0]


def test_what_the_file_says(tmp_path: Path) -> None:
    data = run(tmp_path)
    assert data["dataset"] == "generated"
    assert data["questions"] == {"train": 48, "held_out": 40, "left_out": {"train": {}, "held_out": {}}}
    assert (data["old_policy_refreshes"], data["value_model_parameters"]) == (35 // 16, 0)
    assert data["before"]["kl_to_reference"]["value"] == 0.0 < data["after"]["kl_to_reference"]["value"]
    assert data["before"]["expected_accuracy"]["value"] == pytest.approx(1 / 6, abs=1e-6)
    assert data["after"]["accuracy"]["value"] > data["before"]["accuracy"]["value"] + 0.3
    assert data["change"]["accuracy"]["value"] == pytest.approx(
        data["after"]["accuracy"]["value"] - data["before"]["accuracy"]["value"], abs=2e-6
    )
    assert 0.0 < data["mean_clip_fraction"] < 1.0
    assert sum(data["after"]["choices"].values()) == 40
    assert data["after"]["choices"]["true solution"] / 40 == data["after"]["accuracy"]["value"]


def test_the_last_step_adds_up(tmp_path: Path) -> None:
    last = run(tmp_path, group_size=5)["last_step"]
    group = last["group"]
    assert last["step"] == 35
    assert all(len(group[name]) == 5 for name in ("samples", "origins", "rewards", "advantages", "importance_ratios", "clipped"))
    rewards = torch.tensor([group["rewards"]], dtype=torch.float64)
    assert group["advantages"] == pytest.approx(group_norm(rewards)[0].tolist(), abs=1e-4)
    # Three steps after the old policy was renewed: the same candidate has the same ratio, and some ratio is not 1.
    assert len(set(zip(group["samples"], group["importance_ratios"], strict=True))) == len(set(group["samples"]))
    assert last["importance_ratio"]["max"] > 1.0 > last["importance_ratio"]["min"]
    assert all(last["importance_ratio"]["min"] <= ratio <= last["importance_ratio"]["max"] for ratio in group["importance_ratios"])
    clipped = [(a > 0 and r > 1.2) or (a < 0 and r < 0.8) for a, r in zip(group["advantages"], group["importance_ratios"], strict=True)]
    assert group["clipped"] == clipped


@pytest.mark.parametrize(("steps", "ratio_is_one"), [(1, True), (16, False), (17, True)])
def test_ratios_are_one_just_after_the_old_policy_is_renewed(tmp_path: Path, steps: int, ratio_is_one: bool) -> None:
    data = run(tmp_path, steps=steps)
    assert data["old_policy_refreshes"] == steps // 16
    spread = data["last_step"]["importance_ratio"]
    assert (spread["min"] == spread["max"] == 1.0) is ratio_is_one
    if ratio_is_one:
        assert data["last_step"]["clip_fraction"] == 0.0


def test_the_reward_is_stated() -> None:
    task = make_task(load_worked(None, offline=True, seed=0, generated=20), maximum=20, seed=0)
    slips = 0
    for question, rewards, correct in zip(task.questions, task.rewards.tolist(), task.correct.tolist(), strict=True):
        steps = question.problem.meta["solution"].count("<<")
        for origin, reward, right in zip(question.origins, rewards, correct, strict=True):
            assert right is (origin == "true solution")
            if origin == "slipped result":  # all equations but one hold
                assert reward == pytest.approx(PARTIAL_CREDIT * (steps - 1) / steps)
                slips += 1
            else:
                assert reward == pytest.approx(1.0 if right else PARTIAL_CREDIT)
    assert slips > 30


def test_features_know_neither_the_ground_truth_nor_the_place(tmp_path: Path) -> None:
    task = make_task(load_worked(None, offline=True, seed=0, generated=20), maximum=20, seed=0)
    assert torch.allclose(task.features[:20].mean(dim=(0, 1)), torch.zeros(()).double(), atol=1e-9)
    disguised = [
        dataclasses.replace(
            question,
            problem=dataclasses.replace(question.problem, answer="0", meta={}),
            candidates=question.candidates[::-1],
            origins=("?",) * 6,
        )
        for question in task.questions
    ]
    assert torch.allclose(standardised(disguised, trained=20), task.features.flip(1), rtol=0, atol=1e-12)


def test_ties_are_drawn_by_a_seeded_stream() -> None:
    uniform = torch.full((600, 6), 1 / 6, dtype=torch.float64)
    drawn = most_probable(uniform, seed=1)
    assert drawn.tolist() == most_probable(uniform, seed=1).tolist() != most_probable(uniform, seed=2).tolist()
    assert all(int(count) == pytest.approx(100, abs=4 * 9.1) for count in drawn.bincount(minlength=6))
    assert most_probable(torch.tensor([[0.1, 0.4, 0.2, 0.3]]), seed=1).tolist() == [1]
    assert set(most_probable(torch.tensor([[0.1, 0.4, 0.4, 0.1]] * 50), seed=1).tolist()) == {1, 2}


def test_the_divergence_is_exact(tmp_path: Path) -> None:
    task = make_task(load_worked(None, offline=True, seed=0, generated=20), maximum=20, seed=0)
    trained = pipeline.CandidateRun(task, METHODS["grpo"], steps=20, group_size=4, seed=0)
    trained.train(Silent())
    figures = measure(task, trained.policy, trained.reference, seed=0)
    p = trained.policy.distribution(task.held_out)
    by_hand = [sum(x * torch.tensor(6 * x).log().item() for x in row) for row in p.tolist()]  # KL(p ‖ uniform) = Σ p log 6p
    assert figures.measures["kl_to_reference"].numerators.tolist() == pytest.approx(by_hand, abs=1e-6)
    assert trained.reference.module.weight.tolist() == [0.0] * task.features.shape[2]


def test_generated_questions_are_told(tmp_path: Path) -> None:
    notes = Notes()
    run(tmp_path, observer=notes)
    assert "generated word problems stand in" in notes.notices[0]
    assert notes.steps == [1, 16, 32, 35]


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"algorithm": "grop"}, r"algorithm 'grop': unknown. Did you mean 'grpo'\?"),
        ({"dataset": "gsm8k-candidates"}, r"dataset 'gsm8k-candidates': unknown. Did you mean 'gsm8k-candidate'\?"),
        ({"steps": 0}, "steps: expected at least 1, got 0"),
        ({"group_size": 1}, "group_size: expected at least 2, got 1; a group of one has no baseline"),
        ({"maximum_examples": 0}, "maximum_examples: expected at least 1, got 0"),
    ],
)
def test_what_cannot_be_run_is_refused_and_nothing_is_lost(tmp_path: Path, given: dict[str, Any], what: str) -> None:
    (tmp_path / NAME).write_text("an earlier result")
    with pytest.raises(RecipeError, match=what):
        run(tmp_path, **given)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [(NAME, "an earlier result")]


@pytest.mark.parametrize("algorithm", METHODS)
def test_every_method_learns_from_candidates(tmp_path: Path, algorithm: str) -> None:
    data = run(tmp_path, algorithm=algorithm)
    assert data["settings"]["algorithm"] == algorithm
    assert data["change"]["expected_accuracy"]["value"] > 0.1
    assert (data["value_model_parameters"] > 0) is (METHODS[algorithm].value is not None)
    assert data["old_policy_refreshes"] == (35 // 16 if METHODS[algorithm].data_source == "current_policy" else 0)


def test_a_folder_that_cannot_be_written_is_told_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be written"):
        run(tmp_path / "file")


def test_a_faulty_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text('{"question": "2 and 3?", "answer": "<<2+3=5>>5\\n#### 5"}\n{"question": \n')
    (tmp_path / "test.jsonl").write_text('{"question": "2 and 4?", "answer": "<<2+4=6>>6\\n#### 6"}\n')
    with pytest.raises(ProblemError, match=r"train\.jsonl:2: not valid JSON"):
        run(tmp_path / "out", data_dir=tmp_path)


def test_questions_that_take_no_candidates_are_told(tmp_path: Path) -> None:
    for split in ("train", "test"):
        (tmp_path / f"{split}.jsonl").write_text('{"question": "2 and 3?", "answer": "Five.\\n#### 5"}\n')
    with pytest.raises(ProblemError, match=r"no train problem takes candidate answers; \{'no equation': 1\}"):
        run(tmp_path / "out", data_dir=tmp_path)


def test_one_question_is_enough(tmp_path: Path) -> None:
    assert run(tmp_path, maximum_examples=1, steps=2)["questions"]["train"] == 1


def test_the_table_fits_a_terminal(tmp_path: Path) -> None:
    result = pipeline.post_train(maximum_examples=20, steps=2, seed=7, offline=True, output_dir=tmp_path)
    console = Console(width=80, record=True, file=(tmp_path / "shown").open("w"))
    console.print(pipeline.summary_table(result))
    shown = console.export_text()
    assert "…" not in shown
    assert all(word in shown for word in ("accuracy", "KL to reference", "value-model parameters 0", "generated"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [42, 1, 2])
def test_gsm8k(data_dir: Path, tmp_path: Path, seed: int) -> None:
    """The figures this run is for. Accuracy is of the most probable candidate on all held-out questions that take candidates."""
    result = pipeline.post_train(seed=seed, offline=True, data_dir=data_dir, output_dir=tmp_path)
    before, after = result.data["before"], result.data["after"]
    assert result.data["dataset"] == "gsm8k"
    assert result.data["questions"]["train"] == 512 and result.data["questions"]["held_out"] > 1100
    assert before["accuracy"]["value"] < 0.25
    assert 0.7812 <= after["accuracy"]["value"] < 0.95
    assert after["mean_reward"]["value"] >= 0.8169
    assert result.data["old_policy_refreshes"] == 18
    assert result.seconds < 30
