"""What draft models say in texts, recorded for `draft_models_replay.py`.

    LD_PRELOAD=… python benchmarks/draft_models_record.py --draft gemma3-270m-pruned --source pl.answers

A draft model is asked at every place of texts that people or other models wrote, as if a target with each of the
tokenizers wrote them: 300 characters of 12 texts, after the question or after 400 characters of the document. What it
drafts after a text hardly depends on the target's tokenizer, so it is asked once where their tokens end at the same
place and its first token is allowed to be the same. The texts share its passes. The drafts are kept in
``.scratch/draft_models``, in the model's own tokens.
"""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import product
from pathlib import Path
from typing import Any

import click
import numpy as np
from real_data import made, real_corpus, real_tokenizer
from real_models import SHARED, real_model
from saving import json_lines
from tqdm import tqdm

from spectool.artifacts.alignment import Alignment
from spectool.runtime.drafters.drafter import Drafter, Drafting, Proposal
from spectool.runtime.drafters.drafter_slot import FIRST, LATEST, DrafterSlot
from spectool.runtime.drafters.model_source import ModelSource
from spectool.runtime.drafters.together import DraftPasses
from spectool.runtime.loading import load_model
from spectool.runtime.translation.byte_aligned import ByteAlignedTranslator, FirstTokenRule
from spectool.tokenization.opening import open_tokenizer
from spectool.tokenization.tokenizer import Tokenizer

FOLDER = Path(__file__).parent.parent / ".scratch" / "draft_models"
TARGETS = {  # tokenizers in SPECTOOL_SHARED: name, and models with billions of weights
    "bielik-11b-v2.5": ("Bielik 11B", {"Bielik 11B": 11.2}),
    "mistral-nemo": ("Nemo", {"PLLuM 12B, Mistral Nemo": 12.2}),
    "bielik-4.5b-v3-apt4": ("Bielik 4.5B", {"Bielik 4.5B": 4.8}),
    "llama-3.2": ("Llama 3.2", {"Llama 3.2 3B": 3.2}),
    "gemma-3": ("Gemma 3", {"Gemma 3 12B": 11.8, "Gemma 3 27B": 27.0}),
    "qwen2.5": ("Qwen 2.5", {"Qwen 2.5 7B": 7.6, "Qwen 2.5 14B": 14.8}),
    "phi-3-mini": ("Phi 3", {"Phi 3 mini": 3.8}),
}
BEST = "gemma3-270m-pruned"
NAMES = {
    BEST: "Gemma 3 270M, pruned",
    "gemma3-270m": "Gemma 3 270M",
    "qwen2.5-coder-0.5b": "Qwen2.5-Coder 0.5B",
    "smollm2-135m": "SmolLM2 135M",
}
SOURCES = ("pl.answers", "pl.people", "uk.people")
LONGEST = 8  # draft tokens
TEXTS = 12  # of a source
_PROMPT, _OUTPUT = 400, 300  # characters
_LEAST = 0.25  # probability of all draft tokens after which none is added: below what any policy here goes on from

Chain = tuple[list[int], bool, list[float]]
"""Ids that a model drafts, whether the first is healed, and the log-probability that they are right up to each."""


class Side:
    """The tokens of a text for one target, as far as it has written them.

    Attributes:
        prompt: Target ids before the first place.
        output: Target ids from there on.
        chains: What the draft model says at each place so far.
    """

    def __init__(
        self,
        target: Tokenizer,
        translator: ByteAlignedTranslator | None,
        before: str,
        after: str,
        *,
        briefly: bool = False,
    ) -> None:
        """Begin before ``after``; with no ``translator`` for a draft model that has the target's tokenizer.

        The model reads all that is ``before``, or ``briefly`` its latest tokens.
        """
        ids = target.encode(before + after)
        ends = np.cumsum([len(target.token_bytes[token]) for token in ids]) - target.leading_space
        first = int(np.searchsorted(ends, len(before.encode()), "right"))
        self.prompt, self.output, self.chains = ids[:first], ids[first:], list[Chain]()
        if briefly and first > FIRST + LATEST:
            self.prompt = [*ids[:FIRST], *self.prompt[-LATEST:]]
        self._translator = translator and translator.fork()
        if self._translator is not None:
            self._translator.commit(self.prompt)

    @property
    def is_over(self) -> bool:
        """Whether the model was asked at every place."""
        return len(self.chains) == len(self.output)

    def asks(self) -> tuple[Sequence[int], FirstTokenRule]:
        """The text so far in draft ids, and what may follow."""
        if self._translator is None:
            return [*self.prompt, *self.output[: len(self.chains)]], FirstTokenRule()
        return self._translator.draft_context(), self._translator.constraint()

    def add(self, chain: Chain) -> None:
        """Keep what the model says, and go on to the next place."""
        if self._translator is not None:
            self._translator.commit([self.output[len(self.chains)]])
        self.chains.append(chain)


