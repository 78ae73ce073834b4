"""mlx-lm's server with our loop inside: its protocol, templates and prompt cache, our tokens.

    mlx_lm.server       APIHandler -> ResponseGenerator._serve_single -> stream_generate
    here                Handler    -> DraftingGenerator               -> spectool's stream_generate

Requests are answered one at a time, in the order in which they come. A drafter follows one text, and mlx-lm batches
only what it decodes by itself.
"""

import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

from spectool import SpectoolError
from spectool.runtime.caches.leaves import lengths
from spectool.runtime.decoding.sampling import Sampling, WrongSetting, make_logits_processors
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.decoding.streaming import stream_generate
from spectool.runtime.decoding.token_ids import TokenOutOfRange, require_tokens, vocabulary_size
from spectool.serve.metrics import Metrics
from spectool.serve.mlx_lm_server import CompletionRequest, LRUPromptCache, ResponseGenerator, install, serving
from spectool.serve.model import DraftingProvider
from spectool.serve.requests import AUTOMATIC, RequestRefused, wrong_field

_UNLIMITED = 1 << 63  # bytes
# Names of the context length in the configurations of mlx-lm's models.
_CONTEXT_LENGTHS = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "max_sequence_length")
_UNSTATED = 1 << 40  # tokens; transformers writes 10**30 where a tokenizer says nothing
_STOP_SECONDS = 5.0  # one pass of a large model, a prompt pass of a middling one
_TIDY_SECONDS = 0.2


@dataclass
class ServedRequest(CompletionRequest):  # type: ignore[misc]  # mlx-lm has no types
    """mlx-lm's request and what becomes of it."""

    gone: Callable[[], bool] = lambda: False  # whether the client has closed the connection
    began: float = field(default_factory=time.monotonic)  # when the request came, by ``time.monotonic``
    tokens: list[int] = field(default_factory=list)  # the whole prompt, once it is tokenized
    # statistics, while it is generated for and afterwards
    drafting: DraftStatistics = field(default_factory=DraftStatistics)


class ClientGone(Exception):
    """Nobody waits for the answer any more."""


class Unanswered(BaseException):
    """Carries an error past mlx-lm's handler, which answers every ``Exception`` with 404."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class PromptCache(LRUPromptCache):  # type: ignore[misc]
    """mlx-lm's prompt cache, with what our loop leaves in a cache: all tokens but the last one."""

    def fetch_nearest_cache(self, model: Any, tokens: list[int]) -> tuple[Any, list[int]]:
        """Return a copy of a cache and the tokens that it lacks, at least one of them."""
        cache, rest = super().fetch_nearest_cache(model, tokens[:-1])
        return cache, [*rest, *tokens[-1:]]

    def insert_cache(
        self, model: Any, tokens: list[int], prompt_cache: list[Any], *, cache_type: str = "assistant"
    ) -> None:
        """Keep a cache under the tokens that it holds; one that holds others is dropped."""
        held = tokens[:-1]
        if lengths(prompt_cache) <= {len(held)}:
            super().insert_cache(model, held, prompt_cache, cache_type=cache_type)
        else:
            logging.warning("a prompt cache is dropped: it does not hold the tokens of its text")


