"""The threads that hand samples to worker processes, each with a worker of its own, and what they do when one is late or lost."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
import traceback
import weakref
from collections import deque
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field, replace

from sharpen.grading.processes import LostError, Server, Settings, StartError, Worker, too_slow
from sharpen.grading.timing import PATIENCE
from sharpen.grading.verdict import Verdict

CLOSED = Verdict("unscorable", "the grading pool was closed", None)

_CHUNK = 16  # samples that one message carries, at most
_CHUNK_CHARACTERS = 200_000
_TRIES = 2

_log = logging.getLogger(__name__)


class Batch:
    """The verdicts of one call, as they come in."""

    def __init__(self, size: int) -> None:
        self.future: Future[list[Verdict]] = Future()
        self._verdicts: list[Verdict | None] = [None] * size
        self._left = size
        self._lock = threading.Lock()
        if not size:
            self.future.set_result([])

    def answer(self, place: int, verdict: Verdict) -> None:
        """Note the verdict on the sample at this place; the first counts."""
        with self._lock:
            if self._verdicts[place] is not None:
                return
            self._verdicts[place] = verdict
            self._left -= 1
            done = self._left == 0
        if done:
            try:
                self.future.set_result([one for one in self._verdicts if one is not None])
            except InvalidStateError:
                if not self.future.cancelled():
                    raise


@dataclass(slots=True)
class Job:
    """A sample that waits for a worker."""

    batch: Batch
    place: int
    kind: str
    problem: bytes
    text: str
    lost: list[str] = field(default_factory=list)

    def answer(self, verdict: Verdict) -> None:
        """Note the verdict on this sample; the first counts."""
        self.batch.answer(self.place, verdict)


class Crew:
    """A queue of samples, and a thread for each worker that takes from it."""

    def __init__(self, settings: Settings, size: int) -> None:
        self._settings, self._size = settings, size
        self.closed = False
        self._reset()
        _crews.add(self)

    def _reset(self) -> None:
        # Entered itself where the main thread may be: entering a condition is Python code, which an interrupt leaves with the lock held.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._starting = threading.Lock()
        self._queue: deque[Job] = deque()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._server: Server | None = None

    def forget(self) -> None:
        """In a child process: the parent's workers are let go of, and others started when they are needed."""
        if self._server is not None:
            self._server.forget()
        self._reset()

    def put(self, job: Job) -> None:
        """Add a sample to those that wait."""
        with self._lock:
            if self.closed:
                job.answer(CLOSED)
                return
            self._queue.append(job)
            self._changed.notify()
            if len(self._queue) > self._idle and len(self._threads) < self._size:
                thread = threading.Thread(target=self._run, name="sharpen-grading", daemon=True)
                thread.start()
                self._threads.append(thread)  # only when it runs: an interrupt may have come before

    def warm(self) -> None:
        """Start the server in the background."""
        threading.Thread(target=self._try_to_start, name="sharpen-grading-start", daemon=True).start()

    def close(self) -> None:
        """End the workers; samples that wait are unscorable."""
        with self._lock:
            self.closed = True
            left, threads, server = list(self._queue), self._threads, self._server
            self._queue.clear()
            self._changed.notify_all()
        for job in left:
            job.answer(CLOSED)
        if server is not None:
            server.stop()
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(5.0)
        _crews.discard(self)

    def _run(self) -> None:
        """What a thread does: one list of samples after another, with one worker as long as that lasts."""
        worker: Worker | None = None
        while jobs := self._take():
            try:
                worker = worker or self._forked()
                worker.send([(job.kind, job.problem, job.text) for job in jobs])
                worker = self._grade(worker, jobs)
            except StartError as error:
                self._give_up(jobs, f"grading workers cannot be started: {error}")
            except LostError as error:
                worker = _end(worker)
                self._again(jobs, str(error))
            except Exception:  # a fault of ours: whoever waits gets a verdict, and not an endless wait
                worker = _end(worker)
                _log.exception("The grading pool failed.")
                self._fail(jobs, f"the grading pool failed\n{traceback.format_exc()}")
        _end(worker)

    def _take(self) -> list[Job]:
        """The next samples for a worker, few enough to leave some for the others; none when the pool closes."""
        with self._changed:
            while True:
                if self.closed:
                    return []
                jobs: list[Job] = []
                most, characters = max(1, min(_CHUNK, len(self._queue) // (2 * self._size))), 0
                while self._queue and len(jobs) < most and characters < _CHUNK_CHARACTERS:
                    job = self._queue[0]
                    if job.lost and jobs:
                        break
                    self._queue.popleft()
                    if job.batch.future.cancelled():
                        continue
                    jobs.append(job)
                    characters += len(job.text)
                    if job.lost:  # alone, so that it can take no other sample with it
                        break
                if jobs:
                    return jobs
                self._idle += 1
                self._changed.wait()
                self._idle -= 1

    def _grade(self, worker: Worker, jobs: list[Job]) -> Worker | None:
        """Wait for the verdicts; the worker, None where it has ended."""
        limit = self._settings.time_limit
        for done, job in enumerate(jobs):
            start = time.monotonic()
            try:
                verdict, spent = self._wait(worker)
            except (TimeoutError, LostError) as error:
                status = worker.end()
                if isinstance(error, TimeoutError) or status == -signal.SIGXCPU:
                    job.answer(replace(too_slow(limit), seconds=time.monotonic() - start))
                else:
                    self._again([job], _cause(status))
                spent = True
            else:
                job.answer(verdict)
                if spent:
                    worker.end()
            if spent:
                self._back(jobs[done + 1 :])
                return None
        return worker

    def _wait(self, worker: Worker) -> tuple[Verdict, bool]:
        """The next verdict; a worker that the machine gives no processor time is given more on the wall clock, as `time_limit` does."""
        limit, start = self._settings.time_limit, time.monotonic()
        # The alarm in the worker rings before, and tells whether it is the text or the ground truth that takes so long.
        seconds = 1.05 * limit + 0.1
        while True:
            try:
                return worker.receive(seconds)
            except TimeoutError:
                missing = limit - worker.processor_time()
                if missing <= 0 or time.monotonic() - start > PATIENCE * limit:
                    raise
                seconds = max(missing, 0.05)

    def _forked(self) -> Worker:
        """A new worker; of a new server where the one there was is just dying, which is no fault of the samples that wait."""
        try:
            return self._started().fork()
        except LostError:
            return self._started().fork()

    def _started(self) -> Server:
        """The server, started anew where it is gone."""
        with self._starting:
            if self._server is not None and self._server.alive:
                return self._server
            if self.closed:
                raise StartError("the pool is closed")
            if self._server is not None:
                self._server.stop()
            if sys.platform != "linux":
                _log.warning("The memory of grading workers is not limited on this system (%s).", sys.platform)
            server = Server(self._settings)
            with self._changed:
                self._server = server
                closed = self.closed
            if closed:  # meanwhile
                server.stop()
            return server

    def _try_to_start(self) -> None:
        try:
            self._started()
        except StartError as error:
            if not self.closed:
                _log.warning("Grading workers cannot be started: %s", error)

    def _again(self, jobs: list[Job], why: str) -> None:
        """Try samples once more whose worker was lost, and give up those that lose a second one."""
        for job in jobs:
            job.lost.append(why)
            if len(job.lost) == _TRIES:
                self._fail([job], f"lost {_TRIES} workers: {'; '.join(job.lost)}")
        self._back([job for job in jobs if len(job.lost) < _TRIES])

    def _back(self, jobs: list[Job]) -> None:
        with self._changed:
            closed = self.closed
            if not closed:
                self._queue.extendleft(reversed(jobs))
                self._changed.notify(len(jobs))
        for job in jobs if closed else ():
            job.answer(CLOSED)

    def _give_up(self, jobs: list[Job], why: str) -> None:
        """Answer these samples and all that wait."""
        with self._changed:
            jobs = [*jobs, *self._queue]
            self._queue.clear()
        self._fail(jobs, why)

    def _fail(self, jobs: list[Job], why: str) -> None:
        for job in jobs:
            job.answer(CLOSED if self.closed else Verdict("unscorable", why, None))


def _end(worker: Worker | None) -> Worker | None:
    """End a worker, and have none then."""
    if worker is not None:
        worker.end()
    return None


def _cause(status: int | None) -> str:
    if status is None:
        return "the server of the workers is gone"
    return f"killed by signal {-status} ({signal.strsignal(-status)})" if status < 0 else f"ended with exit code {status}"


_crews: weakref.WeakSet[Crew] = weakref.WeakSet()


def _forget_all() -> None:
    for crew in list(_crews):
        crew.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