Said = tuple[dict[tuple[int, bool], bool], Chain]
"""Which first tokens a rule was asked about and allowed, and what the model drafts under it."""
Known = defaultdict[str, list[Said]]
"""All that a model has said in a text, by what it was asked."""
Asking = Generator[tuple[Sequence[int], FirstTokenRule], Chain, None]


def asking(side: Side, known: Known) -> Asking:
    """Yield what a model has yet to be asked so that its drafts are known at every place; gets these."""
    while not side.is_over:
        context, rule = side.asks()
        key = _key(context, rule)
        chain = next((chain for said, chain in known[key] if _says(rule, said)), None)
        if chain is None:
            said: dict[tuple[int, bool], bool] = {}

            def allows(token: int, healed: bool, rule: FirstTokenRule = rule, said: Any = said) -> bool:
                return bool(said.setdefault((token, healed), rule.allows(token, healed)))

            chain = yield context, FirstTokenRule(rule.extensions, rule.first, allows)
            known[key].append((said, chain))
        side.add(chain)


def _key(context: Sequence[int], rule: FirstTokenRule) -> str:
    parts = np.array(context, np.int32), rule.extensions, () if rule.first is None else rule.first
    return blake2b(b"|".join(np.asarray(part, np.int32).tobytes() for part in parts), digest_size=8).hexdigest()


def _says(rule: FirstTokenRule, said: Mapping[tuple[int, bool], bool]) -> bool:
    """Whether a rule decides as another one has about the same first tokens."""
    return all(rule.allows(token, healed) == allowed for (token, healed), allowed in said.items())


class Asker(Drafter):
    """Asks a model about a text at every place, so that several texts share its passes.

    A model whose caches can be cut goes on to the next place without waiting for the other texts.
    """

    costs_a_pass = True

    def __init__(self, source: ModelSource, questions: Asking, progress: Callable[[int], object]) -> None:
        """Answer the ``questions`` of one text; ``progress`` is called for each."""
        self.cache, self._source, self._questions, self._progress = source.cache, source, questions, progress

    def drafting(self, limit: int) -> Drafting[Proposal]:
        """Answer all questions with up to ``limit`` draft tokens each."""
        answer: Any = None
        while True:
            try:
                question = self._questions.send(answer)
            except StopIteration:
                return Proposal((), self.name)
            drafts, healed = yield from self._source.drafting(*question, 1)
            while 0 < len(drafts) < limit and self._source.likely[-1] >= math.log(_LEAST):
                drafts = [*drafts, *(yield from self._source.going_on())]
            answer = drafts, healed, list(self._source.likely)
            self._progress(1)


def ask(source: ModelSource, texts: Iterable[Asking], progress: Callable[[int], object]) -> None:
    """Ask a model about several texts together."""
    failures: list[str] = []
    slots = [DrafterSlot(Asker(source.fork(), questions, progress), failures) for questions in texts]
    DraftPasses().draft([(slot, LONGEST) for slot in slots])
    if failures:
        raise RuntimeError(failures[0])


