"""Fitting reward models: the loss of a model by hand, its gradient, and that a killed fit goes on bit for bit."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from sharpen.errors import RewardError, RunError
from sharpen.models import reward_model
from sharpen.models.reward_model import RewardModel
from sharpen.rewards.labels import Labelled
from sharpen.training import reward_fit
from sharpen.training.reward_fit import FitSettings, Pair, backward, balance, fit
from tiny import IM_END, build_tiny

NAN = math.nan


@pytest.fixture(scope="module")
def causal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny(tmp_path_factory.mktemp("causal") / "model")


def fresh(causal: Path, kind: str = "outcome") -> RewardModel:
    return reward_model.new(str(causal), kind, dtype="float32", device="cpu")  # type: ignore[arg-type]


def wide(causal: Path, kind: str = "outcome") -> RewardModel:
    """In float64, with a head that is not 0."""
    module = fresh(causal, kind).module.double()
    with torch.no_grad():
        module.score.weight.copy_(torch.linspace(-0.5, 0.5, 32)[None])
    return RewardModel(module, None, kind=kind, name="wide")  # type: ignore[arg-type]


def labelled(completion: tuple[int, ...], label: float = NAN, steps: tuple[tuple[int, float], ...] = (), problem: int = 0) -> Labelled:
    prompt = (7, 8, 9 + problem % 3)
    return Labelled(problem_id=f"p{problem}", prompt_tokens=prompt, completion_tokens=completion, label=label, steps=steps)


OUTCOMES = [labelled((20, 21, IM_END), 1.0), labelled((22, IM_END), 0.0), labelled((23, 24, 25, 26), 0.25, problem=1), labelled((29,), NAN)]
STEPS = [labelled((20, 21, 22, IM_END), steps=((1, 1.0), (3, 0.0))), labelled((23, 24), steps=((1, 0.5),)), labelled((25, 26), 1.0)]
PAIRS = [
    Pair(problem_id="a", prompt_tokens=(7, 8), chosen=(20, 21, IM_END), rejected=(22, IM_END)),
    Pair(problem_id="b", prompt_tokens=(7, 9), chosen=(23,), rejected=(24, 25, 26)),
]


def softplus(x: float) -> float:
    return math.log1p(math.exp(x))


def test_the_loss_at_a_logit_of_0_is_log_2(causal: Path) -> None:
    assert backward(fresh(causal), reward_fit.usable(OUTCOMES, "outcome"), 64) == pytest.approx(math.log(2), abs=1e-6)
    assert backward(fresh(causal), PAIRS, 64) == pytest.approx(math.log(2), abs=1e-6)


@pytest.mark.parametrize("budget", [1, 12, 1000])
def test_the_loss_of_outcomes_is_the_mean_over_completions(causal: Path, budget: int) -> None:
    model, kept = wide(causal), reward_fit.usable(OUTCOMES, "outcome")
    a, b, c = (model.score([one.prompt_tokens], [one.completion_tokens])[0] for one in kept if isinstance(one, Labelled))
    # −log σ(a), −log(1 − σ(b)), and a quarter and three quarters of both for c; the one without a label has no part in the mean
    by_hand = (softplus(-a) + softplus(b) + 0.25 * softplus(-c) + 0.75 * softplus(c)) / 3
    assert backward(model, kept, budget) == pytest.approx(by_hand, abs=1e-12)
    # d loss / d head is Σ (σ(z) − y) / 3 · h
    hidden = [
        model.module.model(input_ids=torch.tensor([one.prompt_tokens + one.completion_tokens])).last_hidden_state[0, -1] for one in kept
    ]
    pulls = [(1 / (1 + math.exp(-z)) - y) / 3 for z, y in ((a, 1.0), (b, 0.0), (c, 0.25))]
    expected = sum(pull * h.detach() for pull, h in zip(pulls, hidden, strict=True))
    torch.testing.assert_close(model.module.score.weight.grad[0], expected, atol=1e-6, rtol=1e-4)  # their rotations are float32


@pytest.mark.parametrize("budget", [1, 1000])
def test_the_loss_of_steps_is_the_mean_over_labelled_steps(causal: Path, budget: int) -> None:
    model, kept = wide(causal, "process"), reward_fit.usable(STEPS, "process")
    assert len(kept) == 2
    probabilities = model.score_steps([one.prompt_tokens for one in kept], [one.completion_tokens for one in kept], [[1, 3], [1]])
    (p, q), (r,) = probabilities
    by_hand = -(math.log(p) + math.log(1 - q) + 0.5 * math.log(r) + 0.5 * math.log(1 - r)) / 3
    assert backward(model, kept, budget) == pytest.approx(by_hand, abs=1e-12)


@pytest.mark.parametrize("budget", [1, 1000])
def test_the_loss_of_pairs_is_the_mean_over_pairs(causal: Path, budget: int) -> None:
    model = wide(causal)
    scores = model.score([(7, 8), (7, 8), (7, 9), (7, 9)], [PAIRS[0].chosen, PAIRS[0].rejected, PAIRS[1].chosen, PAIRS[1].rejected])
    by_hand = (softplus(scores[1] - scores[0]) + softplus(scores[3] - scores[2])) / 2
    assert backward(model, PAIRS, budget) == pytest.approx(by_hand, abs=1e-12)


@pytest.mark.parametrize(("kind", "examples"), [("outcome", OUTCOMES[:3]), ("process", STEPS[:2]), ("outcome", PAIRS)])
def test_the_gradient_is_that_of_the_loss(causal: Path, kind: str, examples: list[reward_fit.Example]) -> None:
    model = wide(causal, kind)
    weight = model.module.model.layers[0].mlp.up_proj.weight
    backward(model, examples, 1000)
    for place in ((0, 0), (3, 7), (40, 20)):
        slope, step = float(weight.grad[place]), 1e-5
        found = []
        for sign in (1, -1):
            other = wide(causal, kind)
            with torch.no_grad():
                other.module.model.layers[0].mlp.up_proj.weight[place] += sign * step
            found.append(backward(other, examples, 1000))
        assert slope == pytest.approx((found[0] - found[1]) / (2 * step), rel=1e-5, abs=1e-9)


def many(count: int = 24) -> list[Labelled]:
    """Right ones hold token 20 and wrong ones token 21."""
    return [labelled((30 + i % 7, 20 + i % 2, 40 + i % 5, IM_END), float(i % 2 == 0), problem=i) for i in range(count)]


def test_it_learns_what_tells_right_from_wrong(causal: Path, tmp_path: Path) -> None:
    model, told = fresh(causal), list[int]()
    settings = FitSettings(learning_rate=1e-2, epochs=8, batch_size=8)
    losses = fit(model, many(), settings, seed=1, folder=tmp_path, on_progress=told.append)
    assert len(losses) == 24 and sum(told) == 24
    assert losses[0] == pytest.approx(math.log(2), abs=1e-6) and losses[-1] < 0.1
    scores = model.score([one.prompt_tokens for one in many()], [one.completion_tokens for one in many()])
    assert [score > 0 for score in scores] == [one.label == 1.0 for one in many()]


class Killed(Exception):
    pass


@pytest.mark.parametrize(
    "examples", [many(), [Pair(problem_id="x", prompt_tokens=(7,), chosen=(20, 30 + i), rejected=(21, 31 + i)) for i in range(20)]]
)
def test_a_killed_fit_goes_on_bit_for_bit(causal: Path, tmp_path: Path, examples: list[reward_fit.Example]) -> None:
    settings = FitSettings(
        learning_rate=1e-3, epochs=2, batch_size=5, warmup=2, schedule="cosine", weight_decay=0.1, token_budget=30, checkpoint_every=3
    )
    whole = fresh(causal)
    losses = fit(whole, examples, settings, seed=3, folder=tmp_path / "whole")

    done = 0

    def die(count: int) -> None:
        nonlocal done
        done += count
        if done == 5:  # after update 5, whose checkpoint is that of update 3
            raise Killed

    with pytest.raises(Killed):
        fit(fresh(causal), examples, settings, seed=3, folder=tmp_path / "killed", on_progress=die)
    assert [path.name for path in (tmp_path / "killed/checkpoints").iterdir()] == ["step-000003"]
    notices: list[str] = []
    again = fresh(causal)
    assert fit(again, examples, settings, seed=3, folder=tmp_path / "killed", notice=notices.append) == losses
    assert "going on after update 3" in notices[0]
    for (name, one), (_, other) in zip(whole.module.named_parameters(), again.module.named_parameters(), strict=True):
        assert torch.equal(one, other), name
    assert (tmp_path / "whole/fit.jsonl").read_bytes() == (tmp_path / "killed/fit.jsonl").read_bytes()
    assert not torch.equal(whole.module.score.weight, fresh(causal).module.score.weight)


def test_another_fit_is_left_as_it_is(causal: Path, tmp_path: Path) -> None:
    settings = FitSettings(epochs=1, batch_size=12)
    fit(fresh(causal), many(), settings, seed=1, folder=tmp_path)
    with pytest.raises(RunError, match="holds a fit of other examples or settings"):
        fit(fresh(causal), many(22), settings, seed=1, folder=tmp_path)
    with pytest.raises(RunError, match="holds a fit of other examples or settings"):
        fit(fresh(causal), many(), settings, seed=2, folder=tmp_path)
    first = [json.loads(line)["loss"] for line in (tmp_path / "fit.jsonl").read_text().splitlines()]
    assert fit(fresh(causal), many(), settings, seed=1, folder=tmp_path) == first  # finished: nothing is done again


def test_what_cannot_be_fitted_is_told() -> None:
    assert balance(OUTCOMES, "outcome").positive == pytest.approx(1.25 / 3)
    assert (balance(OUTCOMES, "outcome").examples, balance(STEPS, "process").labels, balance(PAIRS, "outcome").labels) == (3, 3, 2)
    with pytest.raises(RewardError, match=r"all 2 labels are 1, so there is nothing to tell apart"):
        balance([labelled((20,), 1.0), labelled((21,), 1.0)], "outcome")
    with pytest.raises(RewardError, match="no completion has a label, of 1 examples"):
        balance([labelled((20,), NAN)], "outcome")
    with pytest.raises(RewardError, match="no step has a label"):
        balance([labelled((20,), 1.0)], "process")
