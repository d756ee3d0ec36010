"""Labels of steps from files and runs: what is written, and going on after a kill."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from sharpen import cli
from sharpen.errors import SharpenError
from sharpen.evaluation import in_parts
from sharpen.pipelines import label_steps as pipeline
from sharpen.pipelines.label_steps import label_steps
from sharpen.records import Completion, Group, Problem, Scores
from sharpen.rewards import labels
from sharpen.rewards.step_labels import MonteCarlo
from sharpen.tracking import completions
from tiny import IM_END, build_tiny, tiny_tokenizer

TOKENIZER = tiny_tokenizer()
DRAWS = MonteCarlo(rollouts=3, max_new_tokens=8, estimate="soft")
ROWS = [
    {"question": "What is 1 + 2?", "completion": "1+1=2\n2+1=3", "answer": "3"},
    {"question": "What is 1 + 2?", "completion": "1+1=3\nso\n4", "answer": 3, "id": "mine"},
    {"question": "What is 2 + 2?", "completion": "1+1=2\n2+", "answer": "4", "finish_reason": "length"},
]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    return str(build_tiny(tmp_path_factory.mktemp("model")))


@pytest.fixture
def texts(tmp_path) -> Path:
    return jsonl(tmp_path / "texts.jsonl", ROWS)


def jsonl(path: Path, rows) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def parquet(path: Path, *, prompt: str = "What is 1 + 2?", kind_of_text: str = "1+1=2\n3") -> Path:
    """Completions as a run writes them: one that stopped and one that the limit cut."""
    ids = tuple(TOKENIZER(kind_of_text, add_special_tokens=False)["input_ids"])
    stopped = Completion(tokens=(*ids, IM_END), sampling_logprobs=(0.0,) * (len(ids) + 1), text=kind_of_text, finish_reason="stop")
    cut = Completion(tokens=ids, sampling_logprobs=(0.0,) * len(ids), text=kind_of_text, finish_reason="length")
    group = Group(id="1/0/0", problem=Problem(id="p", prompt=prompt, answer="3"), prompt_tokens=(5,), completions=(stopped, cut))
    total = torch.ones(1, 2, dtype=torch.float64)
    completions.write(path, [group], Scores(total=total, parts={}, correct=total == 1, answers=(("3", None),)))
    return path


def test_by_rule(model, texts, tmp_path) -> None:
    found = label_steps(texts, model, by="rule", output=tmp_path / "out.parquet")
    assert (found.completions, found.steps, found.labelled) == (3, 7, 6)
    first, second, third = labels.read(tmp_path / "out.parquet")
    assert (first.label, first.steps) == (1.0, ((5, 1.0), (11, 1.0)))
    assert TOKENIZER.decode(list(first.completion_tokens)) == "1+1=2\n2+1=3<|im_end|>"
    assert TOKENIZER.decode(list(first.prompt_tokens)).endswith("What is 1 + 2?<|im_end|>\n<|im_start|>assistant\n")
    assert (second.problem_id, second.label, second.steps) == ("mine", 0.0, ((5, 0.0), (10, 0.0)))  # `so` is not judged
    assert (third.label, third.steps) == (0.0, ((5, 1.0), (7, 0.0)))  # cut: wrong, and its last step ends at its last token
    assert len(third.completion_tokens) == 8
    label_steps(texts, model, by="rule", output=tmp_path / "wrong.parquet", after_error="wrong")
    assert labels.read(tmp_path / "wrong.parquet")[1].steps == ((5, 0.0), (8, 0.0), (10, 0.0))


def test_by_completion_writes_both_labels_and_their_numbers(model, texts, tmp_path) -> None:
    out = tmp_path / "out.parquet"
    found = label_steps(texts, model, output=out, monte_carlo=DRAWS)
    rows = pq.read_table(out).to_pylist()
    assert [row["step_rollouts"] for row in rows] == [[3, 0], [3, 3, 0], [3, 0]]
    assert [row["step_texts"] for row in rows] == [["1+1=2", "2+1=3"], ["1+1=3", "so", "4"], ["1+1=2", "2+"]]
    for row in rows:
        for hard, soft, n in zip(row["step_hard"], row["step_soft"], row["step_rollouts"], strict=True):
            assert hard == float(soft > 0)
            assert n == 0 or round(soft * n) == pytest.approx(soft * n)
    assert [row["step_soft"][-1] for row in rows] == [row["label"] for row in rows] == [1.0, 0.0, 0.0]
    assert (found.cost.steps, found.cost.rollouts) == (4, 12)
    assert found.cost.read < found.cost.unshared
    about = labels.about(out)
    assert (about["seed"], about["rollouts"], about["by"], about["estimate"]) == (0, 3, "monte_carlo", "soft")
    assert not list(tmp_path.glob("*.parts")) and not list(tmp_path.glob("*.writing"))


def test_a_killed_labelling_goes_on_and_a_finished_one_is_shown_again(model, texts, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(in_parts, "cut", lambda count, *_: [(i, i + 1) for i in range(count)])
    whole = label_steps(texts, model, output=tmp_path / "whole.parquet", monte_carlo=DRAWS)
    out, real, done = tmp_path / "out.parquet", pipeline._write, []

    def killed(path, *rest):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(path)
        real(path, *rest)

    monkeypatch.setattr(pipeline, "_write", killed)
    with pytest.raises(KeyboardInterrupt):
        label_steps(texts, model, output=out, monte_carlo=DRAWS)
    assert not out.exists()
    done[1].write_bytes(done[1].read_bytes()[:-20])  # and the machine went down
    written = []
    monkeypatch.setattr(pipeline, "_write", lambda path, *rest: (written.append(path), real(path, *rest)))
    again = label_steps(texts, model, output=out, monte_carlo=DRAWS)
    assert [path.name for path in written] == ["part-00001.parquet", "part-00002.parquet"]
    assert labels.read(out) == labels.read(tmp_path / "whole.parquet")
    assert again.cost.written == whole.cost.written
    label_steps(texts, model, output=out, monte_carlo=DRAWS)
    assert len(written) == 2
    with pytest.raises(SharpenError, match=r"it holds other labels.*seed \(0 there, 1 here\)"):
        label_steps(texts, model, output=out, monte_carlo=MonteCarlo(rollouts=3, max_new_tokens=8, estimate="soft", seed=1))


def test_by_marks(model, tmp_path) -> None:
    rows = [
        {"question": "What?", "steps": ["ab", "c", "d"], "mistake_index": 1, "answer_correct": False},
        {"problem": "What?", "steps": [{"text": "x", "rating": 1}, {"text": "it is 4", "rating": 1}], "ground_truth": "4"},
        {"problem": "What?", "steps": [{"text": "x", "rating": 1}]},
    ]
    label_steps(jsonl(tmp_path / "marks.jsonl", rows), model, by="marks", output=tmp_path / "out.parquet")
    first, second, third = labels.read(tmp_path / "out.parquet")
    # `ab` and its line's end are tokens 0 to 2, `c` and its own 3 and 4; the last step has no label
    assert (first.label, first.steps) == (0.0, ((2, 1.0), (4, 0.0)))
    assert TOKENIZER.decode(list(first.completion_tokens)) == "ab\nc\nd<|im_end|>"
    assert (second.label, second.steps) == (1.0, ((1, 1.0), (9, 1.0)))
    assert math.isnan(third.label)


def test_completions_of_a_run(model, tmp_path) -> None:
    parquet(tmp_path / "run" / "completions" / "step-000001.parquet")
    parquet(tmp_path / "run" / "completions" / "step-000002.parquet")
    found = label_steps(tmp_path / "run", model, by="rule", output=tmp_path / "out.parquet")
    assert (found.completions, found.steps) == (4, 8)
    assert [row.label for row in labels.read(tmp_path / "out.parquet")] == [1.0, 0.0, 1.0, 0.0]
    keys = pq.read_table(tmp_path / "out.parquet")["completion"].to_pylist()
    assert len(set(keys)) == 4  # so that each draws apart


def test_a_runs_recipe_says_how_prompts_are_written_and_what_its_problems_are(model, tmp_path) -> None:
    problems = jsonl(tmp_path / "problems.jsonl", [{"id": "p", "question": "What is 1 + 2?", "answer": "4"}])
    run = tmp_path / "run"
    parquet(run / "completions" / "step-000001.parquet")
    recipe = f"""
