"""Grading by a pool of worker processes, so that no text can stop, slow or kill the trainer.

What can be judged quickly is judged in the calling process, by plain arithmetic; the rest goes to workers, which are started when they are
first needed. Every sample has a limit on wall-clock and processor time and every worker one on memory. A sample that breaks one is wrong,
and costs nobody else anything. A worker that is lost for another reason is replaced and its sample tried once more; if that is lost too,
the machinery is at fault and the sample unscorable.

The verdicts are the same from any thread, from asyncio, and from a child process, which starts workers of its own.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

from sharpen.grading.crew import Batch, Crew, Job
from sharpen.grading.processes import Settings
from sharpen.grading.registry import grade, quick
from sharpen.grading.sandbox import SandboxKind
from sharpen.grading.verdict import Verdict
from sharpen.records import Problem

GRADER = "sharpen.grading.registry:grade"
TIME_LIMIT = 5.0
MEMORY_LIMIT = 2**30
LEAST_MEMORY = 2**28
MOST_WORKERS = 8

_NICE = 5


class GradingPool:
    """Workers that grade, started when they are first needed.

    A context manager; without `with`, the workers end with `close`, with the object, or with this process, however it ends.

    Args:
        workers: how many processes at most; one a core, and no more than `MOST_WORKERS`, when None.
        time_limit: seconds that grading one sample may take. Where the machine is busy they are of processor time, so that the verdict does
            not depend on that, and up to three times as many pass on the wall clock.
        memory_limit: bytes that a worker may take, of which the libraries take about 70 MB. Not enforced on macOS.
        grader: `module:function`, called in the workers with a problem and a text; another one than the default grades everything there.

    Attributes:
        workers: how many processes at most.

    Raises:
        ValueError: a limit that nothing can be graded in.
    """

    def __init__(
        self,
        *,
        workers: int | None = None,
        time_limit: float = TIME_LIMIT,
        memory_limit: int = MEMORY_LIMIT,
        grader: str = GRADER,
    ) -> None:
        workers = min(_cores(), MOST_WORKERS) if workers is None else workers
        if workers < 1 or not time_limit > 0 or memory_limit < LEAST_MEMORY:
            raise ValueError(
                f"Grading pool: expected workers ≥ 1, time_limit > 0 s and memory_limit ≥ {LEAST_MEMORY:,} bytes; "
                f"got {workers}, {time_limit} and {memory_limit:,}."
            )
        settings = Settings(grader=grader, time_limit=time_limit, memory_limit=memory_limit, nice=_NICE)
        self.workers = workers
        self._quick = grader == GRADER
        self._crew = Crew(settings, workers)
        self._workers, self._runs = workers, _Threads(workers)
        # The crew's threads hold the crew and not the pool, so a pool that nobody holds is closed.
        self._finalizer = weakref.finalize(self, self._crew.close)

    def __enter__(self) -> GradingPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """Whether the pool takes no more samples."""
        return self._crew.closed

    def close(self) -> None:
        """End the workers. Samples that still wait in another thread are unscorable; programs that have begun come to their end."""
        self._finalizer()
        self._runs.executor.shutdown(wait=False)

    def warm(self) -> None:
        """Start the workers' server in the background: the first sample that needs a worker then need not wait for it, about a second."""
        self._crew.warm()

    def grade_all(self, items: Sequence[tuple[Problem, str]], *, sandbox: SandboxKind = "bubblewrap") -> list[Verdict]:
        """Judge completions, each by its problem's grader.

        Args:
            items: problems, each with the text of a completion.
            sandbox: where the code of completions runs.

        Returns:
            One verdict each, in order, whatever happens to the workers.

        Raises:
            ValueError: the pool is closed.
        """
        batch = Batch(len(items))
        try:
            self._submit(batch, items, sandbox)
            return batch.future.result()
        except BaseException:  # an interrupt, perhaps before all is handed over: nobody waits for the rest
            batch.future.cancel()
            raise

    async def grade_all_async(self, items: Sequence[tuple[Problem, str]], *, sandbox: SandboxKind = "bubblewrap") -> list[Verdict]:
        """`grade_all` for a coroutine, without holding up its event loop."""
        batch = Batch(len(items))
        try:
            await asyncio.to_thread(self._submit, batch, items, sandbox)
            return await asyncio.wrap_future(batch.future)
        except BaseException:
            batch.future.cancel()
            raise

    def _threads(self) -> ThreadPoolExecutor:
        """Where programs are waited for; a forked process has none of its parent's threads, and is given its own."""
        if self._runs.process != os.getpid():
            self._runs = _Threads(self._workers)
        return self._runs.executor

    def _submit(self, batch: Batch, items: Sequence[tuple[Problem, str]], sandbox: SandboxKind) -> None:
        if self.closed:
            raise ValueError("The grading pool is closed; make another one.")
        pickled: dict[int, bytes | str] = {}
        for place, (problem, text) in enumerate(items):
            if self._quick and problem.kind == "code":
                self._threads().submit(_run, batch, place, problem, text, sandbox)
                continue
            if self._quick and (verdict := quick(problem, text)) is not None:
                batch.answer(place, verdict)
                continue
            if id(problem) not in pickled:
                pickled[id(problem)] = _pickled(problem)
            packed = pickled[id(problem)]
            if isinstance(packed, str):
                batch.answer(place, Verdict("unscorable", packed, None))
            else:
                self._crew.put(Job(batch, place, problem.kind, packed, text))


def shared() -> GradingPool:
    """This process's own pool with the default limits."""
    global _shared
    with _shared_lock:
        if _shared is None or _shared.closed:
            _shared = GradingPool()
        return _shared


class _Threads:
    """Threads that wait for programs, which run in processes of their own with limits of their own."""

    def __init__(self, count: int) -> None:
        self.process, self.executor = os.getpid(), ThreadPoolExecutor(count, thread_name_prefix="sharpen-code")


def _run(batch: Batch, place: int, problem: Problem, text: str, sandbox: SandboxKind) -> None:
    """Judge a program, and note the verdict, whatever happens."""
    if batch.future.cancelled():
        return
    try:
        verdict = grade(problem, text, sandbox=sandbox)
    except Exception as error:
        verdict = Verdict("unscorable", f"the program cannot be run: {type(error).__name__}: {error}", None)
    batch.answer(place, verdict)


def _pickled(problem: Problem) -> bytes | str:
    """The problem for a worker; a text says why there is none."""
    fields = {"id": problem.id, "prompt": problem.prompt, "answer": problem.answer, "kind": problem.kind}
    try:
        return pickle.dumps(fields | {"meta": dict(problem.meta)})
    except Exception as error:
        return f"problem '{problem.id}' cannot be handed to a worker: {type(error).__name__}: {error}"


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_shared: GradingPool | None = None
_shared_lock = threading.Lock()


def _unlock() -> None:
    global _shared_lock
    _shared_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock)
