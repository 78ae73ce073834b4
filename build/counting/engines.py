"""Runs the tasks of a count in this process, or in processes of this machine.

Tasks are pure functions of a directory, so that a lost process costs one task.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import connection, get_context, parent_process
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from tqdm import tqdm

from spectool.artifacts.work import Figures, finished, perform

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class InProcess(Executor):
    """Runs every task at once, where it is submitted."""

    def submit(
        self, function: Callable[Parameters, Result], /, *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Future[Result]:
        """Run the function; an exception goes to the caller of ``result()``."""
        future: Future[Result] = Future()
        try:
            future.set_result(function(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


@contextmanager
def embedded(workers: int) -> Iterator[Executor]:
    """Give an engine of this machine: this process for one worker, or so many processes beside it."""
    if workers == 1:
        yield InProcess()
        return
    # Spawned, not forked: a fork copies the locks of Arrow's and the tokenizer's threads as they are.
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _start_worker)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _start_worker() -> None:
    """Leave Ctrl-C to the parent, use one core, and end when the parent is gone, however it ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


Task = tuple[str, Callable[..., Figures], tuple[Any, ...]]
"""Name, function, arguments after the work directory."""


@dataclass(frozen=True, slots=True)
class Runner:
    """Runs tasks in a work directory."""

    work: Path
    executor: Executor
    in_flight: int  # most tasks handed out and not finished, so that a corpus is read no faster than it is counted

    def results(self, tasks: Iterable[Task]) -> Iterator[tuple[str, Figures]]:
        """Yield name and figures of every task as it ends; those of finished ones without running them."""
        running: dict[Future[Figures], str] = {}
        try:
            for name, function, arguments in tasks:
                figures = finished(self.work, name)
                if figures is not None:
                    yield name, figures
                    continue
                running[self.executor.submit(perform, function, self.work, name, *arguments)] = name
                if len(running) >= self.in_flight:
                    yield from _ended(running)
            while running:
                yield from _ended(running)
        finally:
            for future in running:
                future.cancel()

    def run(
        self, tasks: Sequence[Task], sizes: Iterable[int] = (), title: str | None = None, unit: str = ""
    ) -> list[Figures]:
        """Run tasks; return their figures in the tasks' order.

        With a title there is a bar, which counts what the tasks' sizes are of, in some unit.
        """
        size, results = dict(zip([name for name, _, _ in tasks], sizes, strict=False)), {}
        hidden = True if title is None else None
        with tqdm(
            total=sum(size.values()), desc=title, unit=f" {unit}", unit_scale=True, leave=False, disable=hidden
        ) as bar:
            for name, figures in self.results(tasks):
                results[name] = figures
                bar.update(size.get(name, 0))
        return [results[name] for name, _, _ in tasks]


def _ended(running: dict[Future[Figures], str]) -> Iterator[tuple[str, Figures]]:
    """Wait until some tasks have ended, take them out, and yield their names and figures."""
    for future in wait(running, return_when=FIRST_COMPLETED).done:
        yield running.pop(future), future.result()
