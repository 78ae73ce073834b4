"""The thread that owns the models. Requests come to it as jobs, and it answers them one after the other.

Nobody else touches MLX. A job that is cancelled, or a server that stops, ends a generation after the pass that runs.
"""

import gc
import logging
import threading
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing

import mlx.core as mx

from spectool.runtime.decoding.drafter import Cycle
from spectool.runtime.decoding.generation import generate_step
from spectool.runtime.mlx_lm_compat import wired_limit
from spectool.serve.answers import Answer, Delta, Prompt
from spectool.serve.metrics import Metrics
from spectool.serve.models import LoadedModel, MakeDrafter
from spectool.serve.options import ServerOptions
from spectool.serve.prompt_caches import PromptCaches
from spectool.serve.requests import GenerationRequest, RequestRefused

_TIDY_SECONDS = 0.2
STOPPING = "the server is stopping"


class Aborted(Exception):
    """A generation ends before its text does; the message says for what reason."""


class Job:
    """A request on its way through the engine.

    Attributes:
        texts: Its answers, once the engine has begun.
        drafts: The drafts in all of them: how many had this many tokens, of which this many were accepted.
        cancelled: Nobody waits for it any more. Set from any thread.
    """

    def __init__(
        self,
        request: GenerationRequest,
        model: str,
        prompts: list[Prompt],
        client: str,
        deliver: Callable[[Delta | Exception | None], None],
    ) -> None:
        """Answer each of ``prompts``, ``request.n`` times, from the prompt caches of ``client``.

        ``deliver`` gets the pieces of the answers, and in the end None or the error that the job failed with.
        """
        self.request, self.model, self.prompts, self.client, self.deliver = request, model, prompts, client, deliver
        self.texts: list[Answer] = []
        self.drafts: Counter[tuple[int, int]] = Counter()
        self.cancelled = False
        self.began = time.monotonic()


