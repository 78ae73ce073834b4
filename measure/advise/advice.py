"""From what a user names to what to do: tokenizers, text, sizes, costs, candidates, a recommendation."""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from spectool import SpectoolError
from spectool.artifacts.alignment import Alignment, alignments_of
from spectool.artifacts.console import say
from spectool.artifacts.default_paths import find_artifact
from spectool.measure.advise.expect import (
    M2_PRO_BETA,
    Figure,
    Guesses,
    Verification,
    assumed,
    by_sizes,
    computed,
    drafting_by_ratio,
    expect,
    measured,
    of_acceptance,
    stated,
    unknown,
)
from spectool.measure.advise.machine import GB, Machine, Sizes, is_model, sizes_of, this_machine, verification_of
from spectool.measure.advise.options import AdviceOptions
from spectool.measure.advise.pair import compare, fertility, sample
from spectool.measure.advise.recommend import Candidate, DraftModel, Recommendation, recommend
from spectool.measure.advise.replayed import replayed
from spectool.measure.emulate.replay import encode_text
from spectool.runtime.draft_length.cost_model import geometric_tokens
from spectool.runtime.loading import load_drafter
from spectool.tokenization.opening import open_tokenizer
from spectool.tokenization.tokenizer import Tokenizer

if TYPE_CHECKING:
    from spectool.measure.advise.timed_target import TimedTarget

_SAMPLE = 60_000  # characters of the text
_REPLAYED = 20_000  # tokens of the text
_WINDOW = "32"  # tokens of a prompt, in the benchmark that is advised


@dataclass(frozen=True)
class Draft:
    """A draft that is considered."""

    name: str  # in tables, unlike any other draft's
    source: str  # directory, tokenizer.json or hub id
    tokenizer: Tokenizer  # its tokenizer
    sizes: Sizes  # what it weighs
    acceptance: Figure  # stated, or not known
    alignment: Alignment | None  # of its tokenizer with the target's


@dataclass(frozen=True)
class Question:
    """What is asked, with the target and the text opened."""

    asked: AdviceOptions  # as the user says it
    corpus: str  # name of the text, for commands
    texts: Sequence[str]  # text of the language
    target: Tokenizer  # the target's tokenizer
    sizes: Sizes  # what the target weighs
    machine: Machine  # where it is to run
    costs: Verification  # what verifying costs there
    timed: "TimedTarget | None"  # the target, loaded and timed; None to do without


@dataclass(frozen=True)
class Advice:
    """The answer, as JSON has it."""

    target: str
    target_weights: Figure
    target_cache: Figure
    corpus: str
    characters: int
    fertility: Figure
    machine: Machine
    plain_tokens_per_second: Figure
    verification: Verification
    candidates: Sequence[Candidate]
    recommendation: Recommendation


def advise(asked: AdviceOptions, corpus: str, documents: Iterable[str]) -> Advice:
    """Open what is named, and consider every drafter on text of the language, whose name ``corpus`` is for commands.

    Raises:
        SpectoolError: Something that is named cannot be used.
    """
    target, sizes = open_tokenizer(asked.target), sizes_of(asked.target, asked.target_bytes, asked.context)
    drafts = _open_drafts(asked, target, sizes)
    texts, machine = sample(documents, _SAMPLE), this_machine(asked.bandwidth, asked.memory)
    costs, timed = _verification(asked, sizes, machine, texts)
    question = Question(asked, corpus, texts, target, sizes, machine, costs, timed)
    candidates = []
    for draft in drafts:
        say(f"considering {draft.source}")
        candidates.append(_draft(question, draft))
    for path in (*asked.dictionaries, None):
        say("replaying the text's own history" if path is None else f"replaying {path}")
        candidates.append(_lookup(question, path))
    if timed is not None:
        plain = measured(1 / timed.step, "by mlx-lm's own loop")
    elif sizes.weights.value is None or machine.bandwidth.value is None:
        plain = unknown("it takes the bytes of the target")
    else:
        speed = machine.bandwidth.value / sizes.weights.value
        plain = computed(speed, "at most: bandwidth / bytes of the target")
    return Advice(
        asked.target,
        sizes.weights,
        sizes.cache,
        corpus,
        sum(map(len, texts)),
        fertility(target, texts),
        machine,
        plain,
        costs,
        candidates,
        recommend(candidates),
    )


