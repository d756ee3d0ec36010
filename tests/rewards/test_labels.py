"""The record of labels that reward models learn from."""

import math

import pyarrow.parquet as pq
import pytest

from sharpen.errors import RewardError
from sharpen.rewards import labels
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


def test_a_file_of_labels(tmp_path):
    rows = [labelled(steps=((0, 0.25), (2, 1.0))), labelled(label=math.nan, prompt_tokens=()), labelled(label=0.5)]
    path = tmp_path / "labels.parquet"
    labels.write(path, rows, about={"seed": 3}, beside={"note": ["a", "b", "c"]})
    got = labels.read(path)
    assert got[0] == rows[0]
    assert got[2] == rows[2]
    assert math.isnan(got[1].label)
    assert labels.about(path) == {"seed": 3}
    assert not list(tmp_path.glob("*.writing"))


def test_files_of_labels_that_cannot_be_read(tmp_path):
    with pytest.raises(RewardError, match="no such file of labels"):
        labels.read(tmp_path / "none.parquet")
    (tmp_path / "text.parquet").write_text("no parquet")
    with pytest.raises(RewardError, match="not a readable file of labels"):
        labels.read(tmp_path / "text.parquet")
    path = tmp_path / "bad.parquet"
    labels.write(path, [labelled(steps=((0, 0.25),))])
    table = pq.read_table(path)
    pq.write_table(table.set_column(table.column_names.index("label_ends"), "label_ends", [[[7]]]), path)
    with pytest.raises(RewardError, match=r"bad.parquet, row 0: .*ends at token 7"):
        labels.read(path)
