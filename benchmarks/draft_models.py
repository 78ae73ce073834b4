"""Which draft model pays for which tokenizer: guesses that are right, tokens per pass, and speed on published curves.

    LD_PRELOAD=… python benchmarks/draft_models.py record --draft gemma3-270m-pruned --source pl.answers
    python benchmarks/draft_models.py replay            all that was recorded; no model runs
    python benchmarks/draft_models.py tables            Markdown of docs/draft-models.md
    python benchmarks/draft_models.py beliefs           what the policy expects of asking a draft model

A draft model is asked at every place of texts that people or other models wrote, as if a target with each of the
tokenizers wrote them: 300 characters of 12 texts, after the question or after 400 characters of the document. What it
drafts after a text hardly depends on the target's tokenizer, so it is asked once where their tokens end at the same
place and its first token is allowed to be the same. Several texts share its passes. The drafts are kept in
``.scratch/draft_models``, in the model's own tokens; ``replay`` translates them and takes the policy as it is.

Nobody here has a Mac: what passes cost is what others have published (``measure/chips.jsonl``), and what a draft token
costs is assumed. Alignments are made with the bundled samples and dictionaries from the bundled packs, as by ``setup``.
Adds lines to ``benchmarks/results/draft_models.jsonl``.
"""

import json
import logging
import math
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from heapq import heapify, heappop, heappush
from itertools import accumulate, pairwise, product
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import click
import numpy as np
from real_data import made, real_corpus, real_tokenizer
from real_models import SHARED, real_model
from tqdm import tqdm

from spectool.artifacts.alignment import Alignment
from spectool.artifacts.dictionary import Dictionary
from spectool.measure.chips import cost_range, published
from spectool.measure.first_guesses import guesses, passages, right_proposals
from spectool.measure.predict import RecordedModel, Text
from spectool.measure.replay import replay
from spectool.runtime.drafters.drafter import Drafter, DrafterSet, Proposal
from spectool.runtime.drafters.drafter_slot import DrafterSlot
from spectool.runtime.drafters.drafting import Drafting, alone
from spectool.runtime.drafters.lookup import LookupDrafter
from spectool.runtime.drafters.model_source import ModelSource
from spectool.runtime.drafters.together import DraftPasses
from spectool.runtime.drafters.translated import TranslatedDrafter
from spectool.runtime.loading import LEAST_OF_LOOKUPS, LEAST_OF_MODELS, load_model
from spectool.runtime.policy.candidate import Candidate, level_of
from spectool.runtime.policy.models import DOUBTED
from spectool.runtime.policy.policy import Policy
from spectool.runtime.policy.record import DraftCost
from spectool.runtime.translation.byte_aligned import ByteAlignedTranslator, FirstTokenRule
from spectool.tokenization.opening import open_tokenizer
from spectool.tokenization.tokenizer import Tokenizer

FOLDER = Path(__file__).parent.parent / ".scratch" / "draft_models"
RESULTS = Path(__file__).parent / "results" / "draft_models.jsonl"
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
COSTS = (0.03, 0.1, 0.2)
LENGTHS = (1, 2, 4)
CHIP = "M4 Pro"
_DRAFT_BYTES, _BYTES = 0.22e9, 4.5 / 8  # of the pruned draft in bfloat16; of a weight of 4 bits with its scales
_READING = 1 / 8  # of the cost of a draft token: what a token costs that the draft model only reads
_PROMPT, _OUTPUT = 400, 300  # characters
_LONGEST = 8  # draft tokens
_LEAST = 0.25  # probability of all draft tokens after which none is added: below what any policy here goes on from
TEXTS = 12  # of a source
_RESAMPLED = 1000

Chain = tuple[list[int], bool, list[float]]
"""Ids that a model drafts, whether the first is healed, and the log-probability that they are right up to each."""


class Side:
    """The tokens of a text for one target, as far as it has written them.

    Attributes:
        prompt: Target ids before the first place.
        output: Target ids from there on.
        chains: What the draft model says at each place so far.
    """

    def __init__(self, target: Tokenizer, translator: ByteAlignedTranslator | None, before: str, after: str) -> None:
        """Begin before ``after``; with no ``translator`` for a draft model that has the target's tokenizer."""
        ids = target.encode(before + after)
        ends = np.cumsum([len(target.token_bytes[token]) for token in ids]) - target.leading_space
        first = int(np.searchsorted(ends, len(before.encode()), "right"))
        self.prompt, self.output, self.chains = ids[:first], ids[first:], list[Chain]()
        self._ends, self._translator = ends[first:].tolist(), translator and translator.fork()
        if self._translator is not None:
            self._translator.commit(self.prompt)

    @property
    def is_over(self) -> bool:
        """Whether the model was asked at every place."""
        return len(self.chains) == len(self.output)

    @property
    def end(self) -> int:
        """Bytes of the text up to the next token's end, for the order in which targets are served."""
        return int(self._ends[len(self.chains)])

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


