"""Labels of steps: by completion, by rule, from files."""

from __future__ import annotations

import json

import pytest

from sharpen.errors import ProblemError, RewardError
from sharpen.records import Completion, Problem
from sharpen.rewards.splitters import Step
from sharpen.rewards.step_files import read_marks
from sharpen.rewards.step_labels import Answered, MonteCarlo, StepLabel, by_completion, by_first_error, by_rule
from sharpen.rollout.engine import Sampled
from sharpen.rollout.torch_engine import TorchEngine
from tiny import END_OF_TEXT, IM_END, tiny_model, tiny_tokenizer

TOKENIZER = tiny_tokenizer()


def encode(text: str) -> tuple[int, ...]:
    return tuple(TOKENIZER(text, add_special_tokens=False)["input_ids"])


def decode(ids) -> str:
    return TOKENIZER.decode(list(ids), skip_special_tokens=False)


def answered(text: str, *, key: str = "0", verdict: float | None = 1.0) -> Answered:
    tokens = (*encode(text), IM_END)
    ends = [t for t, c in enumerate(text) if c == "\n"]
    starts = [0, *(end + 1 for end in ends)]
    steps = tuple(Step(end, text[start : end + 1].strip()) for start, end in zip(starts, [*ends, len(tokens) - 1], strict=True))
    completion = Completion(tokens=tokens, sampling_logprobs=(0.0,) * len(tokens), text=text, finish_reason="stop")
    problem = Problem(id="p", prompt="?", answer="1")
    return Answered(key=key, problem=problem, prompt_tokens=encode("Q:"), completion=completion, steps=steps, verdict=verdict)


class Script:
    """An engine that writes what a table says: prefix → the endings of its continuations, in the order of their draws."""

    def __init__(self, table: dict[str, list[str]]) -> None:
        self.table, self.tokens_read, self.asked = table, 0, []
        self.at = dict.fromkeys(table, 0)
        self.seeds: dict[str, list[int]] = {}

    def sample(self, prompts, seeds, sampling, on_progress=None):
        out = []
        for prompt, group in zip(prompts, seeds, strict=True):
            name = decode(prompt)
            self.tokens_read += len(prompt)
            self.seeds.setdefault(name, []).extend(group)
            texts = self.table[name][self.at[name] : self.at[name] + len(group)]
            self.at[name] += len(group)
            out.append([self._sampled(text) for text in texts])
            on_progress(len(group))
        return out

    def _sampled(self, text: str) -> Sampled:
        cut = text.endswith("…")
        ids = (*encode(text.rstrip("…")), *(() if cut else (IM_END,)))
        return Sampled(ids, (0.0,) * len(ids), "length" if cut else "stop")


def judge(items):
    return [None if text.endswith("?") else float(text.endswith("=1")) for _, text in items]


TABLE = {"Q:a\n": ["x=1", "x=2", "x=1…", "x=1"], "Q:a\nb\n": ["x=2", "x?", "x=2", "x=2"]}


def test_shares_by_hand_and_the_last_step_has_the_verdict() -> None:
    engine, done = Script(TABLE), []
    [labels], cost = by_completion([answered("a\nb\nc", verdict=0.0)], engine, decode, judge, MonteCarlo(rollouts=4), done.append)
    # first step: right, wrong, cut at the limit and so wrong, right; second: three wrong, and one that cannot be told
    assert [label.outcomes for label in labels] == [(1.0, 0.0, 0.0, 1.0), (0.0, None, 0.0, 0.0), ()]
    assert [(label.right, label.rollouts, label.hard, label.soft) for label in labels] == [
        (2, 4, 1.0, 0.5),
        (0, 3, 0.0, 0.0),
        (0, 0, 0.0, 0.0),
    ]
    assert [label.value for label in labels] == [1.0, 0.0, 0.0]
    assert (cost.steps, cost.rollouts, cost.read, cost.unshared) == (2, 8, 4 + 6, 4 + 6)
    assert cost.written == (4 + 4 + 3 + 4) + (4 + 3 + 4 + 4)
    assert sum(done) == 8


def test_soft_labels_and_fewer_continuations() -> None:
    [labels], _ = by_completion([answered("a\nb\nc")], Script(TABLE), decode, judge, MonteCarlo(rollouts=4, estimate="soft"))
    assert [label.value for label in labels] == [0.5, 0.0, 1.0]
    assert [labels[0].first(n, "soft").value for n in (1, 2, 3, 4)] == [1.0, 0.5, 1 / 3, 0.5]
    assert [labels[1].first(n, "hard").value for n in (1, 2)] == [0.0, 0.0]
    assert labels[2].first(1, "soft") == labels[2]