def _open_drafts(asked: AdviceOptions, target: Tokenizer, target_sizes: Sizes) -> list[Draft]:
    """Open the drafts' tokenizers, and give each its sizes and its alignment.

    Raises:
        SpectoolError: A tokenizer cannot be opened, an alignment is of others, or a draft is the target itself.
    """
    sources = asked.drafts
    names = [Path(source).parent.name if source.endswith("tokenizer.json") else Path(source).name for source in sources]
    if len(set(names)) < len(names) or not all(names):
        names = [source.strip("/") for source in sources]
    tokenizers = {name: open_tokenizer(source) for name, source in zip(names, sources, strict=True)}
    aligned = alignments_of(tokenizers, target, asked.alignments)
    drafts = []
    for number, (name, source) in enumerate(zip(names, sources, strict=True)):
        sizes = sizes_of(source, asked.draft_bytes[number] if asked.draft_bytes else None, asked.context)
        same_place = Path(source).expanduser().resolve() == Path(asked.target).expanduser().resolve()
        if same_place and sizes.weights.value == target_sizes.weights.value:
            raise SpectoolError(
                f"{source}: expected a draft that is cheaper than the target, got the target itself. Name another "
                "model, or state its bytes where the two share a tokenizer: --draft-bytes N"
            )
        acceptance = unknown("no model was asked: --measure, or state it with --acceptance")
        if asked.acceptance:
            acceptance = stated(asked.acceptance[number])
        path = aligned[name]
        drafts.append(
            Draft(
                name,
                source,
                tokenizers[name],
                sizes,
                acceptance,
                None if path is None else Alignment(find_artifact(path, ".align")),
            )
        )
    return drafts


def _verification(
    asked: AdviceOptions, sizes: Sizes, machine: Machine, texts: Sequence[str]
) -> "tuple[Verification, TimedTarget | None]":
    """Return what verifying costs as it was stated, measured in a run, or assumed; or load the target and time it."""
    if asked.measure:
        room, weight = machine.memory.value, sizes.total.value
        if room is not None and weight is not None and weight > room:
            raise SpectoolError(
                f"{asked.target}: expected a model of at most {room / GB:.1f} GB to load, got {weight / GB:.1f}. Leave "
                "out --measure, or state more --memory"
            )
        from spectool.measure.advise.timed_target import TimedTarget

        say(f"loading and timing {asked.target}")
        timed = TimedTarget(asked.target, texts, asked.lengths, asked.temp)
        return timed.verification, timed
    if asked.run is not None:
        return verification_of(asked.run, asked.target, sizes.weights.value), None
    beta = assumed(M2_PRO_BETA, "as on the M2 Pro of the published model; --measure times it here")
    return Verification(beta if asked.beta is None else stated(asked.beta)), None


def _draft(question: Question, draft: Draft) -> Candidate:
    lengths, timed = question.asked.lengths, question.timed
    pair = compare(draft.tokenizer, question.target, question.texts, lengths, draft.alignment)
    r = by_sizes(draft.sizes.weights, question.sizes.weights)
    memory, fits = _memory(question, draft.sizes.total)
    commands = _commands(question, draft, pair.same)
    notes, divergence = list[str](), None
    found = dict[int, Guesses]()
    if timed is not None:
        if not is_model(draft.source):
            notes.append(f"not loaded: {draft.source} is no directory with config.json and *.safetensors")
        elif fits is False:
            notes.append("not loaded: it does not fit into memory beside the target")
        elif not pair.same and draft.alignment is None:
            notes.append(f"not loaded: it takes an alignment. Make one, and name it with --alignment: {commands[0]}")
        else:
            found, divergence = timed.draft(draft.source, None if draft.alignment is None else draft.alignment.path)
    if not pair.same and not pair.ceiling:
        notes.append("no ceiling: no passage of the text is kept by both tokenizers")
    if divergence is not None and (drawn := divergence["acceptance"]) is not None:
        # another figure than that of exact verification, on other text
        tokens = ", ".join(f"{geometric_tokens(drawn, k):.2f} at k = {k}" for k in lengths)
        notes.append(
            f"with --verify rejection at temperature 1, a draft token would be accepted with {drawn:.0%} on "
            f"{question.corpus}, for {tokens} tokens per pass; where the tokenizers differ, that is of shared tokens "
            "alone"
        )
    expectations = []
    for k in lengths:
        perfect = pair.perfect(k)
        # k draft tokens of a vocabulary that cuts text smaller are fewer of the target's.
        proposed = k if perfect is None else min(k, perfect - 1)
        by_bytes = of_acceptance(draft.acceptance, proposed, drafting_by_ratio(r, k))
        expectations.append(expect(k, found.get(k, by_bytes), question.costs, r))
    model = DraftModel(pair, draft.sizes.weights, draft.sizes.cache, r, divergence)
    unmeasured = timed is not None and not found
    return Candidate(draft.name, "draft", expectations, memory, fits, model, commands, tuple(notes), unmeasured)


