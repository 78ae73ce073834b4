"""The steps of ``spectool setup``, from a model to a benchmark. Each knows whether what it makes is kept from before.

`Setup.steps` looks at the disk before every step. Going through it without making anything gives the plan; making what
is missing on the way goes on where an earlier run ended.
"""

import json
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from spectool import ArtifactError, CorpusError, TokenizerError
from spectool.artifacts.alignment import Alignment
from spectool.artifacts.artifact import read_manifest
from spectool.artifacts.atomic import atomic_file
from spectool.artifacts.default_paths import AUTO, default_path, digest, slug
from spectool.artifacts.dictionary import Dictionary
from spectool.artifacts.pass_costs import save_costs
from spectool.build.alignment.check import require_checked
from spectool.build.alignment.stage import build_alignment
from spectool.build.corpus_reading import quiet
from spectool.build.dictionary.backoff_stage import count_and_build
from spectool.build.dictionary.options import BackoffOptions
from spectool.build.pruning import stage as pruning
from spectool.commands.build_dict import amount_of_text, dictionary_path, least_count
from spectool.commands.prune_draft import model_directory
from spectool.commands.shared.console import progress, say
from spectool.commands.shared.drafter_spec import drafter_of
from spectool.corpora import Corpus, open_corpus
from spectool.measure.bench.prompts import LANGUAGES
from spectool.measure.bench.results import Options, Run, Verdict, verdict_of
from spectool.measure.bench.run import run_benchmark
from spectool.measure.doctor import measure_costs
from spectool.runtime.loading import load_model, open_dictionaries
from spectool.runtime.policy.costs import known_costs, model_key
from spectool.tokenization.opening import open_tokenizer
from spectool.tokenization.tokenizer import Tokenizer

PLAIN, LOOK_UPS, DRAFT, ALL = "plain decoding", "dictionary + history", "draft model", "all together"
"""What is measured and may be recommended."""

_DOCTOR = 10.0  # seconds of passes, as in `spectool doctor`
_TOKENS, _FEWEST_TOKENS = 64, 32  # after each prompt of the benchmark
_PROMPTS, _FEWEST_PROMPTS = 60, 8  # the built-in ones of a language; what an interval for three drafters needs
_HUB_BYTES = 20_000_000  # of a text on the hub
_WINDOW = 32  # tokens of a prompt from the text, in languages without built-in prompts


class SetupStep(NamedTuple):
    """Something to make, unless it is kept from an earlier run."""

    name: str
    what: str  # is made, in words
    seconds: float  # that it takes, roughly
    kept: bool  # whether it is there, made from the same inputs
    make: Callable[[], object]


@dataclass
class Setup:
    """What the user asked for, and what the steps that were gone through have found."""

    model: str
    language: str
    corpora: Sequence[str]
    draft: str | None
    prune: bool
    seconds: float  # of the benchmark
    draft_options: list[str] = field(default_factory=list)  # of `generate`, for the draft model
    run: Run | None = None  # the benchmark

    def steps(self) -> Iterator[SetupStep]:
        """Yield the steps in order; what depends on one that is missing when the next is asked for is missing, too."""
        target = _opened(self.model)
        for spec in self.corpora:
            if open_corpus(spec).total_bytes is None:
                path = _beginning(spec)
                yield SetupStep("text", f"20 MB of {spec} from the hub", 30, path.exists(), partial(_fetch, spec, path))
        texts = [_text(spec) for spec in self.corpora]
        for text in texts:
            yield _dictionary(target, text)
        yield _doctor(self.model, self.seconds)
        if self.draft is not None:
            yield from self._draft(self.draft, target, texts)
        yield self._bench(target, texts[0])

    def _draft(self, name: str, target: Tokenizer, texts: Sequence[Corpus]) -> Iterator[SetupStep]:
        used, ready = name, True
        if self.prune:
            files = sorted(model_directory(name).glob("*.safetensors"))
            weights = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
            path = default_path("drafts") / f"{slug(name)}-{self.language}-{digest(weights, _files(texts))}"
            yield _pruning(name, path, texts)
            used, ready = str(path), path.is_dir()
        self.draft_options = ["--draft-model", used]
        draft = open_tokenizer(used) if ready else None
        if draft is None or draft.fingerprint != target.fingerprint:
            sides = digest(draft and draft.fingerprint, target.fingerprint)
            alignment = default_path(f"{slug(name)}-{slug(self.model)}-{self.language}-{sides}.align")
            self.draft_options += ["--alignment", str(alignment)]
            yield _alignment(draft, target, alignment, texts[0])
        yield _doctor(used, self.seconds, ready)

    def _bench(self, target: Tokenizer, text: Corpus) -> SetupStep:
        """The step that measures all drafters, on as many prompts as there is time for; it is never kept."""
        costs, drafters = known_costs(_unread(self.model)), [LOOK_UPS, *([DRAFT, ALL] if self.draft else [])]
        step = (1 + len(drafters)) * (costs.curve[1] if costs else 1.0)  # seconds of a token in all of them
        count = min(_PROMPTS, max(_FEWEST_PROMPTS, int(self.seconds / step / _TOKENS)))
        tokens = min(_TOKENS, max(_FEWEST_TOKENS, int(self.seconds / step / count)))
        built_in = self.language in LANGUAGES

        def make() -> None:
            found = open_dictionaries(AUTO, target, quiet)  # as in `generate`
            look_ups = ["--history", *(word for each in found for word in ("--dict", str(each.path)))]
            options = {LOOK_UPS: look_ups, DRAFT: self.draft_options, ALL: [*look_ups, *self.draft_options]}
            out = default_path("setup") / f"{slug(self.model)}-{self.language}-{digest(self.model)}.bench"
            shutil.rmtree(out, ignore_errors=True)
            asked = Options(
                model=self.model,
                drafters={name: drafter_of(options[name]) for name in drafters},
                prompts=self.language if built_in else text.spec,
                count=count,
                window=0 if built_in else _WINDOW,
                tokens=tokens,
            )
            self.run = run_benchmark(asked, out, say, progress)

        what = ", ".join([PLAIN, *drafters])
        if costs is None:
            return SetupStep("bench", what, self.seconds, False, make)
        return SetupStep("bench", f"{what}, on {count} prompts", step * count * tokens, False, make)

    def outcome(self) -> tuple[Verdict, str | None, str | None]:
        """What the benchmark says, once all steps are made, and what to use from now on, if it tells: drafter and command."""
        assert self.run is not None
        verdict = verdict_of(self.run)
        if verdict.fastest is None:
            return verdict, None, None
        speedups = {one.drafter: one.speedup.value for one in verdict.results}
        best, options = PLAIN, ["--num-draft-tokens", "0"]
        if verdict.pays:
            best = verdict.fastest.drafter
        elif verdict.pays is None and speedups.get(LOOK_UPS, 0) > 1:  # they cost next to nothing where they do not pay
            best = LOOK_UPS
        if best != PLAIN:
            options = ["--no-dict", "--no-history"] if best == DRAFT else []  # the others find the dictionary
            options += [] if best == LOOK_UPS else self.draft_options
        return verdict, best, shlex.join(["spectool", "generate", "--model", self.model, *options])


