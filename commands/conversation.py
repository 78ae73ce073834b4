"""A conversation with a model: its messages, and a prompt cache that holds them.

cache     <system><user> ... <assistant> ...            what was fed and generated so far
next      <system><user> ... <assistant> ... <user> ?   the same in the template, with the new message
                                            ^ fed from here, where the two differ

A cache that cannot be cut there is taken back to the mark before it, such as that of the last question.
"""

from collections.abc import Generator
from contextlib import closing
from typing import Any

from spectool import RuntimeUnsupported
from spectool.runtime.caches.leaves import lengths
from spectool.runtime.caches.rewinding import trims_freely
from spectool.runtime.caches.text_cache import TextCache
from spectool.runtime.chat_template import ChatMessage, branches, rendered
from spectool.runtime.decoding.streaming import GenerationResponse, stream_generate
from spectool.tokenization.incremental.common_prefix import common_prefix


class Conversation:
    """Turns of a chat with one model; ``messages`` are all so far."""

    def __init__(
        self, model: Any, tokenizer: Any, system_prompt: str | None = None, variables: Any = None, **options: Any
    ) -> None:
        """Start a conversation with an mlx-lm model; ``options`` are those of `stream_generate` for every answer."""
        if not tokenizer.has_chat_template:
            raise RuntimeUnsupported(
                "this model has no chat template, which a conversation needs. To continue a text: spectool generate"
            )
        self._model, self._tokenizer = model, tokenizer
        system: ChatMessage = {"role": "system", "content": system_prompt}
        self.messages = [] if system_prompt is None else [system]
        self._variables = variables or {}
        self._held = TextCache(model)
        self._seed, self._options = options.pop("seed", None), options

    def answer(self, text: str) -> Generator[GenerationResponse, None, None]:
        """Stream the answer to ``text``. Its beginning stays if it is ended early; nothing if ``text`` is refused."""
        messages = [*self.messages, {"role": "user", "content": text}]
        seed = None if self._seed is None else (self._seed + len(messages)) % 2**64  # turns draw differently
        prompt = rendered(self._tokenizer, messages, self._variables)
        self._held.rewind(common_prefix(self._held.tokens, prompt[:-1]))
        cache, cached = self._held.content()
        marks = [] if trims_freely(cache) else branches(self._tokenizer, messages, self._variables, prompt)
        texts: list[str] = []
        tokens: list[int] = []
        responses = stream_generate(
            self._model,
            self._tokenizer,
            prompt[len(cached) :],
            prompt_cache=cache,
            cached_tokens=cached,
            prompt_marks=[length - len(cached) for length in marks],
            on_prompt=lambda fed: self._held.follow(prompt[: len(cached) + fed], mark=True),
            seed=seed,
            own_text=True,
            **self._options,
        )
        try:
            with closing(responses):
                for response in responses:
                    texts.append(response.text)
                    tokens.append(response.token)
                    yield response
        finally:
            found, read = lengths(cache), [*prompt, *tokens]
            # Without a length or an answer, it is unknown how much of the prompt was fed.
            held = min(found, default=len(read) - 1 if tokens else -1)
            if len(found) > 1 or not 0 <= held <= len(read):
                self._held.forget()
            else:
                self._held.follow(read[:held])
            if tokens:
                self.messages = [*messages, {"role": "assistant", "content": "".join(texts)}]