def test_cut_continuations_count_where_they_may() -> None:
    settings = MonteCarlo(rollouts=4, estimate="soft", require_stop=False)
    [labels], _ = by_completion([answered("a\nb\nc")], Script(TABLE), decode, judge, settings)
    assert labels[0].value == 0.75


def test_what_cannot_be_told_is_no_label() -> None:
    table = {"Q:a\n": ["x?", "y?"]}
    [labels], _ = by_completion([answered("a\nb", verdict=None)], Script(table), decode, judge, MonteCarlo(rollouts=2))
    assert labels == [StepLabel(None, (None, None)), StepLabel(None)]
    assert (labels[0].hard, labels[0].soft) == (None, None)


def test_an_early_stop_saves_continuations_and_gives_no_share() -> None:
    engine, done = Script(TABLE), []
    settings = MonteCarlo(rollouts=4, stop_early=True, round_size=1)
    [labels], cost = by_completion([answered("a\nb\nc")], engine, decode, judge, settings, done.append)
    assert [label.outcomes for label in labels] == [(1.0,), (0.0, None, 0.0, 0.0), ()]
    assert [label.value for label in labels] == [1.0, 0.0, 1.0]
    assert [label.soft for label in labels] == [None, None, 1.0]
    assert cost.rollouts == 5
    assert sum(done) == 8  # what need not be sampled counts as done
    # the draws are those of a labelling that does not stop
    full = Script(TABLE)
    by_completion([answered("a\nb\nc")], full, decode, judge, MonteCarlo(rollouts=4))
    assert engine.seeds["Q:a\n"] == full.seeds["Q:a\n"][:1]
    assert engine.seeds["Q:a\nb\n"] == full.seeds["Q:a\nb\n"]


def test_draws_are_of_seed_problem_completion_step_and_rollout_alone() -> None:
    seeds = Script({name: rows * 2 for name, rows in TABLE.items()})
    by_completion([answered("a\nb\nc", key="0"), answered("a\nb\nc", key="1")], seeds, decode, judge, MonteCarlo(rollouts=4))
    every = [seed for group in seeds.seeds.values() for seed in group]
    assert len(set(every)) == 16
    alone = Script(TABLE)
    by_completion([answered("a\nb\nc", key="1")], alone, decode, judge, MonteCarlo(rollouts=4))
    assert {name: group[4:] for name, group in seeds.seeds.items()} == alone.seeds
    other = Script(TABLE)
    by_completion([answered("a\nb\nc", key="1")], other, decode, judge, MonteCarlo(rollouts=4, seed=1))
    assert not {s for g in other.seeds.values() for s in g} & set(every)


def test_one_step_needs_no_continuation() -> None:
    assert by_completion([answered("a", verdict=None)], Script({}), decode, judge, MonteCarlo())[0] == [[StepLabel(None)]]
    assert by_completion([], Script({}), decode, judge, MonteCarlo())[0] == []


def test_with_a_model_batches_and_shared_beginnings_change_nothing() -> None:
    model = tiny_model(len(TOKENIZER))
    some = [answered("ab\ncd\ne", key="0"), answered("ab\nxyz\n\nf", key="1"), answered("q", key="2")]
    settings = MonteCarlo(rollouts=6, max_new_tokens=12, estimate="soft", require_stop=False)

    def vowel(items):
        return [float(any(c in "aeiou" for c in text[-4:])) for _, text in items]

    def labels(rows: int, share: bool, which=slice(None)):
        engine = TorchEngine(model, (IM_END, END_OF_TEXT), max_rows=rows, share_prefixes=share)
        return by_completion(some[which], engine, decode, vowel, settings)

    whole, cost = labels(128, True)
    assert labels(5, False)[0] == labels(128, False)[0] == whole
    assert labels(128, True, slice(1, 2))[0] == whole[1:2]
    assert any(0 < label.value < 1 for row in whole for label in row if label.value is not None)
    # prompt Q: and the beginnings `ab.cd.`, `ab.xyz..`: read up to their last but one step, once
    assert cost.read == (2 + 6) + (2 + 8) < cost.unshared == (2 + 3) + (2 + 6) + (2 + 3) + (2 + 7) + (2 + 8)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"rollouts": 0}, "at least 1"),
        ({"temperature": 0.0}, "temperature above 0"),
        ({"estimate": "soft", "stop_early": True}, "no share"),
    ],
)
def test_settings_that_cannot_be(given, said: str) -> None:
    with pytest.raises(RewardError, match=said):
        MonteCarlo(**given)


# --- the rule ------------------------------------------------------------------------------------------------------------------------


