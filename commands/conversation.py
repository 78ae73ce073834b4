"""A conversation with a model: its messages, and a prompt cache that holds them.

cache     <system><user> ... <assistant> ...            what was fed and generated up to now
next      <system><user> ... <assistant> ... <user> ?   the same in the template, and the new message
                                            ^ fed from here, where the two part
"""

from collections.abc import Generator, Mapping
from contextlib import closing
from typing import Any

from spectool import RuntimeUnsupported
from spectool.runtime.caches.checkpoints import Checkpoints
from spectool.runtime.caches.leaves import lengths
from spectool.runtime.chat_template import Message, rendered
from spectool.runtime.decoding.drafter import accepted_length
from spectool.runtime.decoding.streaming import GenerationResponse, stream_generate
from spectool.runtime.mlx_lm_compat import make_prompt_cache


class Conversation:
    """Turns of a chat with one model.

    Attributes:
        messages: All so far, ``role`` and ``content`` of each.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        system_prompt: str | None = None,
        variables: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        """Begin a conversation.

        Args:
            model: An mlx-lm model.
            tokenizer: Its ``TokenizerWrapper``.
            system_prompt: What the model is told before anything else.
            variables: Of the chat template.
            **options: Options of `stream_generate`, for every answer.

        Raises:
            RuntimeUnsupported: The model has no chat template.
        """
        if not tokenizer.has_chat_template:
            raise RuntimeUnsupported(
                "this model has no chat template: expected one that is made for conversations. "
                "Let it go on with a text: spectool generate"
            )
        self._model, self._tokenizer = model, tokenizer
        self._begin: list[Message] = [] if system_prompt is None else [{"role": "system", "content": system_prompt}]
        self._variables = dict(variables or {})
        self._max_kv_size = options.pop("max_kv_size", None)
        self._seed, self._turns = options.pop("seed", None), 0
        self._options = options
        self.reset()

    def reset(self) -> None:
        """Forget all but the system prompt."""
        self.messages = list(self._begin)
        self._cache: list[Any] = make_prompt_cache(self._model, self._max_kv_size)
        self._cached: list[int] = []  # what it holds

    def answer(self, text: str) -> Generator[GenerationResponse, None, None]:
        """Say ``text`` and stream the answer. Ended early, what was said of it stays in the conversation.

        Raises:
            SpectoolError: The template or the model refuses it; the conversation is as before.
        """
        messages = [*self.messages, {"role": "user", "content": text}]
        seed = None if self._seed is None else (self._seed + self._turns) % 2**64  # no two turns draw the same
        self._turns += 1
        prompt = rendered(self._tokenizer, messages, self._variables)
        kept = self._take_back(accepted_length(self._cached, prompt[:-1]))
        said: list[str] = []
        tokens: list[int] = []
        responses = stream_generate(
            self._model,
            self._tokenizer,
            prompt[kept:],
            prompt_cache=self._cache,
            cached_tokens=prompt[:kept],
            seed=seed,
            **self._options,
        )
        try:
            with closing(responses):
                for response in responses:
                    said.append(response.text)
                    tokens.append(response.token)
                    yield response
        finally:
            self._note(prompt, tokens)
            if tokens:
                self.messages = [*messages, {"role": "assistant", "content": "".join(said)}]

    def _take_back(self, kept: int) -> int:
        """Take the cache back to its first ``kept`` tokens, or to none where it cannot; return how many it has."""
        if Checkpoints(self._cache, len(self._cached)).rewind(kept) is None:
            self._cache, kept = make_prompt_cache(self._model, self._max_kv_size), 0
        del self._cached[kept:]
        return kept

    def _note(self, prompt: list[int], answer: list[int]) -> None:
        """Note what the cache holds: all without the last token, or as much as an interruption has left in it."""
        tokens = [*prompt, *answer]
        found = lengths(self._cache)
        # Without a length and without an answer, nobody knows how far the prompt was fed.
        held = min(found, default=len(tokens) - 1 if answer else -1)
        if len(found) > 1 or not 0 <= held <= len(tokens):
            self._cache, held = make_prompt_cache(self._model, self._max_kv_size), 0
        self._cached = tokens[:held]