model = "{model}"
[template]
name = "plain"
[problems.train]
source = "file"
path = "{problems}"
id_field = "id"
[rollout]
max_new_tokens = 8
[[rewards.functions]]
function = "accuracy"
[training]
steps = 1
"""
    (run / "recipe.toml").write_text(recipe)
    label_steps(run, model, by="rule", output=tmp_path / "out.parquet")
    first = labels.read(tmp_path / "out.parquet")[0]
    assert TOKENIZER.decode(list(first.prompt_tokens)) == "What is 1 + 2?\n"
    assert first.label == 0.0  # the problems of the recipe say 4
    (tmp_path / "problems.jsonl").write_text(json.dumps({"id": "q", "question": "What?", "answer": "4"}) + "\n")
    with pytest.raises(SharpenError, match="problems have no 'p'"):
        label_steps(run, model, by="rule", output=tmp_path / "other.parquet")


def bad_row(place: Path) -> Path:
    return jsonl(place / "bad.jsonl", [ROWS[0], {"question": "What?", "answer": "4"}])


def other_tokens(place: Path) -> Path:
    path = parquet(place / "step-000001.parquet")
    table = pq.read_table(path)
    pq.write_table(table.set_column(table.column_names.index("completion"), "completion", [["1+1=2\n4", "1+1=2\n4"]]), path)
    return path


@pytest.mark.parametrize(
    ("source", "options", "said"),
    [
        (bad_row, {}, "bad.jsonl:2: expected 'completion' or 'prediction'"),
        (lambda place: place / "none.jsonl", {}, "no such file"),
        (lambda place: place, {}, "no completions"),
        (lambda place: jsonl(place / "empty.jsonl", []), {}, "no completions in it"),
        (other_tokens, {}, "row 0: its tokens are not its text"),
        (lambda place: jsonl(place / "t.jsonl", ROWS), {"by": "monte"}, "by 'monte': unknown. Did you mean 'monte_carlo'"),
        (lambda place: jsonl(place / "t.jsonl", ROWS), {"split": "line"}, "Unknown splitter 'line'"),
        (lambda place: jsonl(place / "t.jsonl", ROWS), {"rule": "equation"}, "rule 'equation': unknown. Did you mean 'equations'"),
        (lambda place: jsonl(place / "t.jsonl", ROWS), {"by": "marks"}, "t.jsonl:1: expected 'steps'"),
        (
            lambda place: jsonl(place / "t.jsonl", ROWS),
            {"by": "monte_carlo", "monte_carlo": MonteCarlo(max_new_tokens=250)},
            "250 after the steps of a completion of problem .* the model|has 256",
        ),
    ],
)
def test_what_cannot_be_labelled(model, tmp_path, source, options, said: str) -> None:
    with pytest.raises(SharpenError, match=said):
        label_steps(source(tmp_path), model, **({"by": "rule"} | options), output=tmp_path / "out.parquet")
    assert not (tmp_path / "out.parquet").exists()


def test_the_command(model, texts, tmp_path, monkeypatch, capsys) -> None:
    out = tmp_path / "out.parquet"
    arguments = ["label-steps", str(texts), "--model", model, "--output", str(out), "--rollouts", "2", "--max-new-tokens", "4"]
    monkeypatch.setattr("sys.argv", ["sharpen", *arguments])
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert not left.value.code
    assert "continuations" in capsys.readouterr().out
    assert len(labels.read(out)) == 3
    monkeypatch.setattr("sys.argv", ["sharpen", *arguments, "--estimate", "harder"])
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 2
    assert "--estimate 'harder': expected hard, soft." in capsys.readouterr().err