def asking(sides: Sequence[Side], known: Known) -> Asking:
    """Yield what a model has yet to be asked so that all targets know its drafts at every place; gets these."""
    waiting = [(side.end, at) for at, side in enumerate(sides)]
    heapify(waiting)
    while waiting:
        side = sides[(at := heappop(waiting)[1])]
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
        if not side.is_over:
            heappush(waiting, (side.end, at))


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
    DraftPasses().draft([(slot, _LONGEST) for slot in slots])
    if failures:
        raise RuntimeError(failures[0])


class Kept:
    """A `ModelSource` that says again what a model said, and ends its drafts as generation does.

    Attributes:
        chain: What it says next.
        made: Draft tokens of that so far.
    """

    costs_a_pass, cache = True, None

    def __init__(self) -> None:
        self.chain: Chain = [], False, []
        self.made = 0

    @property
    def likely(self) -> list[float]:
        """As of a `ModelSource`."""
        return self.chain[2][: self.made]

    def drafting(
        self, context: object, rule: object, limit: int, unchanged: int = 0
    ) -> Drafting[tuple[list[int], bool]]:
        """As of a `ModelSource`."""
        self.made = 0
        while self.made < limit and self._may_go_on():
            self.made += 1
        return self.chain[0][: self.made], self.chain[1]
        yield

    def going_on(self) -> Drafting[list[int]]:
        """As of a `ModelSource`."""
        before, self.made = self.made, self.made + self._may_go_on()
        return self.chain[0][before : self.made]
        yield

    def _may_go_on(self) -> bool:
        enough = not self.made or self.likely[-1] >= math.log(LEAST_OF_MODELS)
        return enough and self.made < len(self.chain[0])


class KeptModel(Drafter):
    """Proposes at the places of texts what the product makes of what its model said there."""

    name, costs_a_pass, longest = "model", True, _LONGEST

    def __init__(self, sides: Iterable[Side], translator: ByteAlignedTranslator | None, honesty: float) -> None:
        """Know what a model said; there is no translator where its tokens are the target's."""
        self._kept, self._passes, self.honesty = Kept(), 0, honesty
        self._translated = None if translator is None else TranslatedDrafter(self._kept, translator)  # type: ignore[arg-type]
        self._chains = {
            (*side.prompt, *side.output[:at]): chain for side in sides for at, chain in enumerate(side.chains)
        }

    @property
    def passes(self) -> int:
        """As of a model."""
        return self._passes

    def start(self, prompt: Sequence[int]) -> None:
        """Go to a place."""
        self._kept.chain = self._chains[tuple(prompt)]
        if self._translated is not None:
            self._translated.start(prompt)

    def propose(self, limit: int) -> Proposal:
        """As a model does."""
        if self._translated is not None:
            proposal = self._translated.propose(limit)
        else:
            ids, _ = alone(self._kept.drafting((), None, limit), None)
            proposal = Proposal(ids, self.name, np.exp(np.diff(self._kept.likely, prepend=0.0)).tolist())
        self._passes += max(1, self._kept.made)
        return proposal


def first_guesses(texts: Sequence[Text], drafter: Drafter) -> list[list[bool]]:
    """Whether the first token that a drafter proposes is right, at each place of each text."""
    return [list(right_proposals(drafter, [text])) for text in texts]


class Spent(NamedTuple):
    """Tokens of each text, and the passes or plain passes that they took."""

    tokens: list[int]
    passes: list[float]

    def speed(self) -> float:
        """Tokens in a pass."""
        return sum(self.tokens) / sum(self.passes)

    def interval(self) -> list[float]:
        """The middle 95% of what other draws of the same number of texts give."""
        texts = np.array([self.tokens, self.passes])
        draws = np.random.default_rng(0).integers(0, texts.shape[1], (_RESAMPLED, texts.shape[1]))
        tokens, passes = texts[:, draws].sum(axis=2)
        return [round(float(each), 3) for each in np.quantile(tokens / passes, (0.025, 0.975))]