def texts_of(source: str) -> Iterator[tuple[str, str]]:
    """What stands before each text of a source, and the text."""
    language, kind = source.split(".")
    if kind == "people":
        documents = [each for each in real_corpus(language, "valid") if len(each) >= _PROMPT + _OUTPUT]
        for text in documents[:: max(1, len(documents) // TEXTS)][:TEXTS]:
            yield text[:_PROMPT], text[_PROMPT : _PROMPT + _OUTPUT]
        return
    asked = {each["question_id"]: each["turns"] for each in json_lines(SHARED / "prompts" / "pl_mt_bench.jsonl")}
    for path in sorted((SHARED / "answers").glob("*.jsonl")):
        said = {(each["id"], each["turn"]): each["text"] for each in json_lines(path) if each["id"] in asked}
        few = TEXTS // 2
        for question, turn in list(said)[:: max(1, len(said) // few)][:few]:
            turns = [asked[question][0]]
            if turn == 2:
                turns += [said.get((question, 1), ""), asked[question][1]]
            yield "\n\n".join([*turns, ""]), said[question, turn][:_OUTPUT]


def draft_of(name: str) -> Path:
    """The directory of a draft model; one that is pruned to Polish and Ukrainian by their packs is made first."""
    whole = name.removesuffix("-pruned")
    packs = "--pack", "pl", "--pack", "uk"
    return made(name, "prune-draft", "--draft", real_model(whole), *packs) if name != whole else Path(real_model(whole))


def translator_of(draft: str, target: str) -> ByteAlignedTranslator | None:
    """Translates the drafts of a model for a target; None where the tokenizers are the same."""
    sides = open_tokenizer(str(draft_of(draft))), real_tokenizer(target)
    if sides[0].fingerprint == sides[1].fingerprint:
        return None
    options = "--draft", draft_of(draft), "--target", SHARED / "tokenizers" / target, "--corpus", "sample:pl"
    return ByteAlignedTranslator(Alignment(made(f"{draft}-{target}.align", "align", *options)), *sides)


@click.command()
@click.option("--draft", required=True, type=click.Choice(list(NAMES)))
@click.option("--source", type=click.Choice(SOURCES), required=True)
@click.option("--target", "targets", multiple=True, default=list(TARGETS), show_default=True)
@click.option("--texts", "count", default=TEXTS, show_default=True)
def main(draft: str, source: str, targets: Sequence[str], count: int) -> None:
    """Ask a draft model all that has not been asked yet, about several texts together."""
    model, tokenizer = load_model(str(draft_of(draft)))
    drafting, known = open_tokenizer(tokenizer), read_known(draft, source)
    source_of = ModelSource(model, bos=drafting.roles.bos, size=drafting.size)
    pairs = [(real_tokenizer(target), translator_of(draft, target)) for target in targets]
    texts = list(enumerate(texts_of(source)))[:: max(1, TEXTS // count)]
    before = {number: {key: len(said) for key, said in known[number].items()} for number, _ in texts}
    try:
        with tqdm(desc=f"{draft}, {source}", disable=None) as bar:
            # One target after the other, because a cache with windows cannot go back and forth between their tokens.
            for pair, briefly in product(pairs, (False, True)):
                sides = [(number, Side(*pair, *text, briefly=briefly)) for number, text in texts]
                ask(source_of, [asking(side, known[number]) for number, side in sides], bar.update)
    finally:  # after Ctrl-C as well: the next run goes on from there
        with _path(draft, source).open("a", encoding="utf-8") as file:
            for number, _ in texts:
                for key, found in known[number].items():
                    for said, chain in found[before[number].get(key, 0) :]:
                        rules = [[*about, allowed] for about, allowed in said.items()]
                        file.write(json.dumps([number, key, rules, chain]) + "\n")


def read_known(draft: str, source: str) -> defaultdict[int, Known]:
    """What a model has said in the texts of a source, by their number."""
    known = defaultdict[int, Known](lambda: defaultdict(list))
    path = _path(draft, source)
    for number, key, rules, (ids, healed, likely) in json_lines(path) if path.exists() else ():
        said = {(token, was_healed): allowed for token, was_healed, allowed in rules}
        known[number][key].append((said, (ids, healed, likely)))
    return known


def _path(draft: str, source: str) -> Path:
    FOLDER.mkdir(parents=True, exist_ok=True)
    return FOLDER / f"{draft}.{source}.jsonl"


if __name__ == "__main__":
    main()
