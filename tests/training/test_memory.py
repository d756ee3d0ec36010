"""The memory estimate, against counts by hand and against what autograd really keeps."""

from __future__ import annotations

import pytest
import torch

from sharpen.errors import RunError
from sharpen.models import lora
from sharpen.models.lora_settings import LoraSettings
from sharpen.models.policy import LanguagePolicy
from sharpen.training import memory
from tiny import tiny_model, tiny_tokenizer

SETTINGS = {"temperature": 1.0, "rows": 16, "sequence_length": 100}


@pytest.fixture(scope="module")
def policy() -> LanguagePolicy:
    return LanguagePolicy(tiny_model(len(tiny_tokenizer())))


def test_optimiser_and_reference_by_hand(policy: LanguagePolicy) -> None:
    count = sum(p.numel() for p in policy.module.parameters())
    with_reference = memory.estimate(policy, token_budget=64, needs_reference=True, **SETTINGS)
    # float32: a gradient and two moments of four bytes each
    assert with_reference.optimiser == 12 * count
    assert with_reference.reference == 4 * count
    assert memory.estimate(policy, token_budget=64, needs_reference=False, **SETTINGS).reference == 0
    half = LanguagePolicy(tiny_model(len(tiny_tokenizer())).bfloat16())
    # bfloat16: a gradient of two, two moments of four, the two bytes that a weight lacks, and a master copy and its gradient of four
    assert memory.estimate(half, token_budget=64, needs_reference=False, **SETTINGS).optimiser == 20 * count


def test_the_estimate_is_of_the_optimiser_that_the_run_has(policy: LanguagePolicy) -> None:
    found = memory.estimate(policy, token_budget=64, needs_reference=False, optimiser="adafactor", **SETTINGS)
    # a gradient of four bytes, and a mean square of four for each row and column of a matrix, and for each entry of a vector
    kept = sum(sum(p.shape) if p.dim() == 2 else p.numel() for p in policy.module.parameters())
    assert found.optimiser == 4 * sum(p.numel() for p in policy.module.parameters()) + 4 * kept


def test_the_cache_by_hand(policy: LanguagePolicy) -> None:
    # keys and values · 2 layers · 2 key-value heads · head size 8 · 100 positions · 4 bytes
    assert memory._cache_bytes(policy.module, 100) == 2 * 2 * 2 * 8 * 100 * 4


@pytest.mark.parametrize("tokens", [129, 200])
def test_activations_are_what_autograd_keeps(policy: LanguagePolicy, tokens: int) -> None:
    fixed, per_token = memory.activation_bytes(policy, temperature=1.0)
    # the mask of attention grows with the square of the length, and is small
    assert fixed + per_token * tokens == pytest.approx(memory._kept(policy, tokens, 1.0), rel=0.1)


def test_the_budget_is_the_largest_that_fits(policy: LanguagePolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "resident", lambda device: 10**8)
    settings = {"needs_reference": False, **SETTINGS}
    assert memory.choose_budget(policy, 10**12, **settings) == memory.CPU_BUDGET
    limit = int(memory.estimate(policy, token_budget=512, **settings).peak / memory.HEADROOM) + 1
    assert memory.choose_budget(policy, limit, **settings) == 512
    assert memory.choose_budget(policy, 1, **settings) == 256


def test_what_cannot_fit_is_refused_with_its_parts(policy: LanguagePolicy) -> None:
    needed = memory.MemoryEstimate(baseline=2**30, optimiser=2**30, reference=0, rollout=2**29, training=2**30)
    assert needed.peak == 3 * 2**30
    memory.check(needed, torch.device("cpu"), limit=3 * 2**30)
    with pytest.raises(RunError, match=r"about 3\.0 GiB at its peak \(baseline 1\.0 GiB.*rollout 512 MiB.*2\.0 GiB can be had"):
        memory.check(needed, torch.device("cpu"), limit=2 * 2**30)


def test_human() -> None:
    assert [memory.human(size) for size in (512, 2048, 3 * 2**20, 1.5 * 2**30)] == ["512 B", "2 KiB", "3 MiB", "1.5 GiB"]
    assert memory.peak(torch.device("cpu")) >= memory.resident(torch.device("cpu")) * 0.5


def test_an_adapter_by_hand() -> None:
    model = tiny_model(len(tiny_tokenizer()))
    whole = sum(p.numel() for p in model.parameters())
    lora.attach(model, LoraSettings(rank=2, target_modules=["q_proj"]), seed=0, base="there")
    adapter = 2 * 2 * (32 + 32)  # two layers, rank 2, 32 → 32
    needed = memory.estimate(LanguagePolicy(model), token_budget=64, needs_reference=False, needs_value=True, **SETTINGS)
    assert needed.optimiser == 12 * adapter
    assert needed.saving == 4 * (whole + adapter)
    # the value model is trained whole: weights, a gradient and two moments of four bytes each
    assert needed.value == 16 * (whole + adapter)
