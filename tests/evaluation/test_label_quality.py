"""How labels of steps agree with the truth, by hand."""

from __future__ import annotations

import math

import pytest

from sharpen.evaluation.label_quality import first_error, quality


def test_figures_by_hand() -> None:
    true = [[1.0, 0.0, None], [1.0, 1.0], [0.0, 0.0, 0.0], [1.0, None]]
    said = [[0.9, 0.2, 0.0], [0.0, 1.0], [1.0, None, 0.4], [None, 0.0]]
    got = quality(said, true)
    # both: 2, 2, 2 and 0 of the truth's 2 + 2 + 3 + 1; agreed: 2, 1, 1 of six
    assert (got.solutions, got.steps, got.wrong) == (4, 6, 3)
    assert got.coverage.value == pytest.approx(6 / 8)
    assert got.accuracy.value == pytest.approx(4 / 6)
    # said to be wrong: (first, step 1), (second, step 0), (third, step 2); wrong are the first and the last of these, and (third, step 0)
    assert got.precision.value == pytest.approx(2 / 3)
    assert got.recall.value == pytest.approx(2 / 3)
    # first errors: 1 and 1; 0 and none; 2 and 0; 1 and none
    assert got.first_error.value == 0.25
    assert got.accuracy.low < got.accuracy.value < got.accuracy.high


def test_where_nothing_is_said_there_is_no_figure() -> None:
    got = quality([[None], [None]], [[1.0], [0.0]])
    assert math.isnan(got.accuracy.value) and math.isnan(got.precision.value)
    assert got.coverage.value == 0.0


def test_first_error() -> None:
    assert first_error([1.0, None, 0.4, 0.0]) == 2
    assert first_error([None, 0.5]) is None


def test_other_steps_are_refused() -> None:
    with pytest.raises(ValueError, match="the same steps"):
        quality([[1.0]], [[1.0, 0.0]])