class DraftingGenerator(ResponseGenerator):  # type: ignore[misc]
    """Answers requests one at a time, on a thread of its own that also loads the models.

    Attributes:
        loaded: Done when the model is loaded; has the error if it could not be.
    """

    def __init__(self, provider: DraftingProvider, metrics: Metrics) -> None:
        """Begin to load the model; ``metrics`` gets the figures of every generation."""
        install()
        self.loaded: Future[None] = Future()
        self._metrics = metrics
        self._running = 0
        options = provider.cli_args
        super().__init__(provider, PromptCache(options.prompt_cache_size, options.prompt_cache_bytes or _UNLIMITED))

    def gauges(self) -> dict[str, float]:
        """Return what is going on now, for the metrics."""
        cache = getattr(self, "prompt_cache", None)  # mlx-lm deletes it when the thread ends
        return {
            "requests_running": self._running,
            "requests_waiting": self.requests.qsize(),
            "prompt_cache_sequences": 0 if cache is None else len(cache),
            "prompt_cache_bytes": 0 if cache is None else cache.nbytes,
        }

    def stop(self) -> bool:
        """End the thread, in the middle of a generation as well; return whether it ended within seconds."""
        self._stop = True
        self._generation_thread.join(_STOP_SECONDS)
        # Before Python 3.13 a thread is joined while MLX still tidies up after it; an interpreter that ends
        # meanwhile is aborted.
        time.sleep(_TIDY_SECONDS)
        return not self._generation_thread.is_alive()

    def generate(
        self, request: ServedRequest, generation_args: Any, progress_callback: Callable[[int, int], None]
    ) -> Any:
        """Put ``request`` in line; return its context and the tokens to come.

        Raises:
            Unanswered: It is refused, or something failed; also while the tokens come.
        """
        if self.requests.qsize() >= self.cli_args.max_waiting:
            refusal = RequestRefused(429, f"{self.cli_args.max_waiting} requests are waiting already. Try again later")
            raise Unanswered(refusal)

        def progress(fed: int, total: int) -> None:
            try:
                progress_callback(fed, total)  # mlx-lm's handler writes to the connection
            except OSError as error:
                raise ClientGone from error

        try:
            context, responses = super().generate(request, generation_args, progress)
        except Exception as error:
            raise Unanswered(error) from error

        def to_come() -> Iterator[Any]:
            try:
                yield from responses
            except Exception as error:
                raise Unanswered(error) from error

        return context, to_come()

    def _generate(self) -> None:
        try:
            self.model_provider.load_default()
        except Exception as error:
            self.loaded.set_exception(error)
        else:
            self.loaded.set_result(None)
            super()._generate()

    def _log_cache_stats(self) -> None:
        """Log the size of the prompt cache, which mlx-lm does for every request, only for who debugs."""
        if logging.getLogger().isEnabledFor(logging.DEBUG):
            super()._log_cache_stats()

    def _is_batchable(self, args: Any) -> bool:
        return False

    def _serve_single(self, request: tuple[Any, ServedRequest, Any], stream: Any) -> None:
        queue, served, args = request
        self._metrics.add("waiting_seconds_total", time.monotonic() - served.began)
        if served.gone():
            self._metrics.add("generations_total", end="disconnected")
            queue.put(ClientGone())
            return

        def ours(**options: Any) -> Iterator[Any]:
            return self._stream(served, args, **options)

        self._running = 1
        try:
            with serving(ours):
                # The seed is the generation's own; mlx-lm would seed those after it, too.
                super()._serve_single((queue, served, replace(args, seed=None)), stream)
        finally:
            self._running = 0

    def _tokenize(self, tokenizer: Any, request: ServedRequest, args: Any) -> Any:
        provider = self.model_provider
        if request.tools and not tokenizer.has_tool_calling:
            raise wrong_field(
                "tools", f"expected none, since mlx-lm knows no tool calls of {args.model.model}. Leave them out"
            )
        field_name = "messages" if request.request_type == "chat" else "prompt"
        try:
            tokenized = super()._tokenize(tokenizer, request, args)
        except Exception as error:  # whatever a chat template raises
            raise wrong_field(field_name, f"the model's tokenizer or chat template refuses them ({error})") from error
        request.tokens = tokenized[0]
        try:
            for name, tokens in ((field_name, request.tokens), ("logit_bias", list(args.logits.logit_bias or ()))):
                require_tokens(name, tokens, vocabulary_size(provider.model), tokenizer)
            _sampler(args.sampling, tokenizer)
            make_logits_processors(**vars(args.logits))
        except TokenOutOfRange as error:
            raise RequestRefused(400, str(error), param=error.name) from error
        except WrongSetting as error:
            raise wrong_field("temperature" if error.name == "temp" else error.name, error.problem) from error
        except SpectoolError as error:
            raise RequestRefused(400, str(error)) from error
        context, given = _context_length(provider.model, tokenizer), self.cli_args.max_prompt_tokens
        length, limit = len(request.tokens), given or context
        if not length:
            raise wrong_field(field_name, "expected at least one token, got none")
        if limit is not None and length > limit - (given is None):  # at least one token of the answer has to fit
            together = "" if given else ", the answer among them"
            raise wrong_field(
                field_name,
                f"expected at most {limit:,} tokens{together}, got {length:,}. "
                "The server's --max-prompt-tokens sets it",
                code="context_length_exceeded",
            )
        if context is not None and length < context:  # a longer prompt is one that --max-prompt-tokens allows
            args.max_tokens = min(args.max_tokens, context - length)
        return tokenized

    def _stream(
        self,
        served: ServedRequest,
        args: Any,
        *,
        prompt: list[int],
        sampler: Any,
        num_draft_tokens: int,
        prompt_progress_callback: Callable[[int, int], None],
        draft_model: None,
        input_embeddings: None,
        **options: Any,
    ) -> Iterator[Any]:
        """Generate for ``served``, of whose prompt the cache lacks ``prompt``.

        Mlx-lm's draft models and images do not get here; its ``sampler`` does not tell its distribution, as ours does.
        """
        provider, cached = self.model_provider, len(served.tokens) - len(prompt)
        began = first = time.perf_counter()
        count, end = 0, ""

        def progress(fed: int, total: int) -> None:
            if self._stop:
                raise RequestRefused(503, "the server is stopping")
            if served.gone():
                raise ClientGone
            prompt_progress_callback(fed, total)

        try:
            with closing(
                stream_generate(
                    prompt=prompt,
                    drafter=provider.drafter,
                    num_draft_tokens=provider.controller if num_draft_tokens == AUTOMATIC else num_draft_tokens,
                    verify=self.cli_args.verify,
                    sampler=_sampler(args.sampling, provider.tokenizer),
                    seed=args.seed,
                    cached_tokens=served.tokens[:cached],
                    prompt_progress_callback=progress,
                    statistics=served.drafting,
                    **options,
                )
            ) as responses:
                for response in responses:
                    count += 1
                    if count == 1:
                        first = time.perf_counter()
                    end = response.finish_reason or ""
                    yield response
                    if self._stop:
                        raise RequestRefused(503, "the server is stopping")
                    if not end and served.gone():
                        end = "disconnected"
                        return  # as if it were finished, so that the prompt cache is kept
        except GeneratorExit:
            # mlx-lm has found a stop text, or its handler that the client has gone.
            end = end or ("disconnected" if served.gone() else "stop")
            raise
        except Exception as error:
            end = "disconnected" if isinstance(error, ClientGone) else "failed"
            raise
        finally:
            add, drafting = self._metrics.add, served.drafting
            add("generations_total", end=end)
            add("prompt_tokens_total", len(served.tokens))
            add("cached_prompt_tokens_total", cached)
            add("generated_tokens_total", count)
            add("target_passes_total", drafting.passes)
            add("prompt_seconds_total", first - began)
            add("generation_seconds_total", time.perf_counter() - first)
            for source, proposed in drafting.proposed_by.items():
                add("drafted_tokens_total", proposed, source=source)
                add("accepted_tokens_total", drafting.accepted_by[source], source=source)
            for failure in drafting.failures:
                add("drafter_failures_total", source=failure.drafter)


def _sampler(asked: Any, tokenizer: Any) -> Sampling | None:
    """Return the sampler of a request; None takes the most probable tokens of all positions at once."""
    settings = dict(vars(asked))
    temperature = settings.pop("temperature")
    special = (*tokenizer.encode("\n"), *tokenizer.eos_token_ids)
    return Sampling(temperature, **settings, xtc_special_tokens=special) if temperature else None


def _context_length(model: Any, tokenizer: Any) -> int | None:
    """Return the tokens that a model was made for, where its configuration or else its tokenizer says so."""
    args = getattr(model, "args", None)
    stated = [getattr(args, name, None) for name in _CONTEXT_LENGTHS]
    nested = getattr(args, "text_config", None)
    if isinstance(nested, dict):
        stated += [nested.get(name) for name in _CONTEXT_LENGTHS]
    stated.append(getattr(tokenizer, "model_max_length", None))
    return next((length for length in stated if isinstance(length, int) and 0 < length < _UNSTATED), None)
