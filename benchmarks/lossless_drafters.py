"""The drafters of the lossless grid, and what they draft from where no trained model can guess.

What a model of random weights says no draft model can guess, so its drafts, in both tokenizers, come from the plain
output itself, spoilt.
"""

import random
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from lossless_models import LANGUAGES, Kind, Language, noisy

from spectool.artifacts import Dictionary
from spectool.artifacts.dictionary import FORMAT, VERSION, write_dictionary
from spectool.artifacts.manifest import Manifest, seal
from spectool.build.dictionary.dictspec import predict
from spectool.build.dictionary.options import DictSpecOptions
from spectool.build.dictionary.predictions import entries_of
from spectool.runtime.decoding.drafter import Drafter
from spectool.runtime.drafters.draft_model import ModelDrafter
from spectool.runtime.drafters.hybrid import HybridDrafter
from spectool.runtime.drafters.lookup import LookupDrafter
from spectool.runtime.drafters.model_source import ModelSource
from spectool.runtime.drafters.translated import TranslatedDrafter
from spectool.runtime.translation.factory import STRATEGIES
from spectool.runtime.translation.protocol import Constraint, DraftContext, DraftSource
from spectool.tokenization import Tokenizer

DRAFTERS = ("dictionary", "history", "dictionary+history", "model", *STRATEGIES, "hybrid")
WRONG = 0.25  # share of spoilt tokens in what is drafted from the plain output
_TAIL = 12  # bytes by which a place in a text is found


class SpoiltText(DraftSource):
    """A draft source in another vocabulary that knows the text; a seeded share of its tokens is wrong.

    It finds its place by the end of the context, and spells what follows with the longest tokens that fit. It heals the
    last token of the context where a longer one begins with it.
    """

    costs_a_pass = True

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Spell in ``tokenizer``."""
        self.text = b""
        self._surfaces = tokenizer.surfaces
        self._ids: dict[bytes, int] = {}
        for id_, surface in enumerate(tokenizer.surfaces):
            self._ids.setdefault(surface, id_)
        self._longest = max(map(len, self._ids))
        self._rng = random.Random(0)

    def start(self) -> None:
        """Begin a text."""

    def draft(self, context: DraftContext, constraint: Constraint, limit: int) -> tuple[list[int], bool]:
        """Spell at most ``limit`` tokens of the text."""
        at = self._place(b"".join(self._surfaces[id_] for id_ in context.ids))
        last = len(self._surfaces[context.ids[-1]]) if context.ids else 0
        extensions = set(constraint.extensions.tolist())
        first = None if constraint.first is None else set(constraint.first.tolist())
        for healed, start in ((True, at - last), (False, at)):
            for token in self._spellings(start, constraint):
                fits = token in extensions if healed else first is None or token in first
                if fits and constraint.allows(token, healed):
                    tokens, place = [token], start + len(self._surfaces[token])
                    while len(tokens) < limit and (token := next(self._spellings(place, constraint), -1)) >= 0:
                        tokens.append(token)
                        place += len(self._surfaces[token])
                    return [tokens[0], *(self._maybe_spoil(token, constraint) for token in tokens[1:])], healed
        return [], False

    def _place(self, context: bytes) -> int:
        """Return how much of the text has been said: strategies differ in spaces at its start."""
        end = context[-_TAIL:]
        return max(0, self.text.find(end, max(0, len(context) - len(end) - 2))) + len(end)

    def _spellings(self, at: int, constraint: Constraint) -> Iterator[int]:
        """Yield the tokens that the text goes on with, the longest first."""
        for length in range(min(self._longest, len(self.text) - at), 0, -1):
            token = self._ids.get(self.text[at : at + length], -1)
            if token >= 0 and (constraint.within is None or constraint.within[token]):
                yield token

    def _maybe_spoil(self, token: int, constraint: Constraint) -> int:
        if self._rng.random() >= WRONG:
            return token
        while True:
            wrong = self._rng.randrange(len(self._surfaces))
            if self._surfaces[wrong] and (constraint.within is None or constraint.within[wrong]):
                return wrong


def dictionary_of(texts: Iterable[Sequence[int]], tokenizer: Tokenizer) -> Dictionary:
    """Return a dictionary of the texts, a share of whose tokens has been spoilt."""
    rng = random.Random(0)
    spoilt = ([rng.randrange(tokenizer.size) if rng.random() < WRONG else token for token in text] for text in texts)
    windows = [text[start : start + 7] for text in spoilt for start in range(len(text) - 1)]
    # The files are mapped when the folder goes: their pages live as long as the dictionary.
    with tempfile.TemporaryDirectory() as folder:
        predictions = predict([(window, 1) for window in windows], DictSpecOptions())
        shape = write_dictionary(Path(folder), entries_of(predictions))
        seal(Path(folder), Manifest(FORMAT, VERSION, {}, {"target": tokenizer.identity}, {}, shape))
        return Dictionary(Path(folder))


@dataclass
class Drafters:
    """The drafters of a setting by name: two each, for prompts by turns, where there are two draft tokenizers.

    Attributes:
        by_name: The drafters.
        sources: Those that want to be told the text, as bytes.
    """

    by_name: dict[str, list[Drafter]]
    sources: list[SpoiltText]


# Slow to make; one generation uses them at a time, and each begins anew.
_translators = cache(Language.translators)


def drafters(language: Language, kind: Kind, texts: Iterable[Sequence[int]]) -> Drafters:
    """Make all drafters for a kind of cache; ``texts`` are the plain outputs with their prompts."""
    target = language.tokenizer("target")
    dictionary = Dictionary(language.dictionary()) if kind.trained else dictionary_of(texts, target)
    model = noisy(kind.build(language))
    sources: list[SpoiltText] = []

    def source(name: str, tokenizer: Tokenizer) -> Any:
        if kind.trained:
            return ModelSource(language.trained(name), bos=tokenizer.roles.bos, size=tokenizer.size)
        sources.append(SpoiltText(tokenizer))
        return sources[-1]

    pairs = []
    for name in LANGUAGES[language.name]:
        pairs.append((source(name, language.tokenizer(name)), _translators(language, name)))

    def translated(strategy: str) -> list[Drafter]:
        return [TranslatedDrafter(source, translators[strategy]) for source, translators in pairs]

    looked_up = LookupDrafter(dictionary, True)
    by_name: dict[str, list[Drafter]] = {
        "dictionary": [LookupDrafter(dictionary)],
        "history": [LookupDrafter(None, True)],
        "dictionary+history": [looked_up],
        "model": [ModelDrafter(model)],
        **{strategy: translated(strategy) for strategy in STRATEGIES},
        "hybrid": [
            HybridDrafter([looked_up, drafter, ModelDrafter(model)], draft_cost=0.1)
            for drafter in translated("anchored")
        ],
    }
    return Drafters(by_name, sources)
