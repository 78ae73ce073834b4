"""The thread that owns the model. It writes as many answers at a time as can share a pass.

Nobody else touches MLX. An answer that is cancelled, or a server that stops, ends after the pass that runs.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import replace

import mlx.core as mx

from spectool.runtime.decoding.generation import open_text
from spectool.runtime.decoding.loop import Loop
from spectool.runtime.decoding.text import Text
from spectool.runtime.groups.rank_0 import leader_of, make_prompt_cache
from spectool.runtime.mlx_lm_compat import wired_limit
from spectool.runtime.policy.costs import new_policy
from spectool.runtime.policy.policy import Policy
from spectool.serve.answers import Answer
from spectool.serve.errors import RequestRefused
from spectool.serve.models import LoadedModel, MakeDrafter, free_memory
from spectool.serve.options import ServerOptions
from spectool.serve.prompt_caches import PromptCaches

_MOST_ROWS = 16  # texts that are written at the same time by default
_ANSWER = 4096  # tokens that an answer is taken to have at most: hardly any is as long as its request allows
_TIDY_SECONDS = 0.2
_READING_PASSES = 2.0  # of other texts, as long as which a piece of a prompt may take
STOPPING = "the server is stopping"


class Engine:
    """Loads the model and writes answers, on a thread of its own."""

    model: LoadedModel  # once it is loaded

    def __init__(self, options: ServerOptions, make_drafter: MakeDrafter) -> None:
        """Begin to load the model; ``make_drafter`` gets its tokenizer."""
        self.loaded: Future[None] = Future()  # has the error if the model could not be loaded
        self.failure: BaseException | None = None  # that has ended the engine
        self._options, self._make_drafter = options, make_drafter
        self._waiting: deque[Answer] = deque()
        self._changed = threading.Condition()
        self._stopping = False
        self._writing: dict[Text, Answer] = {}
        self._wired = ExitStack()  # while anything is written
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether requests are answered."""
        return self._thread.is_alive() and not self._stopping

    @property
    def waiting(self) -> int:
        """How many requests have none of their answers begun."""
        running = {id(answer.request) for answer in list(self._writing.values())}
        return len({id(answer.request) for answer in list(self._waiting) if not answer.cancelled} - running)

    def submit(self, answers: Iterable[Answer]) -> None:
        """Put answers to a request in line, each of which brings its copies."""
        if self.waiting >= self._options.max_waiting:
            raise RequestRefused(429, f"{self._options.max_waiting} requests are waiting already. Try again later")
        with self._changed:
            if not self.alive:
                raise RequestRefused(503, STOPPING)
            self._waiting.extend(answers)
            self._changed.notify_all()

    def stop(self, seconds: float = 0.0) -> bool:
        """End all answers after the pass that runs, and the thread; return whether it ended within ``seconds``."""
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

    def _run(self) -> None:
        try:
            self.model = LoadedModel(self._options, self._make_drafter)
            most_bytes, quarter = self._options.prompt_cache_bytes, free_memory(self.model.model) // 4
            self._room = 2 * quarter  # for the caches of texts that are written
            most = quarter if most_bytes is None else most_bytes
            self._caches = PromptCaches(self._options.prompt_cache_size, most, self._options.quantized_kv_start)
            self._new_loop()
        except BaseException as error:
            self._stopping = True
            self.loaded.set_exception(error)
            return
        self.loaded.set_result(None)
        try:
            self._answer()
        except BaseException as error:
            logging.critical("the engine has ended", exc_info=error)
            self.failure = error
        with self._changed:
            self._stopping = True  # nothing is put in line from here on
        refusal = RequestRefused(503, STOPPING if self.failure is None else f"the server has failed: {self.failure}")
        for answer in (*self._writing.values(), *self._waiting):
            answer.deliver(refusal)
        if (leader := leader_of(self.model.model)) is not None:
            leader.stop()  # here, because the command may end without the functions that Python calls at the end

    def _answer(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._writing or self._stopping)
                # They would pile up behind others.
                self._waiting = deque(each for each in self._waiting if not each.cancelled)
            if self._stopping:
                break
            while self._waiting and self._take(self._waiting[0]):
                self._waiting.popleft()
            self._advance()
        self._end_where_nobody_waits()

    def _take(self, answer: Answer) -> bool:
        """Begin an answer; return whether there was room for it."""
        try:
            if not self._fits(answer) or not self._loop.accepts(make_prompt_cache(self.model.model)):
                return False
            self._begin(answer)
        except Exception as error:
            answer.deliver(error)
        return True

    def _fits(self, answer: Answer) -> bool:
        """Whether there is memory to write an answer with the others; in shared caches, all take what the longest does.

        One alone is always written, and ``batch`` is taken at its word.
        """
        model, options, together = self.model, self._options, [*self._writing.values(), answer]
        limits = [max(len(each.tokens), min(each.limit(model, options), _ANSWER)) for each in together]
        longest = max(len(each.prompt.tokens) + limit for each, limit in zip(together, limits, strict=True))
        room = len(together) * model.cache_bytes(longest) <= self._room
        return room or len(together) == 1 or options.batch is not None

    def _new_loop(self) -> None:
        model, stream, rows = self.model, mx.default_stream(mx.default_device()), self._options.batch or _MOST_ROWS
        self._loop = Loop(model.model, rows, model.policy, stream=stream, reading_passes=_READING_PASSES)

    def _begin(self, answer: Answer) -> None:
        model, prompt, length = self.model, answer.prompt.tokens, answer.request.num_draft_tokens
        settings = answer.begin(model, self._options)  # first: one that is refused leaves the caches as they are
        known = None
        if answer.held is None:
            answer.held, known = self._caches.take(answer.client, prompt, model.model)
        held = answer.held
        cache, cached = held.content()
        answer.cached = len(cached)
        # With a seed, what other requests have shown does not count.
        seeded, usual = settings.seed is not None, self._options.num_draft_tokens
        if model.drafter is not None:
            answer.drafter = (None if seeded else known) or model.drafter.fork()
        policy: int | Policy | None = usual if length is None and (seeded or usual == 0) else length
        if policy is None:
            policy = new_policy(model.model, model.drafter, measure=False) if seeded else model.policy

        def on_prompt(fed: int) -> None:
            held.follow(prompt[: len(cached) + fed], mark=True)
            if len(held.tokens) == len(prompt) - 1:
                for each in answer.copies:
                    each.held = held.copy()
                self._waiting.extend(answer.copies)

        settings = replace(
            settings,
            drafter=answer.drafter,
            num_draft_tokens=policy,
            prompt_cache=cache,
            cached_tokens=cached,
            prompt_marks=[length - len(cached) for length in answer.prompt.marks],
            on_prompt=on_prompt,
        )
        text = open_text(prompt[len(cached) :], model.model, settings)
        if not self._writing:
            self._wired.enter_context(wired_limit(model.model, [mx.default_stream(mx.default_device())]))
        self._loop.add(text)
        self._writing[text] = answer

    def _advance(self) -> None:
        """Advance all texts by a pass, and deliver what they gained."""
        try:
            changed = self._loop.step() if self._writing else []
        except Exception as error:
            self._break(error)
            return
        for text in changed:
            if (answer := self._writing.get(text)) is None:
                continue  # ended with the loop, which another one has broken
            try:
                for token, logprobs, _ in text.take():
                    piece = answer.add(token, logprobs)
                    answer.deliver(piece)
                    if piece.end is not None:
                        self._end(text)
                        break
            except Exception as error:
                self._end(text, error)
        self._end_where_nobody_waits()

    def _end_where_nobody_waits(self) -> None:
        """End the texts whose clients have gone, or all of them if the server stops."""
        for text, answer in list(self._writing.items()):
            if self._stopping and answer.tokens:
                answer.deliver(answer.abort())
            if self._stopping or answer.cancelled:
                self._end(text, None if answer.tokens else RequestRefused(503, STOPPING))

    def _end(self, text: Text, error: Exception | None = None, *, broken: bool = False) -> None:
        """End a text, if it goes on, and keep its cache; that of a ``broken`` loop is of no further use."""
        if (answer := self._writing.pop(text, None)) is None:
            return
        try:
            kept = None if broken else self._loop.remove(text)
            if kept is not None and answer.held is not None:
                tokens = [*answer.prompt.tokens, *answer.tokens]
                answer.held.follow(tokens[: answer.cached + kept])
                self._caches.keep(answer.client, answer.held, answer.drafter)
        except Exception as unusable:  # the text has its end already
            logging.error("the cache of a text could not be taken back or kept", exc_info=unusable)
            self._break(unusable)
        if not self._writing:
            self._wired.close()
        answer.held = answer.drafter = None  # the request may go on for long, with other answers
        answer.deliver(error)

    def _break(self, error: Exception) -> None:
        """Go on with a new loop. The texts that are in this one fail, since its caches are of no further use."""
        for text in list(self._writing):
            self._end(text, error, broken=True)
        self._new_loop()
