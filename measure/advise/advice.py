"""From what a user names to what to do: tokenizers, text, sizes, costs, candidates, a recommendation."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from spectool import SpectoolError
from spectool.artifacts.formats.alignment import Alignment
from spectool.artifacts.tokenizer.tokenizer import Tokenizer
from spectool.measure.advise.candidate import Candidate, DraftModel
from spectool.measure.advise.expect import (
    Guesses,
    Verification,
    by_sizes,
    drafting_by_ratio,
    expect,
    of_acceptance,
)
from spectool.measure.advise.figures import Figure, assumed, computed, measured, stated, unknown
from spectool.measure.advise.machine import Machine
from spectool.measure.advise.pair import compare, fertility
from spectool.measure.advise.recommend import Recommendation, recommend
from spectool.measure.advise.replayed import replay
from spectool.measure.advise.sizes import Sizes, is_model, sizes_of
from spectool.runtime.draft_length.cost_model import geometric_tokens
from spectool.runtime.loading import load_drafter

if TYPE_CHECKING:
    from spectool.measure.advise.measuring import Measured

_REPLAYED = 20_000  # tokens of the text
_WINDOW = "32"  # tokens of a prompt, in the benchmark that is advised
_OWN_TEXT = "on the target's own text"
_TIMED = "time of the drafter in a cycle"


@dataclass(frozen=True, slots=True)
class Draft:
    """A draft that is considered.

    Attributes:
        name: In tables, unlike any other draft's.
        source: Directory, tokenizer.json or hub id.
        tokenizer: Its tokenizer.
        bytes: Of its weights, stated; None to look.
        acceptance: Stated; None to measure, or not to know.
        alignment: Of its tokenizer with the target's.
    """

    name: str
    source: str
    tokenizer: Tokenizer
    bytes: int | None = None
    acceptance: float | None = None
    alignment: Alignment | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked.

    Attributes:
        source: The target: directory, tokenizer.json or hub id.
        target: Its tokenizer.
        sizes: What it weighs.
        drafts: Candidates with a model.
        dictionaries: Candidates without.
        texts: Text of the language.
        corpus: Its name, for commands.
        lengths: Draft tokens in a cycle.
        context: Tokens that caches hold.
        machine: Where it is to run.
    """

    source: str
    target: Tokenizer
    sizes: Sizes
    drafts: Sequence[Draft]
    dictionaries: Sequence[Path]
    texts: Sequence[str]
    corpus: str
    lengths: Sequence[int]
    context: int
    machine: Machine


@dataclass(frozen=True, slots=True)
class Advice:
    """The answer.

    Attributes:
        fertility: Target tokens of a word.
        plain: Tokens per second of plain decoding.
        verification: What verifying costs.
        candidates: Every drafter considered.
        recommendation: What to do.
    """

    fertility: Figure
    plain: Figure
    verification: Verification
    candidates: Sequence[Candidate]
    recommendation: Recommendation


def advise(
    question: Question,
    verification: Verification,
    models: "Measured | None" = None,
    progress: Callable[[str], None] = lambda phrase: None,
) -> Advice:
    """Consider every drafter.

    Args:
        question: What is asked.
        verification: What verifying costs, where ``models`` do not tell.
        models: The target, loaded and timed; None to do without.
        progress: Called with a phrase when a step begins.

    Raises:
        SpectoolError: Something that is named cannot be used.
    """
    costs = verification if models is None else models.verification
    candidates = []
    for draft in question.drafts:
        progress(f"considering {draft.source}")
        candidates.append(_draft(question, draft, costs, models))
    replayed = _Replayed(question, models)
    for path in question.dictionaries:
        progress(f"replaying {path}")
        candidates.append(_lookup(question, path, costs, replayed))
    progress("replaying the text's own history")
    candidates.append(_lookup(question, None, costs, replayed))
    return Advice(
        fertility(question.target, question.texts),
        _plain(question, models),
        costs,
        candidates,
        recommend(candidates, costs),
    )


