"""A text in the loop: its own cache, what is still to be read of its prompt, and what its next pass feeds.

Between two passes, a cache holds the text without the last committed token, which the next pass feeds together with
the drafts. Rejected drafts are taken out again. Where that also takes out accepted tokens (`rewinding`), the next pass
feeds those again first.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from spectool.runtime.caches.leaves import lengths
from spectool.runtime.caches.own import OwnCache, Quantization
from spectool.runtime.decoding.text_state import TextState
from spectool.runtime.drafters.drafter import NOTHING, Proposal
from spectool.runtime.groups.link import processes_of
from spectool.runtime.mlx_lm_compat.pass_size import exact_until


class Row:
    """A text that is written with a model.

    Attributes:
        text: The text.
        own: Its cache, which holds nothing while the text is in shared caches.
        may_run_ahead: Whether a pass may begin before the token of the one before it is known.
        unread: Tokens of the prompt to be read.
        piece: How many of them are read next.
        origin: Tokens in the cache before those of this text.
        refeed: Committed tokens that the next pass feeds again, before the last committed one.
        proposal: Draft tokens for the next pass.
        inputs: Tokens that the latest pass has fed.
        gained: Tokens that the latest pass has committed; none once the text has failed or is closed.
        closed: Whether the text has been closed.
        unrewindable_at: Yielded tokens at which the token that was fed ahead cannot be taken out.
    """

    def __init__(self, model: Any, cache: list[Any], text: TextState) -> None:
        """Write ``text`` with ``model``, from the end of ``cache`` on."""
        settings = text.settings
        quantization = None
        if settings.kv_bits is not None:
            quantization = Quantization(settings.kv_bits, settings.kv_group_size, settings.quantized_kv_start)
        self.text, self.own = text, OwnCache(model, cache, quantization)
        self.may_run_ahead = processes_of(model) == 1  # others have to be told what they are to compute
        self.unread, self.piece = len(text.prompt) - 1, settings.prefill_step_size
        self.origin, self.refeed, self.inputs = 0, list[int](), list[int]()
        self.proposal: Proposal = NOTHING
        self.gained: Sequence[int] = ()
        self.closed, self.unrewindable_at = False, -1
        self._exact_until = exact_until(model)
        self._reading: Iterator[int] | None = None

    @property
    def cache(self) -> list[Any]:
        """The prompt cache, one entry for each layer."""
        return self.own.entries

    def read_piece(self) -> None:
        """Feed a piece of the prompt without its last token, which the first pass feeds."""
        text, whole = self.text, len(self.text.prompt) - 1
        if self._reading is None:
            self._reading = self._pieces()
        self.unread = whole - next(self._reading, whole)
        if not self.unread:
            for _ in self._reading:
                pass  # nothing but its end
            self.own.use_exact_masks()
            text.prompt_read = True
            text.start()

    def _pieces(self) -> Iterator[int]:
        """Feed the prompt, and yield the tokens fed after each pass; the marks of the settings end a pass."""
        prompt, settings, fed = self.text.prompt, self.text.settings, 0
        for end in [*(mark for mark in settings.prompt_marks if 0 < mark < len(prompt) - 1), len(prompt) - 1]:
            for more in self.own.read(prompt[fed:end], lambda: self.piece):
                yield fed + more
            fed = end
            if settings.on_prompt is not None:
                settings.on_prompt(fed)

    def most_drafts(self) -> int:
        """Maximum number of draft tokens that the next pass can verify."""
        settings, refed, most = self.text.settings, len(self.refeed), self.text.remaining
        if refed:  # a pass without drafts takes in all that is fed again, and the next one is short again
            most = min(most, self.text.longest_pass - refed)
        if self._exact_until is not None:
            most = min(most, self._exact_until - self._held() - refed - 1)
        if settings.kv_bits and (held := self._held()) < settings.quantized_kv_start:
            # Plain decoding quantises the cache at this length: no pass may straddle it, and a pass that reaches it
            # must have nothing to take out again.
            most = min(most, settings.quantized_kv_start - held - refed - 2)
        return max(0, most)

    def feed(self) -> list[int]:
        """What the next pass feeds."""
        self.inputs = [*self.refeed, self.text.last, *self.proposal.tokens]
        return self.inputs

    def take_back(self, kept: int, missing: int) -> None:
        """Follow a cache from which ``missing`` of the ``kept`` tokens of the latest pass were taken out as well."""
        self.refeed = self.inputs[kept - missing : kept]

    def resume(self, held: int, unfed: Sequence[int]) -> None:
        """Go on in the cache of its own, which has got ``held`` tokens of this text, and not the ``unfed`` ones."""
        self.inputs = list(unfed)
        self.own.enter(held, exact_masks=True)

    def close(self) -> int | None:
        """End the text: leave the cache with all its yielded tokens but one, even after a pass that broke off.

        Returns the number of tokens of the text that the cache holds afterwards, or None if it could not be taken back
        and is of no further use.
        """
        self.closed, self.gained = True, ()
        self.text.close()
        length = self.text.cached_if_closed + (self.text.yielded == self.unrewindable_at)
        return self.own.close(length, self.inputs, self.text.settings.prefill_step_size)

    def _held(self) -> int:
        return max(lengths(self.cache), default=0)