def session(
    texts: Sequence[Text],
    policy: Policy | int,
    look_ups: Drafter | None,
    model: RecordedModel | None,
    cost: float = 0.0,
) -> Spent:
    """Replay texts one after the other, with a policy that goes on learning, or up to a number of draft tokens."""
    draft_cost = DraftCost(cost, cost * _READING)
    if model is not None:
        model.asked.clear()
        if isinstance(policy, Policy):
            policy.record(model.name).begin_model(draft_cost, model.honesty)
    written, spent, totals = 0, 0.0, [0.0]
    tokens = [len(text.output) for text in texts]
    ends = set(accumulate(tokens))

    def on_cycle(count: int, passes: float) -> None:
        nonlocal written, spent
        written, spent = written + count, spent + (passes if isinstance(policy, Policy) else 1.0)
        if written in ends:
            totals.append(spent + (0.0 if model is None else model.plain_passes(draft_cost)))

    members = [each for each in (look_ups, model) if each is not None]
    prompts = [text.prompt for text in texts]
    replay([text.output for text in texts], DrafterSet(members), policy, on_cycle, prompts)
    return Spent(tokens, [after - before for before, after in pairwise(totals)])


def figures(texts: Sequence[Text], model: RecordedModel, look_ups: LookupDrafter) -> dict[str, Any]:
    """All that is known of a draft model for a target, alone and with look-ups."""
    right = {"look-ups": first_guesses(texts, look_ups), "model": first_guesses(texts, model)}
    right["either"] = [list(map(max, *pair)) for pair in zip(*right.values(), strict=True)]
    ways = {"look-ups": (look_ups, None), "model": (None, model), "both": (look_ups, model)}
    first = {name: Spent([sum(each) for each in found], [len(each) for each in found]) for name, found in right.items()}
    places = sum(len(text.output) for text in texts)
    found = {"texts": len(texts), "places": places, "first": {}, "tokens per pass": {}, "curves": {}}
    found["first"] = {name: [round(each.speed(), 3), *each.interval()] for name, each in first.items()}
    for length in LENGTHS:
        spent = {name: session(texts, length, *way) for name, way in ways.items()}
        by_name = {name: [round(each.speed(), 3), *each.interval()] for name, each in spent.items()}
        found["tokens per pass"][length] = by_name
    for row in published():
        speeds = {
            name: [
                round(session(texts, Policy(row.curve), *way, cost).speed(), 3)
                for cost in COSTS[: len(COSTS) if way[1] else 1]
            ]
            for name, way in ways.items()
        }
        found["curves"][row.title] = speeds
    return found


