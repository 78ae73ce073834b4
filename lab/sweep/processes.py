"""Runs the tasks of a sweep in this process, or in several processes of this machine.

A task is a pure function of a work directory (`artifacts.resumable`) and its arguments, so a lost process costs
one task.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import connection, get_context, parent_process
from pathlib import Path
from typing import Any

from spectool.artifacts.resumable import TaskResult, finished_task, run_task

NamedTask = tuple[str, Callable[..., TaskResult], tuple[Any, ...]]
"""Name, function, arguments after the work directory."""


@contextmanager
def executor_of(workers: int) -> Iterator[Executor | None]:
    """A pool of processes; None for one worker, whose tasks run in this process."""
    if workers == 1:
        yield None
        return
    # Spawned, not forked: a fork copies the locks of Arrow's and the tokenizer's threads as they are.
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _start_worker)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _start_worker() -> None:
    """Leave Ctrl-C to the parent, use one core, and end when the parent has ended, even if it was killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@dataclass(frozen=True, slots=True)
class Runner:
    """Runs tasks in a work directory."""

    work: Path
    executor: Executor | None  # from `executor_of`
    in_flight: int  # maximum number of tasks handed out and not finished, so that no corpus is read ahead of them

    def results(self, tasks: Iterable[NamedTask]) -> Iterator[tuple[str, TaskResult]]:
        """Yield name and figures of every task as it ends; those of finished ones without running them."""
        running: dict[Future[TaskResult], str] = {}
        try:
            for name, function, arguments in tasks:
                figures = finished_task(self.work, name)
                if figures is None and self.executor is None:
                    figures = run_task(function, self.work, name, *arguments)
                if figures is not None:
                    yield name, figures
                elif self.executor is not None:
                    running[self.executor.submit(run_task, function, self.work, name, *arguments)] = name
                    if len(running) >= self.in_flight:
                        yield from _ended(running)
            while running:
                yield from _ended(running)
        finally:
            for future in running:
                future.cancel()


def _ended(running: dict[Future[TaskResult], str]) -> Iterator[tuple[str, TaskResult]]:
    """Wait until some tasks have ended, take them out, and yield their names and figures."""
    for future in wait(running, return_when=FIRST_COMPLETED).done:
        yield running.pop(future), future.result()
