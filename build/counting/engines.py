"""Who runs the tasks of a count: this process, processes of this machine, or a Dask cluster.

Every engine is a `concurrent.futures.Executor`, and the tasks are the same for all: pure functions
of a directory, so that a lost worker costs one task. On a cluster the directory must lie where all
workers see it.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import connection, get_context, parent_process
from typing import Any, ParamSpec, TypeVar

from spectool import SpectoolError

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


@contextmanager
def dask(workers: int, scheduler: str | None) -> Iterator[Executor]:
    """Give a Dask cluster.

    Args:
        workers: Processes of the cluster on this machine that is started without a scheduler.
        scheduler: Address of a running one, such as ``tcp://10.0.0.1:8786``.

    Raises:
        SpectoolError: Dask is not installed, or the scheduler does not answer.
    """
    distributed = _distributed()
    if scheduler is not None:
        with _client(scheduler) as client:
            yield client.get_executor(pure=False)
        return
    options = {"threads_per_worker": 1, "memory_limit": None, "dashboard_address": None}
    with distributed.LocalCluster(workers, **options) as cluster, distributed.Client(cluster) as client:
        yield client.get_executor(pure=False)


def dask_threads(scheduler: str) -> int:
    """Return how many tasks a running cluster runs at the same time.

    Raises:
        SpectoolError: Dask is not installed, the scheduler does not answer, or it has no worker.
    """
    with _client(scheduler) as client:
        threads = sum(client.nthreads().values())
    if not threads:
        raise SpectoolError(f"{scheduler}: the cluster has no worker. Start some: dask worker {scheduler}")
    return int(threads)


def _client(scheduler: str) -> Any:
    try:
        return _distributed().Client(scheduler, timeout=5)
    except (OSError, ValueError) as error:
        raise SpectoolError(f"{scheduler}: no Dask scheduler answers there ({error}). Check --scheduler") from error


def _distributed() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise SpectoolError("--engine dask needs Dask. Install it: pip install spectool[cluster]") from error
    return distributed


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
