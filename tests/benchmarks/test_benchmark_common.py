"""The benchmarks' arithmetic: ratios, exponents, alternation, and the work that the roofline counts."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from benchmark_scripts import BENCHMARKS, script
from tiny import tiny_model, tiny_tokenizer


@pytest.fixture(scope="module")
def common() -> ModuleType:
    return script("common")


@pytest.fixture(scope="module")
def roofline() -> ModuleType:
    return script("roofline")


def test_the_ratio_is_the_median_over_pairs_with_its_range(common) -> None:
    found = common.ratio([2.0, 4.0, 1.0], [6.0, 8.0, 5.0])  # 6/2 = 3, 8/4 = 2, 5/1 = 5
    assert (found.median, found.low, found.high, found.pairs) == (3.0, 2.0, 5.0, 3)
    assert str(found) == "3.00 [2.00, 5.00]"


def test_a_ratio_needs_pairs(common) -> None:
    with pytest.raises(ValueError):
        common.ratio([1.0, 2.0], [1.0])


def test_the_exponent_of_a_power_is_that_power(common) -> None:
    assert common.exponent([1, 2, 4, 8], [3.0, 12.0, 48.0, 192.0]) == pytest.approx(2.0)  # 3 n²


def test_the_exponent_is_a_least_squares_slope(common) -> None:
    # log2 of sizes 0, 1, 2 and of costs 0, 2, 1: means 1 and 1, slope = (-1·-1 + 0·1 + 1·0) / (1 + 0 + 1) = 1/2
    assert common.exponent([1, 2, 4], [1.0, 4.0, 2.0]) == pytest.approx(0.5)


def test_sides_take_turns(common) -> None:
    order: list[str] = []
    found = common.alternate({"ours": lambda: order.append("ours") or len(order), "peer": lambda: order.append("peer") or len(order)}, 3)
    assert order == ["ours", "peer"] * 3
    assert found == {"ours": [1, 3, 5], "peer": [2, 4, 6]}


def test_the_report_is_found_among_what_libraries_print(common, capsys) -> None:
    print("loading")
    common.report({"seconds": [1.5]})
    assert common.reported(capsys.readouterr().out.splitlines()) == {"seconds": [1.5]}
    assert common.reported(["loading"]) is None


def test_a_failed_worker_tells_why(common) -> None:
    with pytest.raises(RuntimeError, match="no such thing"):
        common.run_worker([sys.executable, "-c", "raise SystemExit('no such thing')"], threads=1)


def test_stories_and_prompts_differ(common) -> None:
    assert len({common.story(i) for i in range(2000)}) == 2000
    first, second = common.prompts(tiny_tokenizer(), 2)
    assert first != second
    assert common.prompts(tiny_tokenizer(), 1, first=1) == [second]


def test_a_weight_that_reads_the_same_input_is_joined(roofline) -> None:
    model = tiny_model(102)  # width 32, 4 heads of 8 over 2 key-value heads, inner width 64, 2 layers
    shapes = {shape: len(weights) for shape, weights in roofline.weights_by_shape(model).items()}
    assert shapes == {
        (32 + 16 + 16, 32): 2,  # q, k and v
        (32, 32): 2,  # o
        (64 + 64, 32): 2,  # gate and up
        (32, 64): 2,  # down
        (102, 32): 1,  # the head
    }
    body, head = roofline.linear_parameters(model)
    assert body == 2 * (64 * 32 + 32 * 32 + 128 * 32 + 32 * 64)
    assert head == 102 * 32


def test_the_cache_holds_a_prompt_once_for_its_group(roofline) -> None:
    # 10 + 20 tokens of prompts; 2 prompts × 3 completions, half of 8 tokens in the mean over the steps
    assert roofline.cached_tokens([10, 20], 3, 8) == 10 + 20 + 2 * 3 * 4
    # keys and values, 2 layers, 2 heads of 8, 4 bytes
    assert roofline.cache_bytes_per_token(tiny_model(102)) == 2 * 2 * 2 * 8 * 4


def test_operations_of_an_update(roofline) -> None:
    model = tiny_model(102)
    body, head = roofline.linear_parameters(model)
    # read: 10 + 20 of prompts, 6 completions of 8 tokens but the last; the head predicts all 48. Forward, backward twice, reference.
    expected = 2 * 4 * (body * (30 + 6 * 7) + head * 48)
    assert roofline.update_operations(model, [10, 20], 3, 8, reference=True) == expected
    assert roofline.update_operations(model, [10, 20], 3, 8, reference=False) == expected * 3 / 4


def test_operations_of_attention(roofline) -> None:
    # One prompt of 10, two completions of 4: 10²/2 pairs in the prompt, and 4 · 10 + 4²/2 for each completion.
    pairs = 50 + 2 * (40 + 8)
    # 4 passes · 4 operations · 2 layers · 4 heads of 8
    assert roofline.attention_operations(tiny_model(102), [10], 2, 4, reference=True) == 4 * 4 * 2 * 4 * 8 * pairs


def test_peak_memory_is_that_of_this_program(common) -> None:
    code = f"import sys; sys.path.insert(0, {str(BENCHMARKS)!r}); import common; common.report(common.peak_memory())"
    if not Path("/proc/self/status").is_file():
        pytest.skip("needs Linux: elsewhere a parent's peak is counted too")
    peak = common.run_worker([sys.executable, "-c", code], threads=1)
    assert 0 < peak["resident"] < 100 * 2**20  # far less than this process, which has torch
    assert peak["device"] is None