def _plain(question: Question, models: "Measured | None") -> Figure:
    if models is not None:
        return measured(1 / models.step, "by mlx-lm's own loop")
    weights, bandwidth = question.sizes.weights.value, question.machine.bandwidth.value
    if weights is None or bandwidth is None:
        return unknown("it takes the bytes of the target")
    return computed(bandwidth / weights, "at most: bandwidth / bytes of the target")


def _draft(question: Question, draft: Draft, costs: Verification, models: "Measured | None") -> Candidate:
    pair = compare(draft.tokenizer, question.target, question.texts, question.lengths, draft.alignment)
    sizes = sizes_of(draft.source, draft.bytes, question.context)
    r = by_sizes(sizes.weights, question.sizes.weights)
    memory, fits = _memory(question, sizes)
    commands = _commands(question, draft, pair.same)
    told, notes = None, []
    if models is not None:
        if not is_model(draft.source):
            notes.append(f"not loaded: {draft.source} is no directory with config.json and *.safetensors")
        elif fits is False:
            notes.append("not loaded: it does not fit into memory beside the target")
        elif not pair.same and draft.alignment is None:
            notes.append(f"not loaded: it takes an alignment. Make one, and name it with --alignment: {commands[0]}")
        else:
            told = models.draft(draft.source, None if draft.alignment is None else draft.alignment.path)
    if not pair.same and not pair.ceiling:
        notes.append("no ceiling: no passage of the text is kept by both tokenizers")
    if told is not None and told.divergence is not None and told.divergence.acceptance is not None:
        notes.append(_drawn(told.divergence.acceptance, question))
    expectations = []
    for k in question.lengths:
        perfect = pair.perfect(k)
        # k draft tokens of a vocabulary that cuts text smaller are fewer of the target's.
        guesses = of_acceptance(_acceptance(draft), k if perfect is None else min(k, perfect - 1))
        drafting = drafting_by_ratio(r, k)
        if told is not None:
            guesses = told.replays[k].guesses(_OWN_TEXT)
            drafting = measured(told.drafting[k], _TIMED)
        expectations.append(expect(k, guesses, drafting, costs, r))
    return Candidate(
        draft.name,
        "draft",
        expectations,
        memory,
        fits,
        DraftModel(pair, sizes, r, None if told is None or told.divergence is None else told.divergence._asdict()),
        commands,
        tuple(notes),
        models is not None and told is None,
    )


def _drawn(acceptance: float, question: Question) -> str:
    """Say what rejection sampling would accept: another figure than that of exact verification, on other text."""
    tokens = ", ".join(f"{geometric_tokens(acceptance, k):.2f} at k = {k}" for k in question.lengths)
    return (
        f"with --verify rejection at temperature 1, a draft token would be accepted with {acceptance:.0%} on "
        f"{question.corpus}, for {tokens} tokens per pass; where the tokenizers differ, that is of shared tokens alone"
    )


def _acceptance(draft: Draft) -> Figure:
    if draft.acceptance is not None:
        return stated(draft.acceptance)
    return unknown("no model was asked: --measure, or state it with --acceptance")


def _memory(question: Question, sizes: Sizes) -> tuple[Figure, bool | None]:
    """Return what the target and a draft take together, and whether that fits."""
    parts = (question.sizes.total, sizes.total)
    if any(part.value is None for part in parts):
        return next(part for part in parts if part.value is None), None
    total = sum(part.value or 0.0 for part in parts)
    lacking = [part.origin for part in parts if "alone" in part.origin]
    memory = computed(total, f"target and draft, {lacking[0].partition(': ')[2] if lacking else 'weights and caches'}")
    room = question.machine.memory.value
    return memory, None if room is None else total <= room


