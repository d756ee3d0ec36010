"""Process supervision by hand, the whole way: tokens of completions → steps → their rewards → advantages of tokens.

DeepSeekMath (arXiv:2402.03300) §4.1.3: rewards are normalised over all steps of all completions of a group, and a token's advantage is the
sum of the normalised rewards of its own step and of those after it. The tokenizer has a token a character.
"""

from __future__ import annotations

import math

import pytest
import torch

from sharpen.methods import METHODS
from sharpen.records import Completion, Group, Problem, TrainingBatch
from sharpen.rewards.score import Scorer
from sharpen.rewards.settings import RewardFunctionSettings, RewardSettings, StepSettings
from sharpen.training import batches
from tiny import IM_END, tiny_tokenizer

TOKENIZER = tiny_tokenizer()
PROBLEM = Problem(id="p", prompt="What is 1 + 1 + 4?", answer="6")
EPS = 1e-4  # of grpo_process


def decode(ids) -> str:
    return TOKENIZER.decode(list(ids), skip_special_tokens=False)


def completion(text: str, *, cut: bool = False) -> Completion:
    ids = tuple(TOKENIZER(text, add_special_tokens=False)["input_ids"]) + (() if cut else (IM_END,))
    return Completion(tokens=ids, sampling_logprobs=(-1.0,) * len(ids), text=text, finish_reason="length" if cut else "stop")


def scored(*completions: Completion, **steps: str) -> TrainingBatch:
    """A group of these completions, scored and with the advantages of GRPO with process supervision."""
    accuracy = RewardFunctionSettings(function="accuracy", parameters={"require_stop": True})
    settings = RewardSettings(functions=[accuracy], steps=StepSettings(**steps))
    groups = [Group(id="1/0/0", problem=PROBLEM, prompt_tokens=(7, 8), completions=completions)]
    scores = Scorer(settings, decode=decode).score(groups)
    return METHODS["grpo_process"].with_advantages(batches.build(groups, scores))


def rows(batch: TrainingBatch) -> list[list[float]]:
    """The advantages of each completion's tokens, without the padding, which has none."""
    assert not batch.advantages[~batch.loss_mask].any()
    return [row[mask].tolist() for row, mask in zip(batch.advantages, batch.loss_mask, strict=True)]


def near(rows: list[list[float]]) -> list[object]:
    return [pytest.approx(row, abs=1e-6) for row in rows]


def test_three_completions_of_two_three_and_one_steps() -> None:
    batch = scored(
        completion("1+1=2\n2+4=6"),  # tokens 0 to 5, and 6 to 11 with the stop token: 1, then 1 for the answer
        completion("1+1=3\n3+4=7\n7"),  # tokens 0 to 5, 6 to 11, and 12 and 13: 0, 1 and 0
        completion("5"),  # tokens 0 and 1: 0
    )
    # R = 1, 1, 0, 1, 0, 0: mean 3/6 = 0.5; deviations ±0.5, so the variance is 6 · 0.25 / (6 − 1) = 0.3
    b = 0.5 / (math.sqrt(0.3) + EPS)
    assert b == pytest.approx(0.912704, abs=1e-6)
    # first: +b and +b to come, then +b. Second: −b + b − b = −b; + b − b = 0; −b. Third: −b
    assert rows(batch) == near([[2 * b] * 6 + [b] * 6, [-b] * 6 + [0.0] * 6 + [-b] * 2, [-b] * 2])


def test_rewards_that_are_no_zeros_and_ones(tmp_path) -> None:
    (tmp_path / "mine.py").write_text(
        "WORTH = {'a': 0.25, 'b': 0.75, 'c': 0.5}\n\n\ndef worth(steps):\n    return [[WORTH.get(s) for s in one] for one in steps]\n"
    )
    batch = scored(completion("a\n6"), completion("b\nc\n7"), completion("8"), function=f"{tmp_path}/mine.py:worth")
    # R = 0.25, 1 | 0.75, 0.5, 0 | 0: sum 2.5, mean 5/12. Twelfths off the mean: −2, 7, 4, 1, −5, −5
    # squares 4 + 49 + 16 + 1 + 25 + 25 = 120; variance 120 / 144 / 5 = 1/6, deviation 0.408248
    d = 12 * (math.sqrt(1 / 6) + EPS)
    # first: −2 + 7 = 5, then 7. Second: 4 + 1 − 5 = 0; 1 − 5 = −4; −5. Third: −5
    first, second, third = [5 / d] * 2 + [7 / d] * 2, [0.0] * 2 + [-4 / d] * 2 + [-5 / d] * 2, [-5 / d] * 2
    assert rows(batch) == near([first, second, third])
    assert 5 / d == pytest.approx(1.020371, abs=1e-6)