class Engine:
    """Loads models and answers jobs, on a thread of its own.

    Attributes:
        loaded: Done when the first model is loaded; has the error if it could not be.
        model: The model that is loaded.
    """

    model: LoadedModel

    def __init__(self, options: ServerOptions, make_drafter: MakeDrafter, metrics: Metrics) -> None:
        """Begin to load the model; ``make_drafter`` gets the name and the tokenizer of each model that is loaded."""
        self.loaded: Future[None] = Future()
        self._options, self._make_drafter, self._metrics = options, make_drafter, metrics
        self._caches = PromptCaches(options.prompt_cache_size, options.prompt_cache_bytes)
        self._known: dict[str, LoadedModel] = {}
        self._jobs: deque[Job | tuple[str, Future[LoadedModel]]] = deque()
        self._changed = threading.Condition()
        self._stopping = False
        self._running = 0
        self._cache_gauges = {"prompt_cache_sequences": 0, "prompt_cache_bytes": 0}
        # A drafter that fails is logged with its request; the runtime's warning would come on top of that.
        warnings.filterwarnings("ignore", "drafter .* is switched off", RuntimeWarning)
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether jobs are answered."""
        return self._thread.is_alive() and not self._stopping

    def gauges(self) -> dict[str, float]:
        """What is going on now, for the metrics."""
        waiting = sum(isinstance(job, Job) and not job.cancelled for job in list(self._jobs))
        return {"requests_running": self._running, "requests_waiting": waiting, **self._cache_gauges}

    def model_for(self, name: str) -> Future[LoadedModel]:
        """The model of this name, loaded when its turn comes unless it was already; its weights may be gone since."""
        known: Future[LoadedModel] = Future()
        if name in self._known:
            known.set_result(self._known[name])
        else:
            self._put((name, known))
        return known

    def submit(self, job: Job) -> None:
        """Put a job in line.

        Raises:
            RequestRefused: Too many are waiting already, or the server is stopping.
        """
        if self.gauges()["requests_waiting"] >= self._options.max_waiting:
            raise RequestRefused(429, f"{self._options.max_waiting} requests are waiting already. Try again later")
        self._put(job)

    def stop(self, seconds: float = 0.0) -> bool:
        """End all jobs after the pass that runs, and the thread; return whether it ended within ``seconds``."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if not seconds:
            return False
        self._thread.join(seconds)
        # Before Python 3.13 a thread is joined while MLX still tidies up after it; an interpreter that ends meanwhile
        # is aborted.
        time.sleep(_TIDY_SECONDS)
        return not self._thread.is_alive()

    def _put(self, job: Job | tuple[str, Future[LoadedModel]]) -> None:
        with self._changed:
            if not self.alive:
                raise RequestRefused(503, STOPPING)
            self._jobs.append(job)
            self._changed.notify_all()

    def _run(self) -> None:
        try:
            self._load(self._options.model)
        except BaseException as error:
            self._stopping = True
            self.loaded.set_exception(error)
            return
        self.loaded.set_result(None)
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._jobs or self._stopping)
                if self._stopping:
                    break
                job = self._jobs.popleft()
            self._take(job)
        for job in self._jobs:
            if isinstance(job, Job):
                job.deliver(RequestRefused(503, STOPPING))
            else:
                job[1].set_exception(RequestRefused(503, STOPPING))

    def _take(self, job: Job | tuple[str, Future[LoadedModel]]) -> None:
        """Do one job, whatever becomes of it."""
        if not isinstance(job, Job):
            name, future = job
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(self._known.get(name) or self._load(name))
                except Exception as error:
                    future.set_exception(error)
            return
        self._metrics.add("waiting_seconds_total", time.monotonic() - job.began)
        if job.cancelled:
            self._metrics.add("generations_total", end="disconnected")
            return
        self._running = 1
        failure: Exception | None = None
        try:
            self._answer(job)
        except Exception as error:
            failure = error
        self._running = 0
        self._log_failures(job)
        caches = self._caches
        self._cache_gauges = {"prompt_cache_sequences": len(caches), "prompt_cache_bytes": caches.nbytes}
        job.deliver(failure)

    def _load(self, name: str) -> LoadedModel:
        """Load a model in the place of the one that is loaded."""
        if self._known:
            self.model.unload()
            self._caches.clear()
        gc.collect()
        mx.clear_cache()
        self.model = self._known[name] = LoadedModel(name, self._options, self._make_drafter)
        return self.model

    def _answer(self, job: Job) -> None:
        if job.model != self.model.name or self.model.model is None:
            self._load(job.model)
        prompts = [prompt for prompt in job.prompts for _ in range(job.request.n)]
        job.texts = [Answer(i, prompt, job.request, self.model, self._options) for i, prompt in enumerate(prompts)]
        for text in job.texts:
            self._write(job, text)

    def _write(self, job: Job, text: Answer) -> None:
        """Generate one text, and keep its cache."""
        options, model, add = self._options, self.model, self._metrics.add
        prompt = text.prompt.tokens
        cache, text.cached = self._caches.take(job.client, prompt, model.model)

        def check() -> None:
            if job.cancelled or self._stopping:
                raise Aborted(STOPPING if self._stopping else "the client has gone")

        def on_cycle(cycle: Cycle) -> None:
            if cycle.proposal:  # the figures are of cycles with drafts
                job.drafts[len(cycle.proposal), cycle.accepted] += 1
                self._metrics.add_cycle(cycle)

        length = options.num_draft_tokens if job.request.num_draft_tokens is None else job.request.num_draft_tokens
        stream = mx.default_stream(mx.default_device())
        began = first = time.perf_counter()
        end = "failed"
        try:
            steps = generate_step(
                prompt[text.cached :],
                model.model,
                drafter=model.drafter,
                prediction=text.prediction,
                num_draft_tokens=model.controller if length is None else length,
                max_tokens=text.max_tokens,
                stop_tokens=model.ends,
                sampler=text.sampler,
                logits_processors=text.processors,
                grammar=text.prompt.grammar,
                seed=text.seed,
                verify=options.verify,
                prompt_cache=cache,
                cached_tokens=prompt[: text.cached],
                prefill_step_size=options.prefill_step_size,
                prompt_progress_callback=lambda fed, total: check(),
                kv_bits=options.kv_bits,
                kv_group_size=options.kv_group_size,
                quantized_kv_start=options.quantized_kv_start,
                stream=stream,
                statistics=text.statistics,
                on_cycle=on_cycle,
            )
            with wired_limit(model.model, [stream]), closing(steps):
                for token, logprobs, _ in steps:
                    if not text.tokens:
                        first = time.perf_counter()
                    piece = text.add(token, logprobs)
                    if piece.end is None and (job.cancelled or self._stopping):
                        job.deliver(piece)
                        piece = text.abort()
                    job.deliver(piece)
                    if piece.end is not None:
                        end = "disconnected" if piece.end == "abort" and job.cancelled else piece.end
                        break
        except Aborted as error:
            end = "abort" if self._stopping else "disconnected"
            raise RequestRefused(503, str(error)) from error
        finally:
            held = [*prompt, *text.tokens][:-1] if text.tokens else prompt[: text.cached]
            self._caches.keep(job.client, held, cache)
            add("generations_total", end=end)
            add("prompt_tokens_total", len(prompt))
            add("cached_prompt_tokens_total", text.cached)
            add("generated_tokens_total", len(text.tokens))
            add("target_passes_total", text.statistics.passes)
            add("prompt_seconds_total", first - began)
            add("generation_seconds_total", time.perf_counter() - first)
            for source, proposed in text.statistics.proposed_by.items():
                add("drafted_tokens_total", proposed, source=source)
                add("accepted_tokens_total", text.statistics.accepted_by[source], source=source)
            for failure in text.statistics.failures:
                add("drafter_failures_total", source=failure.drafter)
        if end == "disconnected":
            raise Aborted("the client has gone")

    def _log_failures(self, job: Job) -> None:
        failures = {failure.drafter: failure.error for text in job.texts for failure in text.statistics.failures}
        for drafter, error in failures.items():
            logging.warning("drafter %r failed, so it did not draft for the rest of its text: %s", drafter, error)