class _Replayed:
    """Replays of drafters that look up: on the target's own text where it was loaded, on the text given otherwise."""

    def __init__(self, question: Question, models: "Measured | None") -> None:
        self._question, self._models = question, models
        self._texts: list[tuple[Sequence[int], Sequence[int]]] = []
        left = _REPLAYED
        for ids in question.target.encode_batch(question.texts) if models is None else ():
            if left > 0:
                self._texts.append(((), ids[:left]))
                left -= len(ids)

    def __call__(self, dictionary: Path | None) -> tuple[dict[int, Guesses], dict[int, Figure]]:
        """Return guesses, and plain passes of a proposal, by draft length."""
        if self._models is not None:
            told = self._models.lookup(dictionary)
            guesses = {k: each.guesses(_OWN_TEXT) for k, each in told.replays.items()}
            return guesses, {k: measured(cost, _TIMED) for k, cost in told.drafting.items()}
        drafter = load_drafter(self._question.target, dictionary=dictionary)
        assert drafter is not None  # there is the history
        on = f"on {self._question.corpus}"
        guesses = {k: replay(self._texts, drafter, k).guesses(on) for k in self._question.lengths}
        return guesses, {k: assumed(0.0, "a look-up takes microseconds") for k in guesses}


def _lookup(question: Question, path: Path | None, costs: Verification, replayed: _Replayed) -> Candidate:
    guesses, drafting = replayed(path)
    files = 0 if path is None else sum(file.stat().st_size for file in path.iterdir() if file.is_file())
    weights = measured(files, "files of the dictionary") if files else computed(0.0, "the text itself")
    memory, fits = _memory(question, Sizes(weights, computed(0.0, "no cache")))
    return Candidate(
        "history" if path is None else str(path),
        "history" if path is None else "dictionary",
        [expect(k, guesses[k], drafting[k], costs) for k in question.lengths],
        memory,
        fits,
        todo=(_bench(question, "history" if path is None else f"dict={path},history"),),
        notes=("drafts from dictionary and history together",) if path is not None else (),
    )


def _commands(question: Question, draft: Draft, same: bool) -> tuple[str, ...]:
    model = f"model={_model(draft.source, 'DRAFT_MODEL')}"
    if same:
        return (_bench(question, model),)
    if draft.alignment is not None:
        return (_bench(question, f"{model},align={draft.alignment.path}"),)
    out = f"{draft.name}.align"
    named = {"--draft": draft.source, "--target": question.source, "--corpus": question.corpus, "-o": out}
    align = " ".join(f"{option} {shlex.quote(value)}" for option, value in named.items())
    return f"spectool align {align}", _bench(question, f"{model},align={out}")


def _model(source: str, otherwise: str) -> str:
    """Return what a benchmark calls a model: its directory or hub id, a word where only a tokenizer is there."""
    return otherwise if Path(source).expanduser().exists() and not is_model(source) else source


def _bench(question: Question, drafter: str) -> str:
    prompts = question.corpus.removeprefix("sample:")
    lengths = " ".join(f"--num-draft-tokens {k}" for k in question.lengths)
    named = {"--model": _model(question.source, "TARGET_MODEL"), "--drafter": drafter, "--prompts": prompts}
    if prompts == question.corpus:
        named["--window"] = _WINDOW  # whole documents have come to their end: a model may have nothing to add
    options = " ".join(f"{option} {shlex.quote(value)}" for option, value in named.items())
    return f"spectool bench {options} {lengths} -o advised.bench"


def check(question: Question) -> None:
    """Refuse what cannot be a draft.

    Raises:
        SpectoolError: A draft is the target itself.
    """
    for draft in question.drafts:
        same_place = Path(draft.source).expanduser().resolve() == Path(question.source).expanduser().resolve()
        if same_place and (draft.bytes is None or draft.bytes == question.sizes.weights.value):
            raise SpectoolError(
                f"{draft.source}: expected a draft that is cheaper than the target, got the target itself. Name "
                "another model, or state its bytes where the two share a tokenizer: --draft-bytes N"
            )
