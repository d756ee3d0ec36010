from __future__ import annotations

import json
import math

import pytest
import torch

from sharpen.tracking.metrics import Means


def test_means_are_sums_over_sums():
    means = Means()
    means.add("loss", sum=10 * 0.5, count=10)
    means.add("loss", sum=90 * 0.1, count=90)
    assert means.result() == {"loss": pytest.approx(0.14)}  # (5 + 9) / 100; the mean of the means is 0.3


def test_a_max_is_a_max_of_maxes_and_a_min_a_min_of_mins():
    means = Means()
    for largest, smallest in [(3.0, -1.0), (7.0, 0.5), (5.0, -2.0)]:
        means.add_max("gap_max", largest)
        means.add_min("gap_min", smallest)
    assert means.result() == {"gap_max": 7.0, "gap_min": -2.0}


def test_any_cut_into_micro_batches_and_ranks_gives_the_same():
    values = [0.5, -1.25, 3.0, 0.0, 2.5, 8.0]
    whole = Means()
    whole.add("x", sum(values), 6)
    whole.add_max("max", max(values))
    whole.add_min("min", min(values))
    for cut in range(7):
        ranks = []
        for part in (values[:cut], values[cut:]):
            rank = Means()
            for value in part:
                rank.add("x", value, 1)
                rank.add_max("max", value)
                rank.add_min("min", value)
            ranks.append(Means.from_dict(json.loads(json.dumps(rank.to_dict()))))
        ranks[0].merge(ranks[1])
        assert ranks[0].result() == whole.result() == {"max": 8.0, "min": -1.25, "x": 12.75 / 6}


def test_nothing_counted_is_unknown_and_nan_is_not_hidden():
    means = Means()
    means.add("empty", 0.0, 0)
    for value in (1.0, math.nan, 2.0):
        means.add_max("max", value)
        means.add_min("min", value)
    assert all(math.isnan(value) for value in means.result().values())
    assert list(means.result()) == ["empty", "max", "min"]


def test_tensors_are_taken():
    means = Means()
    means.add("x", torch.tensor(3.0), torch.tensor(2))
    means.add_max("m", torch.tensor(1.5))
    assert means.result() == {"m": 1.5, "x": 1.5}
    assert all(type(value) is float for value in means.result().values())


def test_refusals():
    means = Means()
    means.add("x", 1.0, 1)
    with pytest.raises(ValueError, match="`x` is a mean already, and cannot be a max"):
        means.add_max("x", 1.0)
    with pytest.raises(ValueError, match="count of -1"):
        means.add("y", 1.0, -1)
