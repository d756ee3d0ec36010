"""Each rule of a diagnosis: a made-up run that has the fault, and a healthy one."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from made_up_run import MadeUp
from sharpen.errors import RunError
from sharpen.evaluation.history import shift
from sharpen.pipelines.diagnose import diagnose

LEARNED = {"rewards": {"functions": [{"function": "model", "parameters": {"path": "a"}}, {"function": "accuracy", "weight": 0}]}}
# rule, the run that has the fault, words of the evidence
FAULTS = {
    "no signal": (MadeUp(right=lambda t: 0.0, flat=lambda t: 1.0, held_out={}), "Mean reward 0 over steps 1 to 24"),
    "zero variance": (MadeUp(flat=lambda t: 0.3 + 0.7 * t), "of the groups in steps 19 to 24"),
    "length bias": (MadeUp(length_right=lambda t: 40, length_wrong=lambda t: 48 + 60 * t), "Tokens of wrong completions: 5"),
    "reward gamed: rule": (MadeUp(right=lambda t: 0.7 - 0.4 * t, bonus=lambda t: 2 * t, held_out={}), "Right by the grader: 6"),
    "reward gamed: learned": (
        MadeUp(settings=LEARNED, metrics=lambda step: {"reward_gap": 0.05 if step <= 12 else 0.31}),
        "+5.0 points in steps 1 to 5, +20.6 in steps 11 to 15, +31.0 in steps 20 to 24",
    ),
    "reward gamed: held-out": (MadeUp(held_out={0: 0.5, 12: 0.45, 24: 0.2}), "before training"),
    "ratio": (MadeUp(metrics=lambda step: {"ratio": 1.0 if step < 20 else 3.5, "clip_fraction": 0.4}), "steps 20, 21, 22, 23, 24"),
    "engine gap": (MadeUp(metrics=lambda step: {"engine_gap": 0.01 * 1.2**step}), "nats a token in steps 19 to 24"),
    "entropy collapse": (MadeUp(entropy=lambda t: 0.8 * (1 - t) ** 3 + 0.01), "Nats a token: 0."),
    "truncation": (MadeUp(cut=lambda t: 0.5 * t), "were cut at the limit"),
    "gradient spikes": (MadeUp(metrics=lambda step: {"grad_norm": 40.0 if step == 13 else 0.5}), "40 in step 13"),
    "voided updates": (MadeUp(metrics=lambda step: {"updates": float(step - step // 4)}), "6 of 24 updates"),
    "KL": (MadeUp(metrics=lambda step: {"kl": 0.01 * 1.3**step}), "first in step 18"),
}  # fmt: skip


@pytest.mark.parametrize("rule", FAULTS)
def test_a_fault_is_named_and_nothing_else(rule: str, tmp_path: Path) -> None:
    made_up, words = FAULTS[rule]
    found = diagnose(made_up.write(tmp_path / "run"))
    assert [finding.rule for finding in found.findings] == [rule]
    (finding,) = found.findings
    assert words in " ".join(finding.evidence), finding.evidence
    assert finding.title and finding.advice


HEALTHY = {
    "as it should be": MadeUp(),
    "longer answers, right and wrong": MadeUp(length_right=lambda t: 40 + 60 * t, length_wrong=lambda t: 48 + 70 * t),
    "shorter answers": MadeUp(length_right=lambda t: 60 - 40 * t, length_wrong=lambda t: 80 - 50 * t),
    "cut at first only": MadeUp(cut=lambda t: 0.6 * (1 - t) ** 4),
    "entropy falls with success": MadeUp(entropy=lambda t: 1.5 * (1 - t) ** 3 + 0.1),
    "solved, so that one way is left": MadeUp(
        right=lambda t: min(1.0, 0.3 + 1.4 * t), flat=lambda t: 0.7 * t, cut=lambda t: 0.0, entropy=lambda t: (1 - t) ** 3 + 0.02
    ),
    "reward changes its parts": MadeUp(
        right=lambda t: 0.6, bonus=lambda t: float(t > 0.5), reward_changes=(13,), held_out={0: 0.5, 24: 0.3}
    ),
    "not better, not worse": MadeUp(right=lambda t: 0.5, held_out={0: 0.5, 12: 0.52, 24: 0.49}),
    "a learned reward that is off from the start": MadeUp(settings=LEARNED, metrics=lambda step: {"reward_gap": 0.4}),
    "a learned reward that does not count": MadeUp(metrics=lambda step: {"reward_gap": 0.05 * step}),
    "old samples": MadeUp(metrics=lambda step: {"age": float(step), "engine_gap": 0.05 * step}),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_is_said_of_a_healthy_run(name: str, tmp_path: Path) -> None:
    found = diagnose(HEALTHY[name].write(tmp_path / "run"))
    assert found.findings == ()
    assert found.steps == 24


def test_a_gradient_that_is_not_finite(tmp_path: Path) -> None:
    run = MadeUp(metrics=lambda step: {"grad_norm": math.nan if step == 7 else 0.5}).write(tmp_path / "run")
    (finding,) = diagnose(run).findings
    assert finding.rule == "voided updates"
    assert finding.evidence == ("The gradient was not finite in step 7.",)


def test_updates_of_a_value_models_warmup_are_not_missed(tmp_path: Path) -> None:
    settings = {"method": {"name": "ppo"}, "training": {"steps": 24, "value_warmup": 8}}
    late = MadeUp(settings=settings, metrics=lambda step: {"updates": float(max(0, step - 8))})
    assert diagnose(late.write(tmp_path / "run")).findings == ()


def test_a_short_run_is_told_to_be_short(tmp_path: Path) -> None:
    found = diagnose(MadeUp(steps=4, settings={"training": {"steps": 30}}, held_out={}).write(tmp_path / "run"))
    assert found.findings == ()
    told = " ".join(found.notes)
    assert "4 of 30 steps" in told
    assert "need 16 steps" in told
    assert "no two evaluations" in told


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"no run here \(no recipe.toml\)"):
        diagnose(tmp_path)
    run = MadeUp(steps=3).write(tmp_path / "run")
    (run / "events.jsonl").unlink()
    with pytest.raises(RunError, match="no event log"):
        diagnose(run)
    (run / "events.jsonl").write_text("")
    with pytest.raises(RunError, match="no step of training is finished"):
        diagnose(run)


def test_the_shift_of_a_series() -> None:
    found = shift({step: float(step % 2) + (10.0 if step > 9 else 0.0) for step in range(1, 17)})
    assert found is not None
    # 1, 0, 1, 0 and 11, 10, 11, 10: both have the variance 1/3
    assert (found.first, found.last) == (0.5, 10.5)
    assert found.error == pytest.approx(math.sqrt(1 / 12 + 1 / 12))
    assert (found.early, found.late) == ([1, 2, 3, 4], [13, 14, 15, 16])
    assert found.rises and not found.falls
    # three errors, times t(3) = 3.182 over 1.960: a difference of 4.87 errors is needed, 1.99 here
    doubtful = shift({step: float(step % 2) + (1.9 if step > 9 else 0.0) for step in range(1, 17)})
    assert doubtful is not None and not doubtful.rises
    assert shift(dict.fromkeys(range(15), 1.0)) is None