def test_a_step_that_is_not_judged_is_in_no_mean_and_its_tokens_answer_for_what_follows() -> None:
    batch = scored(completion("hm\n1+1=2\n6"), completion("7"))
    # R = 1, 1 | 0: mean 2/3, deviations 1/3, 1/3, −2/3, variance (1/9 + 1/9 + 4/9) / 2 = 1/3
    b = (1 / 3) / (math.sqrt(1 / 3) + EPS)
    assert rows(batch) == near([[2 * b] * (3 + 6) + [b] * 2, [-2 * b] * 2])


def test_completions_without_a_boundary_are_one_step_each_as_under_outcome_supervision() -> None:
    two = (completion("so it is 6"), completion("so it is 7"))
    batch = scored(*two)
    # 1 and 0: mean 0.5, deviation √0.5
    b = 0.5 / (math.sqrt(0.5) + EPS)
    assert rows(batch) == near([[b] * 11, [-b] * 11])
    for name in ("blank_lines", "sentences", "marked"):
        assert rows(scored(*two, splitter=name)) == rows(batch)


def test_a_step_that_the_length_limit_cuts_ends_at_the_last_token() -> None:
    batch = scored(completion("1+1=2\n2+4=6"), completion("1+1=2\n2+4", cut=True))
    assert batch.tokens.shape[1] == 12
    # The cut one ends at token 8 without a stop token, and its answer does not count: R = 1, 1 | 1, 0, mean 3/4, variance (3/16 + 9/16) / 3
    s = math.sqrt(0.25) + EPS
    assert rows(batch) == near([[0.5 / s] * 6 + [0.25 / s] * 6, [-0.5 / s] * 6 + [-0.75 / s] * 3])
    assert batch.step_rewards is not None
    assert batch.step_rewards[1].nan_to_num(-9.0).tolist() == [-9.0] * 5 + [1.0] + [-9.0] * 2 + [0.0] + [-9.0] * 3


def test_a_completion_that_the_limit_cuts_within_its_only_step() -> None:
    b = 0.5 / (math.sqrt(0.5) + EPS)
    assert rows(scored(completion("6"), completion("1+", cut=True))) == near([[b] * 2, [-b] * 2])


@pytest.mark.parametrize(
    "texts",
    [
        ("1+1=2\n2+4=6", "2+4=6\n\n6", "6"),  # all right
        ("1+1=3\n2+4=7", "2+4=7\n8\n9", "9"),  # all wrong; the middle line of the second is not judged
        ("6",),  # fewer than two steps
    ],
)
def test_equal_rewards_everywhere_give_exactly_no_advantage(texts: tuple[str, ...]) -> None:
    batch = scored(*map(completion, texts))
    assert batch.advantages.tolist() == torch.zeros(batch.tokens.shape).tolist()


TENTHS = """
def worth(steps):
    return [[0.1] * len(one) for one in steps]


def tenth(completions):
    return [0.1] * len(completions)
"""


def test_a_tenth_everywhere_gives_exactly_no_advantage_too(tmp_path) -> None:
    # 0.1 is no binary fraction: its mean over many is not quite 0.1
    (tmp_path / "mine.py").write_text(TENTHS)
    tenth = RewardFunctionSettings(function=f"{tmp_path}/mine.py:tenth")
    settings = RewardSettings(functions=[tenth], steps=StepSettings(function=f"{tmp_path}/mine.py:worth"))
    group = Group(id="0", problem=PROBLEM, prompt_tokens=(7,), completions=(completion("a\nb\nc"), completion("a\nb"), completion("a")))
    batch = METHODS["grpo_process"].with_advantages(batches.build([group], Scorer(settings, decode=decode).score([group])))
    assert not batch.advantages.any()
    assert not batch.advantages.isnan().any()


def test_an_unscorable_completion_has_no_steps_and_is_left_out(tmp_path) -> None:
    (tmp_path / "mine.py").write_text(
        "def some(completions):\n    return [None if c == '5' else float(c.endswith('6')) for c in completions]\n"
    )
    settings = RewardSettings(functions=[RewardFunctionSettings(function=f"{tmp_path}/mine.py:some")])
    group = Group(id="0", problem=PROBLEM, prompt_tokens=(7,), completions=(completion("2+4=6"), completion("5"), completion("7")))
    batch = METHODS["grpo_process"].with_advantages(batches.build([group], Scorer(settings, decode=decode).score([group])))
    b = 0.5 / (math.sqrt(0.5) + EPS)
    assert rows(batch) == near([[b] * 6, [-b] * 2])


def test_another_splitter_moves_the_credit() -> None:
    one, other = completion("1+1=3. 2+4=6"), completion("7")
    # By lines one step, worth the answer: 1 | 0. By sentences 0, 1 | 0: mean 1/3, deviation √(1/3); the full stop is token 5
    b = 0.5 / (math.sqrt(0.5) + EPS)
    assert rows(scored(one, other)) == near([[b] * 13, [-b] * 2])
    c = (1 / 3) / (math.sqrt(1 / 3) + EPS)
    assert rows(scored(one, other, splitter="sentences")) == near([[c] * 6 + [2 * c] * 7, [-c] * 2])
