"""Dictionaries as a custom proposer of vLLM; needs nothing but them, no MLX.

    vllm serve MODEL
        --speculative-config '{"method": "custom_class", "num_speculative_tokens": 8,
                               "model": "spectool.runtime.vllm_proposer.DictionaryProposer"}'
        --additional-config '{"spectool": {"dictionary": "pl.dict", "min_probability": 0.2, "history": true}}'

vLLM imports the class by its name in every worker and passes its configuration. After each step it calls `propose`
with the tokens just sampled and the tokens of every request so far, by row. It does not say which request a row holds,
and moves requests between rows as others end. So each row keeps how many tokens it has drafted from and the last of
them: what continues these is committed, and anything else starts the drafter again.

Source of the interface: vLLM 0.33, ``v1/spec_decode/custom_class_proposer.py`` and the call in
``v1/worker/gpu_model_runner.py``. vLLM calls it experimental.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from spectool import SpectoolError
from spectool.artifacts.dictionary import MIN_PROBABILITY
from spectool.runtime.drafters.drafter import Drafter
from spectool.runtime.drafters.drafter_slot import DrafterSlot
from spectool.runtime.drafters.lookup import LookupDrafter
from spectool.runtime.loading import open_dictionaries
from spectool.tokenization.opening import open_tokenizer

_REMEMBERED = 32  # last tokens by which a row is recognised
_EXAMPLE = '--additional-config \'{"spectool": {"dictionary": "pl.dict"}}\''


class _Settings(BaseModel):
    """The section about spectool of vLLM's ``additional_config``."""

    model_config = ConfigDict(extra="forbid", strict=True)

    dictionary: Annotated[str, Field(min_length=1)] | Annotated[list[str], Field(min_length=1)]
    min_probability: float = Field(MIN_PROBABILITY, ge=0, le=1)
    history: bool = False


class _Request:
    """What one row drafts from."""

    def __init__(self, drafter: Drafter, vocabulary: int) -> None:
        self._new = partial(DrafterSlot, drafter, vocabulary=vocabulary)
        self._drafter = self._new()
        self._length = -1
        self._newest: list[int] = []

    def propose(self, limit: int, tokens: Any, new: Sequence[int]) -> list[int]:
        """At most ``limit`` tokens; none from a drafter that failed, until the row holds another request.

        The ``new`` ones of a request that continues are committed; another starts the drafter with all its ``tokens``.
        """
        before = len(tokens) - len(new)
        known = self._length == before and tokens[before - len(self._newest) :].tolist() == [*self._newest, *new]
        self._length, self._newest = len(tokens), tokens[-_REMEMBERED:].tolist()
        if known:
            self._drafter.follow(new)
        else:
            self._drafter = self._new()
            self._drafter.start(tokens.tolist())
        return list(self._drafter.propose(limit).tokens)


class DictionaryProposer:
    """Drafts for all requests of a batch from the same open dictionaries, and from their own histories if asked.

    Raises:
        SpectoolError: The configuration has no section for spectool, or one with unknown settings.
        ArtifactError: A dictionary is damaged, or (`FingerprintMismatch`) was built for another tokenizer.
    """

    def __init__(self, vllm_config: Any) -> None:
        additional = getattr(vllm_config, "additional_config", None)
        section = additional.get("spectool", {}) if isinstance(additional, Mapping) else {}
        try:
            settings = _Settings.model_validate(section)
        except ValidationError as error:
            wrong = error.errors()[0]
            where = ".".join(map(str, ("spectool", *wrong["loc"])))
            problem = f"{where}: {wrong['msg']}. Expected {_EXAMPLE}, with one dictionary or a list"
            raise SpectoolError(f"vLLM's additional_config: {problem}, got {additional!r}") from error
        tokenizer = open_tokenizer(str(vllm_config.model_config.tokenizer))
        dictionaries = open_dictionaries(settings.dictionary, tokenizer)
        self._new_drafter = partial(LookupDrafter, dictionaries, settings.history, settings.min_probability)
        self._limit = int(vllm_config.speculative_config.num_speculative_tokens)
        self._longest = int(vllm_config.model_config.max_model_len)
        # A tokenizer can have more tokens than the model has rows. vLLM says 0 where it does not know these.
        rows = getattr(vllm_config.model_config, "get_vocab_size", int)()
        self._vocabulary = int(rows) or tokenizer.size
        self._requests: list[_Request] = []

    def propose(
        self,
        sampled_token_ids: Sequence[Sequence[int]],
        num_tokens_no_spec: Sequence[int],
        token_ids_cpu: Any,
        slot_mappings: Any = None,
    ) -> list[list[int]]:
        """Draft tokens for every request of the batch, ``[requests][at most num_speculative_tokens]``.

        Args:
            sampled_token_ids: New tokens of each request, ``[requests][any]``; none while its prompt is still being
                read.
            num_tokens_no_spec: Tokens of each request so far, including these, ``[rows]``.
            token_ids_cpu: Token ids by row, prompt first, int array ``[rows, max_model_len]``.
            slot_mappings: Not used.
        """
        while len(self._requests) < len(sampled_token_ids):
            self._requests.append(_Request(self._new_drafter(), self._vocabulary))
        proposals: list[list[int]] = []
        for row, new in enumerate(sampled_token_ids):
            length = int(num_tokens_no_spec[row])
            limit = min(self._limit, self._longest - length - 1)
            asked = len(new) and limit >= 1
            request, tokens = self._requests[row], token_ids_cpu[row, :length]
            proposals.append(request.propose(limit, tokens, new) if asked else [])
        return proposals

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: there is no model to load."""
