"""Python time of a cycle outside model calls: what drafting adds to the passes, and where it goes.

    python benchmarks/overhead.py --model DIR --draft DIR --profile      every case, some minutes
    python benchmarks/overhead.py --model DIR --case windows             those with this in their name

A cycle runs from one call of ``on_cycle`` to the next. Taken off it is the time inside a model's ``__call__``, which
builds the pass. So is that inside the calls that have it computed or wait for that (``mx.async_eval``, ``mx.eval``; a
draft model's ``ids``). All else counts. That is asking the drafter, committing to it, checking the proposal, building
the inputs, and marks and rewinding of the caches. It is also the graph of log-probabilities and of the choice,
statistics, the controller, and yielding. The first cycles of a generation are left out. Times are processor time of the
thread that runs the loop. It sleeps when a pass is computed or when other programs want the core. No time is counted
then. But it wakes up with cold processor caches, and everything takes several times as long.

``--profile`` runs every case once more with a clock around each part; a part's time leaves out the parts inside
it. The clocks are part of what this second run shows: about two microseconds each.

Dictionary and history draft for a small trained target (``--model``, from ``train_models.py``), which goes on from real
texts. The dictionary is counted on the beginning of the training text. ``--draft`` is a draft model with its tokenizer,
for rejection sampling. What marks and rewinding cost depends on the layers. So hollow models have the caches of large
ones, feed them, compute nothing else, and say a real text. As many drafts are accepted as in use, and the thread hardly
sleeps, as beside a fast device. They say it twice, in the target's vocabulary and in bytes. The loop does the same for
both. But logits of 256 numbers leave the processor's caches as they are, and those of 32,000 push the loop out of them.
What lies between the two figures is the price of cold caches, which no code of the loop can save.

Prints Markdown tables and adds JSON lines to ``benchmarks/results/overhead.jsonl``. Tokenizers and corpora come
from the folder named by SPECTOOL_SHARED.
"""

import json
import platform
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from pathlib import Path
from statistics import median, quantiles
from time import thread_time
from typing import Any
from unittest.mock import patch

import click
import mlx.core as mx
import tokenizers
from mlx_lm.generate import generate_step as host_step
from mlx_lm.generate import speculative_generate_step as host_speculative_step
from mlx_lm.models.cache import ArraysCache, KVCache, RotatingKVCache
from mlx_lm.sample_utils import make_logits_processors
from real_data import encoded, real_corpus
from tokenizers import decoders, models, pre_tokenizers

from spectool.build.counting.options import CountOptions
from spectool.build.dictionary.backoff_stage import count_and_build
from spectool.build.dictionary.options import BackoffOptions
from spectool.corpora import open_corpus
from spectool.runtime.caches.checkpoints import Checkpoints
from spectool.runtime.caches.leaves import offsets
from spectool.runtime.decoding import generation
from spectool.runtime.decoding import target as target_runner
from spectool.runtime.decoding.drafter import Drafter
from spectool.runtime.decoding.guarded_drafter import GuardedDrafter
from spectool.runtime.decoding.sampling import Sampling
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.draft_length.controller import Controller
from spectool.runtime.drafters import draft_model as model_drafter
from spectool.runtime.drafters.draft_model import ModelDrafter
from spectool.runtime.drafters.lookup import LookupDrafter
from spectool.runtime.loading import load_drafter, load_model
from spectool.tokenization import Tokenizer, open_tokenizer

RESULTS = Path(__file__).parent / "results" / "overhead.jsonl"
MODEL, WAITING = "model", "waiting"
PARTS: dict[str, list[tuple[Any, str]]] = {
    "drafter": [(owner, name) for owner in (LookupDrafter, ModelDrafter) for name in ("propose", "commit")],
    "controller": [(Controller, "choose"), (Controller, "learn")],
    "limits and checks": [(GuardedDrafter, "propose"), (GuardedDrafter, "commit")],
    "mark": [(Checkpoints, "mark")],
    "rewind": [(Checkpoints, "rewind")],
    "log-probabilities": [(target_runner, "log_probabilities")],
    "choice": [(target_runner, "choose")],
    "statistics": [(DraftStatistics, "record_pass"), (DraftStatistics, "record_token")],
}
LOOP = "the loop itself"
PROMPT = 128  # tokens
TOKENS = 256  # of a generation
LEFT_OUT = 16  # cycles at the beginning of a generation
# Caches by the name of their case: of the small target, then of models with 32 layers.
HOLLOW: dict[str, Callable[[], list[Any]]] = {
    "2 KV": lambda: [KVCache() for _ in range(2)],
    "32 KV": lambda: [KVCache() for _ in range(32)],
    "26 windows, 6 KV": lambda: [*(RotatingKVCache(max_size=64) for _ in range(26)), *(KVCache() for _ in range(6))],
    "24 recurrent, 8 KV": lambda: [*(ArraysCache(2) for _ in range(24)), *(KVCache() for _ in range(8))],
}


