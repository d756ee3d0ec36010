"""The pool of grading workers: one verdict a sample whatever happens, the same from everywhere, and nothing left behind."""

from __future__ import annotations

import asyncio
import gc
import importlib
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from sharpen.grading import GradingPool, Verdict, grade, pool, quick, shared
from sharpen.grading.crew import Job
from sharpen.grading.math import gold_fault
from sharpen.grading.timing import TimeUpError, time_limit
from sharpen.records import Problem

HERE = Path(__file__).parent
LIMIT = 0.5
MISBEHAVING = "misbehaving:grade"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes and bounds their memory as Linux does")


def problem(answer: str, kind: str = "math", **meta: object) -> Problem:
    return Problem(id=f"p/{answer}", prompt="?", answer=answer, kind=kind, meta=meta)


FINE = (problem("8"), "fine 8")


@pytest.fixture
def rough() -> Iterator[GradingPool]:
    """Two workers that do what the text says."""
    with GradingPool(workers=2, time_limit=LIMIT, memory_limit=2**29, grader=MISBEHAVING) as made:
        yield made


@pytest.fixture(scope="module")
def fair() -> Iterator[GradingPool]:
    """Two workers with the graders of the package."""
    with GradingPool(workers=2, time_limit=10.0) as made:
        yield made