def _memory(question: Question, drafter: Figure) -> tuple[Figure, bool | None]:
    """Return what the target and a drafter take together, and whether that fits."""
    target, room = question.sizes.total, question.machine.memory.value
    if target.value is None or drafter.value is None:
        return (target if target.value is None else drafter), None
    total = float(target.value + drafter.value)
    lacking = next((part.how for part in (target, drafter) if "alone" in part.how), "weights and caches")
    return computed(total, f"target and draft, {lacking}"), None if room is None else total <= room


def _lookup(question: Question, path: Path | None) -> Candidate:
    """Consider a dictionary with the text's own history; history alone where there is no ``path``."""
    lengths, target = question.asked.lengths, question.target
    if question.timed is not None:
        found = question.timed.lookup(path)
    else:
        drafter = load_drafter(target, dictionary=path)
        assert drafter is not None  # there is the history
        texts = [((), ids) for ids in encode_text(target, question.texts, _REPLAYED).cut(_REPLAYED)]
        found = {k: replayed(texts, drafter, k, f"on {question.corpus}") for k in lengths}
    expectations = [expect(k, found[k], question.costs) for k in lengths]
    if path is None:
        memory, fits = _memory(question, computed(0.0, "the text itself"))
        return Candidate("history", "history", expectations, memory, fits, todo=(_bench(question, "history"),))
    files = [file.stat().st_size for file in find_artifact(path, ".dict").iterdir() if file.is_file()]
    memory, fits = _memory(question, measured(sum(files), "files of the dictionary"))
    todo, notes = (_bench(question, f"dict={path},history"),), ("drafts from dictionary and history together",)
    return Candidate(str(path), "dictionary", expectations, memory, fits, todo=todo, notes=notes)


def _commands(question: Question, draft: Draft, same: bool) -> tuple[str, ...]:
    """Return the commands that measure a draft, after the one that makes its alignment where that is lacking."""
    model = f"model={_model(draft.source, 'DRAFT_MODEL')}"
    if same:
        return (_bench(question, model),)
    if draft.alignment is not None:
        return (_bench(question, f"{model},align={draft.alignment.path}"),)
    out = f"{draft.name}.align"
    sides = ["--draft", draft.source, "--target", question.asked.target]
    align = shlex.join(["spectool", "align", *sides, "--corpus", question.corpus, "-o", out])
    return align, _bench(question, f"{model},align={out}")


def _bench(question: Question, drafter: str) -> str:
    prompts = question.corpus.removeprefix("sample:")
    words = ["--model", _model(question.asked.target, "TARGET_MODEL"), "--drafter", drafter, "--prompts", prompts]
    if prompts == question.corpus:
        words += ["--window", _WINDOW]  # whole documents have come to their end: a model may have nothing to add
    for k in question.asked.lengths:
        words += ["--num-draft-tokens", str(k)]
    return shlex.join(["spectool", "bench", *words, "-o", "advised.bench"])


def _model(source: str, otherwise: str) -> str:
    """Return what a benchmark calls a model: its directory or hub id, a word where only a tokenizer is there."""
    return otherwise if Path(source).expanduser().exists() and not is_model(source) else source
