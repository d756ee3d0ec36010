"""Where the gap of Pass@K closes, by hand."""

from __future__ import annotations

import json

import pytest

from sharpen.evaluation.gap import Crossing, Gap, pass_gap


def test_a_gap_that_closes_by_hand():
    # 4 samples, 1 of 4 before and 4 of 4 after on every problem: the gap is 1 − K/4: 3/4, 1/2, 1/4, 0.
    found = pass_gap([1] * 6, [4] * 6, 4, 4, margin=0.3)
    assert found.curve == pytest.approx((3 / 4, 1 / 2, 1 / 4, 0.0))
    assert found.closes == Crossing(3, 3, 3)  # all problems are alike, so every resample is
    assert found.behind == Crossing(None, None, None)
    assert str(found) == "The gap of Pass@K closes at K = 3 [3, 3]; closed is at most 30 points."
    assert pass_gap([1] * 6, [4] * 6, 4, 4, margin=0.05).closes.k == 4


def test_a_gap_that_does_not_close():
    # Half of the problems go from 0 to 4 of 4: the gap is 1/2 at every K.
    found = pass_gap([0, 0, 0, 4, 4, 4], [4] * 6, 4, 4, margin=0.05)
    assert found.curve == pytest.approx((0.5,) * 4)
    assert found.closes.k is None and found.closes.high is None
    assert "does not close up to K = 4" in str(found)


def test_the_model_before_may_be_ahead_in_the_end():
    # One problem of two is lost (2 of 4 → 0), the other goes from 1 to 4: the gap is (3/4 − 1/2)/2, (1/2 − 5/6)/2, ...
    found = pass_gap([2, 1] * 4, [0, 4] * 4, 4, 4, margin=0.05)
    assert found.curve == pytest.approx(((3 / 4 - 1 / 2) / 2, (1 / 2 - 5 / 6) / 2, (1 / 4 - 1) / 2, -1 / 2))
    assert (found.closes.k, found.behind.k) == (2, 2)
    assert "From K = 2 [" in str(found) and "the model before is ahead" in str(found)


def test_no_gap_at_all_and_too_few_problems_for_an_interval():
    same = pass_gap([1, 2], [1, 2], 4, 4, margin=0.05)
    assert not same.interval
    assert same.closes == Crossing(1, None, None)
    assert "no gap to close" in str(same)
    assert "[" not in str(pass_gap([1, 1], [4, 4], 4, 4, margin=0.05))


def test_the_interval_spans_what_resamples_show():
    before, after = [1] * 10 + [8] * 10, [12] * 10 + [12] * 10
    found = pass_gap(before, after, 16, 16, margin=0.05)
    assert found.closes.low is not None and found.closes.high is not None and found.closes.k is not None
    assert found.closes.low <= found.closes.k <= found.closes.high
    assert found == pass_gap(before, after, 16, 16, margin=0.05)
    assert Gap.from_dict(json.loads(json.dumps(found.to_dict()))) == found