def servers() -> list[psutil.Process]:
    """The servers of this process's pools; a process that has ended is none."""
    alive = [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
    return [child for child in alive if "sharpen.grading.worker" in " ".join(child.cmdline())]


def gone(pid: int, seconds: float = 20.0) -> bool:
    """Whether a process ends in time; one that nobody has waited for yet has ended."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.01)


# --- one verdict a sample ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["loop", "sleep 600", "pow"])
def test_a_hang_costs_its_own_sample_alone(rough: GradingPool, order: str) -> None:
    items = [FINE] * 20 + [(problem("8"), order)] + [FINE] * 20
    verdicts = rough.grade_all(items)
    assert [verdict.outcome for verdict in verdicts] == ["right"] * 20 + ["wrong"] + ["right"] * 20
    assert verdicts[20].reason == "grading takes longer than 0.5 s"
    assert verdicts[20].seconds >= LIMIT


def test_a_text_that_takes_too_much_memory_is_wrong() -> None:
    with GradingPool(workers=2, time_limit=20.0, memory_limit=2**29, grader=MISBEHAVING) as patient:
        verdicts = patient.grade_all([FINE, (problem("8"), "memory"), FINE])
    assert [verdict.outcome for verdict in verdicts] == ["right", "wrong", "right"]
    assert verdicts[1].reason == "grading takes more memory than is allowed"
    assert verdicts[0].extracted != verdicts[1].extracted


@pytest.mark.parametrize(
    ("order", "reason"),
    [
        ("segfault", "lost 2 workers: killed by signal 11 (Segmentation fault); killed by signal 11 (Segmentation fault)"),
        ("exit", "lost 2 workers: ended with exit code 3; ended with exit code 3"),
        ("raise", "RuntimeError: out of order"),
        ("nonsense", "TypeError: expected a Verdict with an extracted text or None, got 'right'"),
    ],
)
def test_a_failure_of_the_machinery_is_unscorable(rough: GradingPool, order: str, reason: str) -> None:
    verdicts = rough.grade_all([FINE, (problem("8"), order), FINE, (problem("9"), "fine 8")])
    assert [verdict.outcome for verdict in verdicts] == ["right", "unscorable", "right", "wrong"]
    assert reason in verdicts[1].reason


def test_a_worker_that_is_lost_once_is_replaced_and_its_sample_tried_again(rough: GradingPool, tmp_path: Path) -> None:
    item = (problem(str(tmp_path / "seen")), f"exit-once {tmp_path / 'seen'}")
    assert [verdict.outcome for verdict in rough.grade_all([FINE, item, FINE])] == ["right"] * 3


def test_a_worker_that_is_killed_from_outside_is_replaced(tmp_path: Path) -> None:
    with GradingPool(workers=2, time_limit=60.0, grader=MISBEHAVING) as made:
        seen = tmp_path / "seen"
        found: list[list[Verdict]] = []
        thread = threading.Thread(target=lambda: found.append(made.grade_all([(problem(str(seen)), f"wait-once {seen}")] + [FINE] * 30)))
        thread.start()
        until(seen.exists)
        os.kill(int(seen.read_text()), signal.SIGKILL)
        thread.join(60)
        assert [verdict.outcome for verdict in found[0]] == ["right"] * 31


def test_a_server_that_is_killed_from_outside_is_replaced(tmp_path: Path) -> None:
    with GradingPool(workers=2, time_limit=60.0, grader=MISBEHAVING) as made:
        known = {server.pid for server in servers()}
        seen = tmp_path / "seen"
        found: list[list[Verdict]] = []
        thread = threading.Thread(target=lambda: found.append(made.grade_all([(problem(str(seen)), f"wait-once {seen}")] + [FINE] * 30)))
        thread.start()
        until(seen.exists)
        [server] = [server for server in servers() if server.pid not in known]
        server.kill()
        assert gone(int(seen.read_text()))
        thread.join(60)
        assert [verdict.outcome for verdict in found[0]] == ["right"] * 31
        assert made.grade_all([FINE])[0].outcome == "right"


def test_order_is_kept(rough: GradingPool) -> None:
    items = [(problem(str(i % 7)), f"fine {i % 5}") for i in range(500)]
    items[100:100] = [(problem("8"), "loop"), (problem("8"), "exit"), (problem("8"), "raise")]
    expected = ["right" if i % 7 == i % 5 else "wrong" for i in range(500)]
    expected[100:100] = ["wrong", "unscorable", "unscorable"]
    assert [verdict.outcome for verdict in rough.grade_all(items)] == expected
    assert rough.grade_all([]) == []


def test_workers_that_cannot_start_are_said_and_not_waited_for() -> None:
    with GradingPool(workers=2, grader="misbehaving:no_such") as made:
        verdicts = made.grade_all([FINE] * 50)
    assert {verdict.outcome for verdict in verdicts} == {"unscorable"}
    assert "grading workers cannot be started: the grader 'misbehaving:no_such' cannot be loaded: AttributeError" in verdicts[0].reason


def test_a_problem_that_cannot_be_handed_over_is_unscorable(rough: GradingPool) -> None:
    verdicts = rough.grade_all([(problem("8", test=lambda: None), "fine 8"), FINE])
    assert [verdict.outcome for verdict in verdicts] == ["unscorable", "right"]
    assert "problem 'p/8' cannot be handed to a worker" in verdicts[0].reason


@pytest.mark.parametrize("wrong", [{"workers": 0}, {"time_limit": 0.0}, {"memory_limit": 2**20}])
def test_limits_that_nothing_can_be_graded_in_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="expected workers ≥ 1, time_limit > 0 s and memory_limit ≥ 268,435,456 bytes"):
        GradingPool(**wrong)  # type: ignore[arg-type]


def test_an_import_is_not_broken_off_by_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "takes_long_to_import.py"
    module.write_text("import time\nend = time.process_time() + 0.5\nwhile time.process_time() < end:\n    pass\nloaded = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(TimeUpError), time_limit(0.1):
        loaded = importlib.import_module("takes_long_to_import")
        assert loaded.loaded
        while True:
            pass
    assert sys.modules["takes_long_to_import"].loaded


def test_workers_have_the_libraries_before_any_limit_begins() -> None:
    with GradingPool(workers=1, time_limit=0.2) as made:
        verdicts = made.grade_all([(problem("x + 1"), r"\boxed{1 + x}"), (problem(r"\frac{x}{2}"), r"\boxed{\frac{1}{2} x}")])
    assert [verdict.outcome for verdict in verdicts] == ["right", "right"]


# --- the same from everywhere --------------------------------------------------------------------------------------------------------

FORMULAS = [
    (problem(r"\frac{\pi}{2}"), r"\boxed{\frac{1}{2}\pi}"),
    (problem("x^2 + 1"), r"\boxed{1 + x^2}"),
    (problem("x^2 + 1"), r"\boxed{1 - x^2}"),
    (problem(r"\frac{"), r"\boxed{1}"),
    (problem(r"\{1, \sqrt{2}\}"), r"\boxed{\{\sqrt2, 1\}}"),
    (problem("12"), r"\boxed{12}"),
    (problem("12"), "none"),
    (problem("B", kind="choice"), r"\boxed{B}"),
    (problem("12", kind="maths"), r"\boxed{12}"),
]
EXPECTED = ["right", "right", "wrong", "unscorable", "right", "right", "wrong", "right", "unscorable"]


def outcomes(made: GradingPool) -> list[str]:
    return [verdict.outcome for verdict in made.grade_all(FORMULAS)]


def test_the_pool_judges_as_the_graders_do(fair: GradingPool) -> None:
    verdicts = fair.grade_all(FORMULAS)
    assert verdicts == [grade(one, text) for one, text in FORMULAS]
    assert [verdict.outcome for verdict in verdicts] == EXPECTED
    assert all(0 < verdict.seconds < 10 for verdict in verdicts[:8])


def test_threads_at_once(fair: GradingPool) -> None:
    found: list[list[str]] = []
    threads = [threading.Thread(target=lambda: found.append(outcomes(fair))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [EXPECTED] * 4


def test_asyncio_goes_on_meanwhile(fair: GradingPool, rough: GradingPool) -> None:
    async def run() -> tuple[list[list[Verdict]], int]:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0.01)
                turns += 1

        counting = asyncio.create_task(count())
        found = await asyncio.gather(fair.grade_all_async(FORMULAS), rough.grade_all_async([FINE, (problem("8"), "loop")]))
        counting.cancel()
        return found, turns

    (formulas, others), turns = asyncio.run(run())
    assert [verdict.outcome for verdict in formulas] == EXPECTED
    assert [verdict.outcome for verdict in others] == ["right", "wrong"]
    assert turns > 5


def _tell(connection: object, made: GradingPool | None) -> None:
    before = len(servers())
    connection.send((before, outcomes(made or shared()), outcomes(shared())))  # type: ignore[attr-defined]


@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_a_child_process_has_workers_of_its_own(fair: GradingPool, way: str) -> None:
    assert outcomes(fair) == EXPECTED == outcomes(shared())
    context = multiprocessing.get_context(way)
    ours, theirs = context.Pipe()
    child = context.Process(target=_tell, args=(theirs, fair if way == "fork" else None))
    child.start()
    assert ours.poll(120), "the child says nothing"
    assert ours.recv() == (0, EXPECTED, EXPECTED)
    mine = {server.pid for server in servers()}
    others = [one.pid for one in psutil.Process(child.pid).children(recursive=True) if one.pid not in mine]
    child.join(30)
    assert all(gone(pid) for pid in others)
    assert outcomes(fair) == EXPECTED == outcomes(shared())


def test_quick_verdicts_need_no_worker_and_no_library() -> None:
    code = """
        import sys
        from sharpen.grading import shared
        from sharpen.records import Problem
        items = [(Problem(id=str(i), prompt="", answer=str(i)), rf"so it is \\boxed{{{i}}}") for i in range(200)]
        items += [(Problem(id="c", prompt="", answer="B", kind="choice"), "(B)")]
        items += [(Problem(id="w", prompt="", answer=r"\\text{even}"), r"\\boxed{even}")]
        assert {verdict.outcome for verdict in shared().grade_all(items)} == {"right"}
        import psutil
        assert not psutil.Process().children()
        assert not {"torch", "sympy", "math_verify", "numpy"} & set(sys.modules), sorted(sys.modules)
    """
    run(code)


def test_workers_hold_no_torch_and_make_way(rough: GradingPool) -> None:
    modules, limits = rough.grade_all([(problem("8"), "modules"), (problem("8"), "limits")])
    assert "torch" not in (modules.extracted or "").split()
    assert limits.extracted == f"{os.nice(0) + 5} True"


def test_what_is_quick() -> None:
    gold_fault.cache_clear()  # what is known of a ground truth is quick
    assert quick(problem("12"), r"\boxed{12}") == Verdict("right", "the last box: the ground truth itself", "12")
    assert quick(problem("12"), r"\boxed{\sqrt{144}}") is None
    assert quick(problem(r"\sqrt{2}"), "none") is None
    assert quick(problem("12"), "12" + " " * 200_000) is None
    assert quick(problem("12", kind="reasoning_gym"), "12") is None


# --- nothing is left behind ----------------------------------------------------------------------------------------------------------


def test_after_close() -> None:
    made = GradingPool(workers=2, grader=MISBEHAVING)
    pid = int(made.grade_all([FINE])[0].extracted or 0)
    made.close()
    made.close()
    assert made.closed
    assert gone(pid)
    with pytest.raises(ValueError, match="The grading pool is closed; make another one"):
        made.grade_all([FINE])


def test_closing_answers_who_waits_in_another_thread(tmp_path: Path) -> None:
    made = GradingPool(workers=1, time_limit=60.0, grader=MISBEHAVING)
    seen = tmp_path / "seen"
    found: list[list[Verdict]] = []
    thread = threading.Thread(target=lambda: found.append(made.grade_all([(problem("8"), f"wait-once {seen}"), FINE])))
    thread.start()
    until(seen.exists)
    made.close()
    thread.join(30)
    assert found == [[Verdict("unscorable", "the grading pool was closed", None)] * 2]
    assert gone(int(seen.read_text()))


def test_a_pool_that_nobody_holds_ends_its_workers() -> None:
    made = GradingPool(workers=2, grader=MISBEHAVING)
    pid = int(made.grade_all([FINE])[0].extracted or 0)
    del made
    gc.collect()
    assert gone(pid)


def test_the_shared_pool_is_made_anew_when_it_was_closed() -> None:
    first = shared()
    assert shared() is first
    first.close()
    assert shared() is not first
    assert outcomes(shared()) == EXPECTED


def test_many_replacements_leave_no_file_and_no_process(rough: GradingPool) -> None:
    rough.grade_all([(problem("8"), "exit")] * 4)
    files, before = psutil.Process().num_fds(), len(psutil.Process().children(recursive=True))
    assert {verdict.outcome for verdict in rough.grade_all([(problem("8"), "exit")] * 60)} == {"unscorable"}
    assert psutil.Process().num_fds() <= files + 2  # a worker each may wait
    assert len(psutil.Process().children(recursive=True)) <= before + 2


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter that finds this package and the tests' grader."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    command = [sys.executable, "-c", textwrap.dedent(code), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in (0, -9, 7), done.stderr
    return done


ENDS = {
    "the program ends": "",
    "it leaves at once": "os._exit(7)",
    "it is killed": "os.kill(os.getpid(), 9)",
    "it is closed": "pool.close()",
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_no_process_outlives_the_interpreter(tmp_path: Path, end: str) -> None:
    seen = tmp_path / "seen"
    code = f"""
        import os, sys, threading, time
        from pathlib import Path
        from sharpen.grading import GradingPool
        from sharpen.records import Problem
        pool = GradingPool(workers=2, time_limit=600, grader="misbehaving:grade")
        hang = (Problem(id="h", prompt="", answer="8"), "wait-once " + sys.argv[1])
        threading.Thread(target=pool.grade_all, args=([hang],), daemon=True).start()
        while not Path(sys.argv[1]).exists():
            time.sleep(0.01)
        print(pool.grade_all([(Problem(id="f", prompt="", answer="8"), "fine 8")])[0].extracted)
        {end}
    """
    idle = run(code, str(seen)).stdout
    assert gone(int(seen.read_text()))
    assert gone(int(idle))


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT raises `KeyboardInterrupt`; a program that a shell starts in the background (`pytest &`) ignores it otherwise."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_leaves_the_pool_usable(tmp_path: Path) -> None:
    with GradingPool(workers=1, time_limit=60.0, grader=MISBEHAVING) as made:
        seen = tmp_path / "seen"

        def interrupt() -> None:
            until(seen.exists)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            made.grade_all([(problem("8"), f"wait-once {seen}")])
        os.kill(int(seen.read_text()), signal.SIGKILL)
        assert made.grade_all([FINE])[0].outcome == "right"


def test_an_interrupt_while_samples_are_handed_over_leaves_none_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with GradingPool(workers=1, time_limit=60.0, grader=MISBEHAVING) as made:
        put, seen = made._crew.put, tmp_path / "seen"

        def interrupted(job: Job) -> None:
            put(job)
            if job.place == 1:
                until(seen.exists)
                raise KeyboardInterrupt

        monkeypatch.setattr(made._crew, "put", interrupted)
        with pytest.raises(KeyboardInterrupt):
            made.grade_all([(problem("8"), f"wait-once {seen}"), (problem("8"), f"exit-once {tmp_path / 'second'}")])
        monkeypatch.setattr(made._crew, "put", put)
        os.kill(int(seen.read_text()), signal.SIGKILL)
        assert made.grade_all([FINE])[0].outcome == "right"
        assert not (tmp_path / "second").exists()


# --- hostile texts -------------------------------------------------------------------------------------------------------------------

HOSTILE = [
    (problem(r"\frac{\pi}{2}"), r"\boxed{\dfrac{5^{(5^{(5^{(5^5)})}-4)}-5}{16}}"),
    (problem("12"), r"\boxed{9^{9^{9^9}}}"),
    (problem("x"), r"\boxed{" + "9" * 10**6 + "}"),
    (problem("12"), r"\boxed{" + "{" * 10**5 + "1" + "}" * (10**5 + 1)),
    (problem("12"), "$ " * (10**6 // 2)),
    (problem("12"), r"\boxed{1} or " * 80_000),
]


@pytest.mark.parametrize("from_a_thread", [False, True])
def test_hostile_texts_cost_what_they_may_and_change_no_other_verdict(from_a_thread: bool) -> None:
    honest = [(problem(f"x + {i}"), rf"\boxed{{{i + i % 2} + x}}") for i in range(60)]
    honest += [(problem(str(i)), rf"it is {i + i % 3 // 2}") for i in range(240)]
    random.Random(0).shuffle(honest)
    items = [item for i, one in enumerate(honest) for item in ([one, HOSTILE[i // 50]] if i % 50 == 25 else [one])]
    found: list[tuple[float, list[Verdict]]] = []
    with GradingPool(workers=2, time_limit=LIMIT) as made:
        made.grade_all([(problem("x"), r"\boxed{2x - x}")] * 2)

        def work() -> None:
            for part in (honest, items):
                start = time.perf_counter()
                verdicts = made.grade_all(part)
                found.append((time.perf_counter() - start, verdicts))

        if from_a_thread:
            thread = threading.Thread(target=work)
            thread.start()
            thread.join(120)
        else:
            work()
    (alone, expected), (took, verdicts) = found
    evil = [verdict for (item, verdict) in zip(items, verdicts, strict=True) if item in HOSTILE]
    assert [verdict for item, verdict in zip(items, verdicts, strict=True) if item not in HOSTILE] == expected
    assert {verdict.outcome for verdict in expected} == {"right", "wrong"}
    assert [verdict.outcome for verdict in evil] == ["wrong"] * 6
    # Twice what is allowed on a machine with nothing else to do.
    assert took < 2 * (alone + len(HOSTILE) * LIMIT / 2) + 2.0


def test_the_default_pool_has_the_documented_limits() -> None:
    assert (pool.TIME_LIMIT, pool.MEMORY_LIMIT) == (5.0, 2**30)
    with GradingPool() as made:
        assert 1 <= made.workers <= 8