def test_by_rule() -> None:
    texts = ["7*3=21", "so", "21+12=34", "34-4=30", "Answer: 30"]
    assert [label.value for label in by_rule(texts, 0.0)] == [1.0, None, 0.0, 1.0, 0.0]
    assert [label.value for label in by_rule(texts)] == [1.0, None, 0.0, 1.0, None]
    assert [label.value for label in by_rule(texts, after_error="wrong")] == [1.0, None, 0.0, 0.0, 0.0]
    assert [label.value for label in by_rule(["1+1=2"], 0.0)] == [1.0]  # its equation holds, whatever the answer is worth


def test_by_first_error() -> None:
    assert [label.value for label in by_first_error(4, 1, "judge")] == [1.0, 0.0, None, None]
    assert [label.value for label in by_first_error(4, 1, "wrong")] == [1.0, 0.0, 0.0, 0.0]
    assert [label.value for label in by_first_error(2, None, "wrong")] == [1.0, 1.0]


# --- files ---------------------------------------------------------------------------------------------------------------------------


def written(tmp_path, *rows) -> object:
    path = tmp_path / "marks.jsonl"
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


RATED = {
    "problem": "What?",
    "steps": [{"text": "a", "rating": 1}, {"text": "b", "rating": 0}, {"text": "c", "rating": -1}, {"text": "d", "rating": None}],
    "ground_truth": 4,
}
MISTAKE = {"id": "m", "question": "What?", "steps": ["a", "b", "c"], "mistake_index": 1, "gold": "4", "answer_correct": False}


def test_ratings(tmp_path) -> None:
    path = written(tmp_path, RATED)
    [one] = read_marks(path)
    assert (one.id, one.question, one.gold, one.texts, one.correct) == ("marks/0", "What?", "4", ("a", "b", "c", "d"), None)
    assert [label.value for label in one.labels] == [1.0, 1.0, 0.0, None]
    assert one.first_error == 2
    for neutral, value in {"wrong": 0.0, "none": None}.items():
        assert [label.value for label in read_marks(path, neutral=neutral)[0].labels] == [1.0, value, 0.0, None]
    assert [label.value for label in read_marks(path, after_error="wrong")[0].labels] == [1.0, 1.0, 0.0, 0.0]


def test_first_mistakes(tmp_path) -> None:
    counted_from_one = {key: value for key, value in MISTAKE.items() if key != "mistake_index"} | {"first_error_step": 3}
    rows = [MISTAKE, MISTAKE | {"mistake_index": -1}, MISTAKE | {"mistake_index": None}, counted_from_one]
    found = read_marks(written(tmp_path, *rows))
    assert [[label.value for label in one.labels] for one in found] == [[1.0, 0.0, None], [1.0] * 3, [1.0] * 3, [1.0, 1.0, 0.0]]
    assert (found[0].id, found[0].correct) == ("m", 0.0)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("{", "not valid JSON"),
        ({"steps": ["a"], "mistake_index": 0}, "expected the problem's text"),
        (MISTAKE | {"steps": []}, "expected 'steps'"),
        (MISTAKE | {"steps": ["a", " "]}, "step 1 has no text"),
        (MISTAKE | {"mistake_index": 3}, "mistake_index is 3; expected 0 to 2"),
        (MISTAKE | {"mistake_index": "1"}, "mistake_index is '1'"),
        (MISTAKE | {"answer_correct": "no"}, "'answer_correct' to be true or false"),
        ({"question": "What?", "steps": ["a"]}, "steps without a mark"),
        ({"question": "What?", "steps": ["a"], "first_error_step": 0}, "first_error_step is 0; expected 1 to 1"),
        (RATED | {"steps": [{"text": "a", "rating": 2}]}, "step 0 has rating 2"),
        (RATED | {"steps": [{"text": "a", "rating": True}]}, "step 0 has rating True"),
        (RATED | {"steps": [{"text": "a", "rating": 1}, {"text": "b"}]}, "step 1 has no rating"),
        (RATED | {"steps": [{"text": "a", "rating": 1}, "b"]}, "step 1 has no rating"),
    ],
)
def test_bad_marks_are_told_with_file_and_line(tmp_path, row, said: str) -> None:
    with pytest.raises((RewardError, ProblemError), match=said) as error:
        read_marks(written(tmp_path, MISTAKE, row))
    assert "marks.jsonl:2" in str(error.value)


def test_people_marked_these(data_dir) -> None:
    bench, grade_school = (read_marks(data_dir / "steps" / name) for name in ("bigbench_mistake.jsonl", "mr_gsm8k_subset.jsonl"))
    assert (len(bench), len(grade_school)) == (900, 590)
    assert sum(one.first_error is None for one in bench) == 108
    assert all(one.first_error is not None for one in grade_school)