class Clock:
    """Seconds by what they went into, each without what was inside it."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = defaultdict(float)
        self._inside = 0.0

    def around(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``function`` with its time taken."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            before, self._inside = self._inside, 0.0
            began = thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                took = thread_time() - began
                self.spent[name] += took - self._inside
                self._inside = before + took

        return timed

    @contextmanager
    def attached(self, places: dict[str, list[tuple[Any, str]]]) -> Iterator[None]:
        """Take the time of functions and methods, given by the objects that hold them."""
        with ExitStack() as stack:
            for part, owners in places.items():
                for owner, name in owners:
                    stack.enter_context(patch.object(owner, name, self.around(part, getattr(owner, name))))
            yield


class Hollow:
    """A model that feeds its caches, computes nothing, and says a text."""

    def __init__(self, make_cache: Callable[[], list[Any]], text: Sequence[int], vocabulary: int) -> None:
        """Say ``text`` (token ids), whatever is fed."""
        self.make_cache = make_cache
        self._text, self._ids = mx.array(list(text)), mx.arange(vocabulary)

    def __call__(self, tokens: mx.array, cache: Sequence[Any] = ()) -> mx.array:
        """Return logits [1, tokens, vocabulary] that cannot be computed before the caches are."""
        count = tokens.shape[1]
        first = 1 + max((at for at in offsets(cache) if at is not None), default=0)
        entry, held = mx.zeros((1, 1, count, 8)), []
        for leaf in cache:
            if isinstance(leaf, ArraysCache):
                leaf[0], leaf[1] = mx.zeros((1, 3, 8)), mx.zeros((1, 1, 8, 8))
                held += leaf.cache
            else:
                held += leaf.update_and_fetch(entry, entry)
        logits = (self._text[first : first + count, None] == self._ids).astype(mx.float32)
        return mx.depends([logits], held)[0][None]


@dataclass
class Case:
    """One way of generating.

    Attributes:
        name: What the caches are, or how tokens are chosen.
        model: The target.
        prompts: Token ids.
        drafter: Who drafts; None for plain decoding.
        options: More of ``generate_step``'s.
        draft: The model behind the drafter.
        host: By mlx-lm's own loops, with ``draft`` or without.
    """

    name: str
    model: Any
    prompts: Sequence[Sequence[int]]
    drafter: Drafter | None
    options: dict[str, Any] = field(default_factory=dict)
    draft: Any = None
    host: bool = False


@click.command()
@click.option("--model", type=click.Path(path_type=Path, exists=True), required=True, help="A small trained target.")
@click.option("--draft", type=click.Path(path_type=Path, exists=True), help="A draft model with its tokenizer.")
@click.option("--language", default="pl", show_default=True)
@click.option("--train-tokens", default=2_000_000, show_default=True, help="Tokens to count the dictionary on.")
@click.option("--dictionary", type=click.Path(path_type=Path, exists=True), help="A dictionary instead.")
@click.option("--case", "wanted", multiple=True, help="Only cases with this in their name.")
@click.option("--cycles", default=600, show_default=True)
@click.option("--profile", is_flag=True, help="Run once more and show where the time goes.")
@click.option("--save/--no-save", default=True)
def main(
    model: Path,
    draft: Path | None,
    language: str,
    train_tokens: int,
    dictionary: Path | None,
    wanted: tuple[str, ...],
    cycles: int,
    profile: bool,
    save: bool,
) -> None:
    """Measure every case; save and print."""
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        target, tokenizer = load_model(str(model))
        opened = open_tokenizer(tokenizer)
        dictionary = dictionary or _dictionary(opened, language, train_tokens, Path(scratch) / "one.dict")
        for case in _cases(target, tokenizer, opened, dictionary, draft, language):
            if wanted and not any(part in case.name for part in wanted):
                continue
            row = {"case": case.name, **measure(case, cycles)}
            if profile:
                row["parts"] = measure(case, cycles, PARTS)["parts"]
            rows.append({**row, "machine": platform.platform(), "device": str(mx.default_device())})
            if save:
                with RESULTS.open("a", encoding="utf-8") as results:
                    results.write(json.dumps(rows[-1]) + "\n")
    columns = ("case", "us", "us 90%", "model ms", "waiting ms", "tokens per pass", "drafted passes")
    _table(columns, [[row[column] for column in columns] for row in rows])
    if profile:
        parts = list(dict.fromkeys(part for row in rows for part in row["parts"]))
        _table(["case", *parts], [[row["case"], *(row["parts"].get(part, 0.0) for part in parts)] for row in rows])


def measure(case: Case, cycles: int, parts: dict[str, list[tuple[Any, str]]] | None = None) -> dict[str, Any]:
    """Generate until there are so many cycles; return their figures, µs and ms medians.

    Args:
        case: What to generate.
        cycles: How many to measure.
        parts: Places to take the time of as well.
    """
    clock, statistics = Clock(), DraftStatistics()
    measured: list[dict[str, float]] = []
    last: float | None = None
    skipped = 0

    def on_cycle(done: object) -> None:
        nonlocal last, skipped
        now = thread_time()
        if last is not None and skipped >= LEFT_OUT:
            measured.append({**clock.spent, LOOP: now - last - sum(clock.spent.values())})
        skipped += 1
        clock.spent.clear()
        last = thread_time()

    models = {type(model) for model in (case.model, case.draft) if model is not None}
    waiting = [(mx, "async_eval"), (mx, "eval"), (mx.array, "item"), (model_drafter, "ids")]
    with clock.attached({MODEL: [(kind, "__call__") for kind in models], WAITING: waiting, **(parts or {})}):
        for prompt in cycle(case.prompts):
            if len(measured) >= cycles:
                break
            last, skipped = None, 0
            if case.host:
                _generate_by_host(case, prompt, on_cycle, statistics)
                continue
            options = {"max_tokens": TOKENS, "statistics": statistics, "on_cycle": on_cycle, **case.options}
            for _ in generation.generate_step(mx.array(prompt), case.model, drafter=case.drafter, **options):
                pass
    outside = [1e6 * sum(time for part, time in one.items() if part not in (MODEL, WAITING)) for one in measured]
    return {
        "us": round(median(outside), 1),
        "us 90%": round(quantiles(outside, n=10)[-1], 1),
        "model ms": round(1e3 * median(one.get(MODEL, 0.0) for one in measured), 2),
        "waiting ms": round(1e3 * median(one.get(WAITING, 0.0) for one in measured), 2),
        "cycles": len(measured),
        "tokens per pass": round(statistics.tokens_per_pass, 2),
        "drafted passes": round(statistics.coverage, 2),
        "parts": {
            part: round(1e6 * median(one.get(part, 0.0) for one in measured), 1) for part in [*(parts or ()), LOOP]
        },
    }


def _generate_by_host(
    case: Case, prompt: Sequence[int], on_cycle: Callable[[object], None], statistics: DraftStatistics
) -> None:
    """Generate with mlx-lm's own loops; a cycle ends with the token that no draft foretold."""
    tokens = mx.array(prompt, mx.uint32)
    if case.draft is None:
        for _ in host_step(tokens, case.model, max_tokens=TOKENS, **case.options):
            statistics.record("", 0, 0, 1)
            on_cycle(None)
        return
    accepted, drafts = 0, case.options["num_draft_tokens"]
    for _, _, drafted in host_speculative_step(tokens, case.model, case.draft, max_tokens=TOKENS, **case.options):
        if drafted:
            accepted += 1
            continue
        statistics.record("draft model", drafts, accepted, accepted + 1)
        on_cycle(None)
        accepted = 0


