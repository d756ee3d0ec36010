"""The order of problems."""

from __future__ import annotations

from sharpen.records import Problem
from sharpen.training.problem_stream import ProblemStream

PROBLEMS = [Problem(id=str(i), prompt=f"q{i}", answer="a") for i in range(5)]


def ids(stream: ProblemStream, count: int) -> list[str]:
    return [problem.id for problem in stream.take(count)]


def test_each_epoch_visits_every_problem_once_in_another_order() -> None:
    stream = ProblemStream(PROBLEMS, 0)
    first, second = ids(stream, 5), ids(stream, 5)
    assert sorted(first) == sorted(second) == ["0", "1", "2", "3", "4"]
    assert first != second


def test_a_position_is_all_that_a_checkpoint_needs() -> None:
    whole = ids(ProblemStream(PROBLEMS, 3), 13)
    stream = ProblemStream(PROBLEMS, 3)
    head = ids(stream, 7)
    assert head + ids(ProblemStream(PROBLEMS, 3, position=stream.position), 6) == whole
    assert ids(ProblemStream(PROBLEMS, 4), 13) != whole