def texts_of(source: str) -> Iterator[tuple[str, str]]:
    """What stands before each text of a source, and the text."""
    language, kind = source.split(".")
    if kind == "people":
        documents = [each.text for each in real_corpus(language, "valid") if len(each.text) >= _PROMPT + _OUTPUT]
        for text in documents[:: max(1, len(documents) // TEXTS)][:TEXTS]:
            yield text[:_PROMPT], text[_PROMPT : _PROMPT + _OUTPUT]
        return
    asked = {each["question_id"]: each["turns"] for each in _lines(SHARED / "prompts" / "pl_mt_bench.jsonl")}
    for path in sorted((SHARED / "answers").glob("*.jsonl")):
        said = {(each["id"], each["turn"]): each["text"] for each in _lines(path) if each["id"] in asked}
        few = TEXTS // 2
        for question, turn in list(said)[:: max(1, len(said) // few)][:few]:
            turns = [asked[question][0]]
            if turn == 2:
                turns += [said.get((question, 1), ""), asked[question][1]]
            yield "\n\n".join([*turns, ""]), said[question, turn][:_OUTPUT]


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


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


def look_ups_of(target: str, language: str) -> LookupDrafter:
    """The bundled dictionary of a language for a target, and the history."""
    options = "--tokenizer", SHARED / "tokenizers" / target, "--pack", language
    return LookupDrafter(
        Dictionary(made(f"{target}-{language}-pack.dict", "build-dict", *options)), True, LEAST_OF_LOOKUPS
    )


@click.group()
def main() -> None:
    """Record what draft models say, replay it, and write the tables."""


@main.command("record")
@click.option("--draft", required=True, type=click.Choice(list(NAMES)))
@click.option("--source", type=click.Choice(SOURCES), required=True)
@click.option("--target", "targets", multiple=True, default=list(TARGETS), show_default=True)
@click.option("--texts", "count", default=TEXTS, show_default=True)
def record_command(draft: str, source: str, targets: Sequence[str], count: int) -> None:
    """Ask a draft model all that has not been asked yet, about several texts together."""
    model, tokenizer = load_model(str(draft_of(draft)))
    drafting, known = open_tokenizer(tokenizer), read_known(draft, source)
    source_of = ModelSource(model, bos=drafting.roles.bos, size=drafting.size)
    pairs = [(real_tokenizer(target), translator_of(draft, target)) for target in targets]
    texts = list(enumerate(texts_of(source)))[:: max(1, TEXTS // count)]
    before = {number: {key: len(said) for key, said in known[number].items()} for number, _ in texts}
    with tqdm(desc=f"{draft}, {source}", disable=None) as bar:
        questions = [asking([Side(*pair, *text) for pair in pairs], known[number]) for number, text in texts]
        ask(source_of, questions, bar.update)
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
    for number, key, rules, (ids, healed, likely) in _lines(path) if path.exists() else ():
        said = {(token, was_healed): allowed for token, was_healed, allowed in rules}
        known[number][key].append((said, (ids, healed, likely)))
    return known


def _path(draft: str, source: str) -> Path:
    FOLDER.mkdir(parents=True, exist_ok=True)
    return FOLDER / f"{draft}.{source}.jsonl"


@main.command("replay")
@click.option("--draft", "drafts", multiple=True, type=click.Choice(list(NAMES)), default=list(NAMES))
@click.option("--source", "sources", multiple=True, type=click.Choice(SOURCES), default=SOURCES)
@click.option("--target", "targets", multiple=True, default=list(TARGETS), show_default=True)
def replay_command(drafts: Sequence[str], sources: Sequence[str], targets: Sequence[str]) -> None:
    """Replay what was recorded, with look-ups, draft model and both, as drafters and policy are now."""
    logging.disable()
    for draft, source, target in product(drafts, sources, targets):
        written, model = recorded(draft, source, target)
        if not any(text.output for text in written):
            click.echo(f"{draft}, {source}, {target}: not recorded")
            continue
        found = {"draft": draft, "source": source, "target": target}
        found |= figures(written, RecordedModel(model), look_ups_of(target, source[:2]))
        click.echo(json.dumps({key: value for key, value in found.items() if key != "curves"}))
        with RESULTS.open("a", encoding="utf-8") as file:
            file.write(json.dumps(found) + "\n")


def recorded(draft: str, source: str, target: str) -> tuple[list[Text], KeptModel]:
    """The texts of a source as far as a draft model was asked about them, and what it said."""
    known, translator, tokenizer = read_known(draft, source), translator_of(draft, target), real_tokenizer(target)
    texts = [(number, text) for number, text in enumerate(texts_of(source)) if number in known]
    sides = {number: Side(tokenizer, translator, *text) for number, text in texts}
    for number, side in sides.items():
        next(asking([side], known[number]), None)  # ends where the model was not asked
    written = [Text(side.prompt, side.output[: len(side.chains)]) for side in sides.values()]
    return written, KeptModel(sides.values(), translator, honesty_of(draft, source[:2]))


def honesty_of(draft: str, language: str) -> float:
    """How often guesses of a draft model are right on the sample of a language, as a share of what it says of them."""
    path = FOLDER / f"{draft}.{language}.guesses.json"
    if not path.exists():
        model, loaded = load_model(str(draft_of(draft)))
        path.write_text(json.dumps(guesses(model, open_tokenizer(loaded), passages(f"sample:{language}"))))
    found = json.loads(path.read_text())
    return float(found["right"] / found["said"])


@main.command("beliefs")
@click.option("--draft", type=click.Choice(list(NAMES)), default=BEST)
@click.option("--source", "sources", multiple=True, type=click.Choice(SOURCES), default=SOURCES[:2])
def beliefs_command(draft: str, sources: Sequence[str]) -> None:
    """Print how probable the best first token is once the model was asked, and how often it is right, by level.

    Levels are of how sure look-ups are, and each has four quarters of places (`spectool.runtime.policy.models`).
    """
    found = defaultdict[int, list[tuple[float, bool]]](list)
    for source, target in product(sources, TARGETS):
        (written, model), look_ups = recorded(draft, source, target), look_ups_of(target, source[:2])
        for text in written:
            look_ups.start(text.prompt)
            for at, token in enumerate(text.output):
                model.start([*text.prompt, *text.output[:at]])
                one, other = (Candidate(each, each.stated) for each in (look_ups.propose(1), model.propose(1)))
                same = list(one.proposal.tokens) == list(other.proposal.tokens)
                both = 1.0 - (1.0 - one.first) * (1.0 - other.first)
                best = both if same else max(other.first, DOUBTED * one.first)
                said = other if same or other.first == best else one
                found[level_of([one])].append((best, list(said.proposal.tokens) == [token]))
                look_ups.commit([token])
    for level, places in sorted(found.items()):
        quarters = np.array_split(np.array(sorted(places)), 4)
        click.echo(f"{level}: " + ", ".join("{:.2f} ({:.2f})".format(*quarter.mean(axis=0)) for quarter in quarters))


@main.command("tables")
def tables_command() -> None:
    """Write the tables of docs/draft-models.md."""
    click.echo("\n\n".join(tables()))


def tables() -> Iterator[str]:
    """Markdown: what to expect, guesses and tokens per pass, and speeds on each curve."""
    rows = {(row["target"], row["draft"], row["source"]): row for row in _lines(RESULTS)}  # the last of each
    costs = tuple(f"at {cost}" for cost in COSTS)
    yield _table(
        ("your model, 4 bits", "look-ups", *costs, f"a draft token on {CHIP}", "gain there"),
        (
            (model, f"{look_ups:.2f}", *(f"{speed:.2f}" for speed in both), *_on_chip(row, weights))
            for (target, draft, source), row in _in_order(rows)
            if (draft, source) == (BEST, SOURCES[0])
            for look_ups, both in [_usual(row, "")]
            for model, weights in TARGETS[target][1].items()
        ),
    )
    ways = "look-ups", "model", "both"
    yield _table(
        (
            *("tokenizer", "draft", "text", "places", "right: look-ups", "right: draft", "right: either"),
            *(f"up to {length}: look-ups, draft, both" for length in LENGTHS),
        ),
        (
            (
                *(TARGETS[target][0], NAMES[draft], source, f"{row['places']:,}"),
                *(_with_interval(each) for each in row["first"].values()),
                *(
                    ", ".join(f"{row['tokens per pass'][str(length)][way][0]:.2f}" for way in ways)
                    for length in LENGTHS
                ),
            )
            for (target, draft, source), row in _in_order(rows)
        ),
    )
    for source in SOURCES:
        here = [(target, row) for (target, draft, of), row in _in_order(rows) if of == source and draft == BEST]
        if not here:
            continue
        head = "curve", *(f"{TARGETS[target][0]}, {source}" for target, _ in here)
        body = ((name, *(_speeds(row["curves"][title]) for _, row in here)) for title, name in _curves().items())
        yield _table(head, body)


def _curves() -> dict[str, str]:
    """A short name for each published curve, by its title; of equal ones, the first."""
    found: dict[str, str] = {}
    seen = []
    for row in published():
        if row.curves not in seen:
            seen.append(row.curves)
            group = f", groups of {row.group}" if row.group else ""
            experts = ", mixture of experts" if row.experts else ""
            context = f", after {max(row.curves):,} tokens" if max(row.curves) > 1000 else ""
            found[row.title] = row.title.partition(f", {row.source}")[0] + group + experts + context
    return found


def _in_order(rows: Mapping[tuple[str, str, str], Any]) -> list[tuple[tuple[str, str, str], Any]]:
    order = (list(TARGETS), list(NAMES), SOURCES)
    return sorted(rows.items(), key=lambda row: [known.index(part) for part, known in zip(row[0], order, strict=True)])


def _usual(row: Mapping[str, Any], curves: str) -> tuple[float, list[float]]:
    """The median over the curves whose names begin with this: with look-ups, and with both at each cost."""
    speeds = [row["curves"][title] for title, name in _curves().items() if name.startswith(curves)]
    both = [median(curve["both"][at] for curve in speeds) for at in range(len(COSTS))]
    return median(curve["look-ups"][0] for curve in speeds), both


def _on_chip(row: Mapping[str, Any], billions: float) -> tuple[str, str]:
    """What a draft token costs where nobody has timed it, and what the draft model adds to look-ups at either end."""
    look_ups, both = _usual(row, f"{CHIP}, 4-bit")
    ends = [each.token for each in cost_range(CHIP, _DRAFT_BYTES, billions * 1e9 * _BYTES)]
    gains = sorted(100 * (np.interp(each, COSTS, both) / look_ups - 1) for each in ends)
    return " to ".join(f"{each:.2f}" for each in ends), " to ".join(f"{round(each):+d}%" for each in gains)


def _with_interval(figures: Sequence[float]) -> str:
    share, low, high = figures
    return f"{share:.2f} ({low:.2f}–{high:.2f})"


def _speeds(ways: Mapping[str, Sequence[float]]) -> str:
    """With look-ups; with both at each cost."""
    return "; ".join(", ".join(f"{speed:.2f}" for speed in ways[way]) for way in ("look-ups", "both"))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows))


if __name__ == "__main__":
    main()