def _cases(
    target: Any, loaded: Any, tokenizer: Tokenizer, dictionary: Path, draft: Path | None, language: str
) -> Iterator[Case]:
    """Yield all cases."""
    documents = encoded(tokenizer, real_corpus(language, "valid"), 40_000)
    text = [token for document in documents for token in document]
    prompts = [text[first : first + PROMPT] for first in range(0, len(text) - PROMPT, 10 * PROMPT)]
    drafter = load_drafter(loaded, dictionary=dictionary)
    sampling = Sampling(temp=0.8, top_p=0.95)
    penalty = make_logits_processors(repetition_penalty=1.1)
    trained = partial(Case, model=target, prompts=prompts)
    yield trained("2 KV, trained, no drafter", drafter=None)
    yield trained("2 KV, trained, no drafter, mlx-lm's own loop", drafter=None, host=True)
    yield trained("2 KV, trained", drafter=drafter, options={"num_draft_tokens": 4})
    yield trained("2 KV, trained, auto", drafter=drafter, options={"num_draft_tokens": None})
    sampled = {"num_draft_tokens": 4, "sampler": sampling}
    yield trained("2 KV, trained, sampling", drafter=drafter, options=sampled)
    penalised = {"num_draft_tokens": 4, "logits_processors": penalty}
    yield trained("2 KV, trained, repetition penalty", drafter=drafter, options=penalised)
    if draft is not None:
        drafting = load_model(str(draft))[0]
        name, options = "2 KV, trained, draft model", {"num_draft_tokens": 4}
        yield trained(name, drafter=ModelDrafter(drafting), draft=drafting, options=options)
        yield trained(f"{name}, mlx-lm's own loop", drafter=None, draft=drafting, options=options, host=True)
        options = {**sampled, "verify": "rejection"}
        name = "2 KV, trained, draft model, rejection sampling"
        yield trained(name, drafter=ModelDrafter(drafting), draft=drafting, options=options)
    for name, make_cache in HOLLOW.items():
        hollow = partial(Case, model=Hollow(make_cache, text, tokenizer.size), prompts=prompts[:1], drafter=drafter)
        yield hollow(name, options={"num_draft_tokens": 4})
        yield hollow(f"{name}, auto", options={"num_draft_tokens": None})
    with tempfile.TemporaryDirectory() as scratch:
        letters = open_tokenizer(_bytes_alone())
        text = [token for document in encoded(letters, real_corpus(language, "valid"), 40_000) for token in document]
        drafter = load_drafter(
            letters, dictionary=_dictionary(letters, language, 400_000, Path(scratch) / "bytes.dict")
        )
        for name, make_cache in HOLLOW.items():
            hollow = partial(
                Case, model=Hollow(make_cache, text, letters.size), prompts=[text[:PROMPT]], drafter=drafter
            )
            yield hollow(f"{name}, bytes", options={"num_draft_tokens": 4})


def _bytes_alone() -> tokenizers.Tokenizer:
    """Return a tokenizer with a token for each byte, and no others."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    found = tokenizers.Tokenizer(models.BPE({letter: id_ for id_, letter in enumerate(alphabet)}, []))
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    found.decoder = decoders.ByteLevel()
    return found


def _dictionary(tokenizer: Tokenizer, language: str, tokens: int, out: Path) -> Path:
    """Build a backoff dictionary from the beginning of the training text."""
    corpus = real_corpus(language, "train")
    characters, texts = 4 * tokens, out.with_suffix(".txt")  # about four to a token
    with texts.open("w", encoding="utf-8") as file:
        for document in corpus:
            characters -= file.write(document.text.replace("\n", " ") + "\n")
            if characters <= 0:
                break
    count_and_build(tokenizer, open_corpus(str(texts)), out, BackoffOptions(), CountOptions(workers=1), _quiet)
    return out


def _quiet(step: str) -> None:
    """Say nothing."""


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a Markdown table."""
    click.echo("\n| " + " | ".join(columns) + " |\n|---|" + "---:|" * (len(columns) - 1))
    for row in rows:
        click.echo("| " + " | ".join(map(str, row)) + " |")


if __name__ == "__main__":
    main()
