"""Handing out the tasks of a count: a few at a time, those that are finished not again."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from spectool.artifacts.work import Figures, finished, perform

Task = tuple[str, Callable[..., Figures], tuple[Any, ...]]
"""Name, function, arguments after the work directory."""


@dataclass(frozen=True, slots=True)
class Runner:
    """Runs tasks in a work directory."""

    work: Path  # the directory
    executor: Executor  # the engine
    # tasks handed out and not finished, at most; more are not asked for, so that a corpus is read no faster than it is
    # counted
    in_flight: int

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

    def run(self, *tasks: Task) -> list[Figures]:
        """Run tasks; return their figures in the tasks' order."""
        results = dict(self.results(tasks))
        return [results[name] for name, _, _ in tasks]

    def run_under_bar(self, tasks: list[Task], sizes: Iterable[int], title: str, unit: str) -> list[Figures]:
        """Run tasks as `run` does, under a bar that counts what their sizes are of."""
        size = dict(zip([name for name, _, _ in tasks], sizes, strict=True))
        results = {}
        total = sum(size.values())
        with tqdm(total=total, desc=title, unit=f" {unit}", unit_scale=True, leave=False, disable=None) as bar:
            for name, figures in self.results(tasks):
                results[name] = figures
                bar.update(size[name])
        return [results[name] for name, _, _ in tasks]


def _ended(running: dict[Future[Figures], str]) -> Iterator[tuple[str, Figures]]:
    """Wait until some tasks have ended, take them out, and yield their names and figures."""
    for future in wait(running, return_when=FIRST_COMPLETED).done:
        yield running.pop(future), future.result()
