"""The record of labels that reward models learn from."""

import math

import pytest

from sharpen.errors import RewardError
from sharpen.rewards.labels import Labelled


def labelled(**fields):
    return Labelled(**{"problem_id": "sum/1", "prompt_tokens": (5, 6), "completion_tokens": (7, 8, 9), "label": 1.0} | fields)


def test_a_completion_with_labels():
    one = labelled(label=0.5, steps=((0, 1.0), (2, 0.25)))
    assert one.steps == ((0, 1.0), (2, 0.25))
    assert math.isnan(labelled(label=math.nan).label)
    assert labelled(prompt_tokens=()).steps == ()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"problem_id": ""}, "no id"),
        ({"completion_tokens": ()}, "'sum/1'.*no token"),
        ({"prompt_tokens": (3, -1)}, "prompt has token id -1"),
        ({"label": 1.5}, "got 1.5"),
        ({"label": math.inf}, "got inf"),
        ({"steps": ((3, 1.0),)}, "ends at token 3; .* from 0 to 2"),
        ({"steps": ((1, 1.0), (1, 0.0))}, "ends at token 1; .* from 2 to 2"),
        ({"steps": ((1, math.nan),)}, "ends at token 1 has label nan"),
        ({"steps": ((1, -0.1),)}, "label -0.1"),
    ],
)
def test_labels_that_cannot_be(fields, said):
    with pytest.raises(RewardError, match=said):
        labelled(**fields)