def _made(path: Path, kind: str, tokenizers: Mapping[str, Tokenizer | None], texts: Sequence[Corpus]) -> bool:
    """Whether an artifact is there and whole, and was made for these tokenizers from these texts."""
    try:
        manifest = read_manifest(path)
    except ArtifactError:
        return False
    wanted = {role: side and side.fingerprint for role, side in tokenizers.items()}
    found = manifest.format, manifest.fingerprints, manifest.inputs.get("files")
    return found == (kind, wanted, _files(texts))


def _files(texts: Sequence[Corpus]) -> list[dict[str, Any]]:
    return [file._asdict() for text in texts for file in text.describe_inputs()]


def _beginning(spec: str) -> Path:
    """Where the beginning of a text on the hub is kept."""
    source = digest(spec, _HUB_BYTES, open_corpus(spec).describe_inputs())
    return default_path("texts") / f"{slug(spec)}-{source}.jsonl"


def _text(spec: str) -> Corpus:
    """The text that the user named; of one on the hub its beginning, once that is here."""
    named = open_corpus(spec)
    if named.total_bytes is not None or not _beginning(spec).exists():
        return named
    beginning = open_corpus(str(_beginning(spec)))
    beginning.licence = named.licence
    return beginning


def _fetch(spec: str, out: Path) -> None:
    """Write the first documents of a text on the hub to a file."""
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        with atomic_file(out) as partial, partial.open("wb") as stream, progress(spec, _HUB_BYTES, "B") as done:
            for document in open_corpus(spec):
                done(stream.write(json.dumps({"text": document.text}, ensure_ascii=False).encode() + b"\n"))
                if stream.tell() >= _HUB_BYTES:
                    break
    except CorpusError as error:
        raise CorpusError(
            f"{error}. Or name text of your own: --corpus FILE. The bundled --corpus sample:pl shows that all of "
            "it works, but is too small to gain anything"
        ) from error


def _dictionary(target: Tokenizer, text: Corpus) -> SetupStep:
    options = BackoffOptions(min_count=least_count(text))
    path = dictionary_path(text.spec, target.fingerprint, options)

    def make() -> None:
        manifest = count_and_build(target, text, path, options, say)
        say(amount_of_text(manifest.statistics["tokens"]))

    kept = _made(path, Dictionary.format, {"target": target}, [text])
    seconds = 10 + (text.total_bytes or _HUB_BYTES) / 250_000
    return SetupStep(
        "dictionary", f"from {slug(text.spec)}, at most {options.max_bytes or 0:,} bytes", seconds, kept, make
    )


def _pruning(name: str, path: Path, texts: Sequence[Corpus]) -> SetupStep:
    whole = _opened(name)

    def make() -> None:
        try:
            pruning.prune_model(model_directory(name), whole, texts, path, say)
        except TokenizerError as error:
            raise TokenizerError(f"{error}. Or use it whole: --no-prune") from error

    kept = pruning.read_record(path) is not None  # its name says what it was made from
    return SetupStep("pruned draft", f"the tokens of {slug(name)} that the text needs", 60, kept, make)


def _alignment(draft: Tokenizer | None, target: Tokenizer, path: Path, text: Corpus) -> SetupStep:
    def make() -> None:
        assert draft is not None
        require_checked(path, build_alignment(draft, target, text, path, say), say)

    if kept := _made(path, Alignment.format, {"draft": draft, "target": target}, [text]):
        require_checked(path, read_manifest(path))
    return SetupStep("alignment", "of the two tokenizers, about 20 MB for large ones", 60, kept, make)


def _doctor(name: str, most: float, ready: bool = True) -> SetupStep:
    seconds = min(_DOCTOR, most)

    def make() -> None:
        model, tokenizer = load_model(name)
        save_costs(model_key(model), measure_costs(model, tokenizer, name, seconds, say))

    kept = ready and known_costs(_unread(name)) is not None
    return SetupStep("doctor", f"what passes of {slug(name)} cost here", 2 * seconds, kept, make)


_opened = cache(open_tokenizer)  # of a model that the user named, once for the plan and for what is made
_unread = cache(lambda name: load_model(name, lazy=True)[0])
