"""What ``spectool setup`` makes, from a dictionary to a benchmark. What an earlier run has made is kept."""

import json
import shlex
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import fill
from typing import Any

import click

from spectool import ArtifactError, CorpusError, MissingExtra, TokenizerError
from spectool.artifacts.alignment import Alignment
from spectool.artifacts.artifact import read_manifest
from spectool.artifacts.atomic import atomic_file
from spectool.artifacts.default_paths import AUTO, default_path, digest, slug
from spectool.artifacts.dictionary import Dictionary
from spectool.artifacts.pack import Pack
from spectool.artifacts.pass_costs import save_costs
from spectool.build.alignment.check import require_checked
from spectool.build.alignment.stage import build_alignment
from spectool.build.corpus_reading import quiet
from spectool.build.dictionary.backoff_stage import count_and_build
from spectool.build.dictionary.options import BackoffOptions
from spectool.build.packs.stage import bundled_packs, compile_and_build, described, open_pack
from spectool.build.pruning import stage as pruning
from spectool.commands.build_dict import amount_of_text, dictionary_path, least_count
from spectool.commands.prune_draft import model_directory
from spectool.commands.shared.console import open_text, progress, say, show
from spectool.commands.shared.drafter_spec import drafter_of
from spectool.corpora import Corpus, open_corpus, preset_for
from spectool.measure.bench.page import summary_table
from spectool.measure.bench.prompts import LANGUAGES
from spectool.measure.bench.results import Options, Run, Verdict, verdict_of
from spectool.measure.bench.run import run_benchmark
from spectool.measure.doctor import SECONDS, measure_costs
from spectool.measure.sharing import flatter_here
from spectool.runtime.loading import load_model, open_dictionaries
from spectool.runtime.policy.costs import known_costs, model_key
from spectool.tokenization.opening import open_tokenizer
from spectool.tokenization.tokenizer import Tokenizer

PLAIN, LOOK_UPS, DRAFT, ALL = "plain decoding", "dictionary + history", "draft model", "all together"
"""What is measured and may be recommended."""

_TOKENS, _FEWEST_TOKENS = 64, 32  # after each prompt of the benchmark
_PROMPTS, _FEWEST_PROMPTS = 60, 8  # the built-in ones of a language; what an interval for three drafters needs
_HUB_BYTES = 20_000_000  # of a text on the hub
_WINDOW = 32  # tokens of a prompt from the text, in languages without built-in prompts


@dataclass
class Setup:
    """What the user asked for, which are the options of the command, and what was made of it."""

    model: str
    language: str
    corpora: Sequence[str]
    packs: Sequence[str]
    draft: str | None
    prune: bool
    seconds: float  # of the benchmark
    draft_options: list[str] = field(default_factory=list)  # of `generate`, for the draft model
    bench: Run | None = None
    steps: list[dict[str, object]] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)  # what would make the model's passes flatter here

    def run(self, as_json: bool) -> None:
        """Make all that is missing, measure it, and print what to use from now on."""
        packs, texts = self._sources()
        target = open_tokenizer(self.model)
        for pack in packs:
            self._pack(target, pack)
        for text in texts:
            self._dictionary(target, text)
        self._doctor(self.model)
        model = load_model(self.model, lazy=True)[0]
        costs = known_costs(model)
        assert costs is not None  # measured now, or kept
        self.advice = flatter_here(model, costs)
        for note in self.advice:
            say(note)
        if self.draft is not None:
            self._draft(self.draft, target, texts)
        self._bench(target, texts, costs.curve[1])
        self._print(as_json)

    def _sources(self) -> tuple[list[Pack], list[Corpus]]:
        """What dictionaries are made from, once it is clear that all that was named is there."""
        if len(set(map(slug, self.corpora))) < len(self.corpora):
            raise click.UsageError(
                "--corpus: expected different names, because dictionaries are named after their texts. Rename a file"
            )
        for spec in self.corpora:
            open_text(spec)  # says which files are left out
        for name in filter(None, (self.model, self.draft)):
            model_directory(name)  # which may have to be fetched
        say("This takes some minutes, longer with a slow model. Close other programs, because passes are timed.")
        say("You can stop with Ctrl-C and continue later with the same command.")
        packs = [open_pack(name) for name in self.packs or bundled_packs().keys() & {self.language.partition("-")[0]}]
        needs_text = self.draft is not None or not packs or self.language not in LANGUAGES
        named = self.corpora or ([preset_for(self.language)] if needs_text else [])
        try:
            return packs, list(map(self.text, named))
        except (CorpusError, MissingExtra) as error:
            raise error if self.corpora else type(error)(f"{error}. Or name text of your own: --corpus FILE") from error

    def _step(self, name: str, what: str, kept: bool, make: Callable[[], object]) -> None:
        """Make something, unless it is kept from an earlier run."""
        began = time.perf_counter()
        say(f"there already: {name}, {what}" if kept else f"\n{name}: {what}")
        try:
            _ = kept or make()
        except KeyboardInterrupt as stop:
            raise KeyboardInterrupt(
                "Interrupted. What is finished is kept; the same command continues from there."
            ) from stop
        taken = round(time.perf_counter() - began, 1)
        self.steps.append({"step": name, "what": what, "kept": kept, "seconds": taken})

    def text(self, spec: str) -> Corpus:
        """The text that the user named; of one on the hub its beginning, which is fetched."""
        named = open_corpus(spec)
        if named.total_bytes is not None:
            return named
        path = default_path("texts") / f"{slug(spec)}-{digest(spec, _HUB_BYTES)}.jsonl"

        def fetch() -> None:
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_file(path) as partial, partial.open("wb") as stream, progress(spec, _HUB_BYTES, "B") as done:
                for document in named:
                    done(stream.write(json.dumps({"text": document.text}, ensure_ascii=False).encode() + b"\n"))
                    if stream.tell() >= _HUB_BYTES:
                        break

        self._step("text", f"20 MB of {spec} from the hub", path.exists(), fetch)
        return open_corpus(str(path))

    def _dictionary(self, target: Tokenizer, text: Corpus) -> None:
        options = BackoffOptions(min_count=least_count(text.total_bytes))
        path = dictionary_path(text.spec, target.fingerprint, options)

        def build() -> None:
            say(amount_of_text(count_and_build(target, text, path, options, say).statistics["tokens"]))

        kept = _made(path, Dictionary.format, {"target": target}, files=_files([text]))
        self._step("dictionary", f"from {slug(text.spec)}, at most {options.max_bytes or 0:,} bytes", kept, build)

    def _pack(self, target: Tokenizer, pack: Pack) -> None:
        options = BackoffOptions()
        path = dictionary_path(pack.path.name, target.fingerprint, options)
        self._step(
            "pack",
            f"a dictionary of {pack.path.name}, which counts {len(pack):,} word sequences",
            _made(path, Dictionary.format, {"target": target}, packs=described([pack])),
            lambda: compile_and_build(target, [pack], None, path, options, say),
        )

    def _doctor(self, name: str) -> None:
        def measure() -> None:
            seconds = self.seconds if self.seconds < SECONDS else None
            model, tokenizer = load_model(name)
            save_costs(model_key(model), measure_costs(model, tokenizer, name, seconds, say))

        kept = known_costs(load_model(name, lazy=True)[0]) is not None
        self._step("doctor", f"what passes of {slug(name)} cost here", kept, measure)

    def _draft(self, name: str, target: Tokenizer, texts: Sequence[Corpus]) -> None:
        used = name
        if self.prune:
            directory = model_directory(name)
            files = [
                (file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in directory.glob("*.safetensors")
            ]
            path = default_path("drafts") / f"{slug(name)}-{self.language}-{digest(sorted(files), _files(texts))}"
            used = str(path)

            def prune() -> None:
                try:
                    pruning.prune_model(directory, open_tokenizer(name), texts, path, say)
                except TokenizerError as error:
                    raise TokenizerError(f"{error}. Or use it whole: --no-prune") from error

            kept = pruning.read_record(path) is not None  # its name says what it was made from
            self._step("pruned draft", f"the tokens of {slug(name)} that the text needs", kept, prune)
        self.draft_options = ["--draft-model", used]
        draft = open_tokenizer(used)
        if draft.fingerprint != target.fingerprint:
            sides = digest(draft.fingerprint, target.fingerprint)
            aligned = default_path(f"{slug(name)}-{slug(self.model)}-{self.language}-{sides}.align")
            self.draft_options += ["--alignment", str(aligned)]
            self._step(
                "alignment",
                "of the two tokenizers, about 20 MB for large ones",
                _made(aligned, Alignment.format, {"draft": draft, "target": target}, files=_files(texts[:1])),
                lambda: build_alignment(draft, target, texts[0], aligned, say),
            )
            require_checked(aligned, read_manifest(aligned), say)
        self._doctor(used)

    def _bench(self, target: Tokenizer, texts: Sequence[Corpus], plain_pass: float) -> None:
        """Measure all drafters, on as many prompts as there is time for. ``plain_pass`` is in seconds."""
        drafters = [LOOK_UPS, *([DRAFT, ALL] if self.draft else [])]
        step = (1 + len(drafters)) * plain_pass  # seconds of a token in all of them
        count = min(_PROMPTS, max(_FEWEST_PROMPTS, int(self.seconds / step / _TOKENS)))
        found = open_dictionaries(AUTO, target, quiet)  # as in `generate`
        look_ups = ["--history", *(word for each in found for word in ("--dict", str(each.path)))]
        options = {LOOK_UPS: look_ups, DRAFT: self.draft_options, ALL: [*look_ups, *self.draft_options]}
        built_in = self.language in LANGUAGES
        out = default_path("setup") / f"{slug(self.model)}-{self.language}-{digest(self.model)}.bench"
        asked = Options(
            model=self.model,
            drafters={name: drafter_of(options[name]) for name in drafters},
            prompts=self.language if built_in else texts[0].spec,
            count=count,
            window=0 if built_in else _WINDOW,
            tokens=min(_TOKENS, max(_FEWEST_TOKENS, int(self.seconds / step / count))),
        )

        def measure() -> None:
            shutil.rmtree(out, ignore_errors=True)
            self.bench = run_benchmark(asked, out, say, progress)

        minutes = max(1, round(step * count * asked.tokens / 60))
        what = f"{', '.join([PLAIN, *drafters])}, on {count} prompts; about {minutes} minute{'s' * (minutes > 1)}"
        self._step("bench", what, False, measure)

    def outcome(self) -> tuple[Verdict, str | None, str | None]:
        """What the benchmark says, once all steps are made, and if it tells, the drafter and the command to use now."""
        assert self.bench is not None
        verdict = verdict_of(self.bench)
        if verdict.fastest is None:
            return verdict, None, None
        speedups = {one.drafter: one.speedup for one in verdict.results}
        best, options = PLAIN, ["--num-draft-tokens", "0"]
        if verdict.pays:
            best = verdict.fastest.drafter
        elif verdict.pays is None and speedups.get(LOOK_UPS, 0) > 1:  # they cost next to nothing where they do not pay
            best = LOOK_UPS
        if best != PLAIN:
            options = ["--no-dict", "--no-history"] if best == DRAFT else []  # the others find the dictionary
            options += [] if best == LOOK_UPS else self.draft_options
        return verdict, best, shlex.join(["spectool", "generate", "--model", self.model, *options])

    def _print(self, as_json: bool) -> None:
        verdict, recommended, then = self.outcome()
        if as_json:
            facts: dict[str, Any] = {"steps": self.steps, **verdict.facts, "other_forms": self.advice}
            facts |= {"recommended": recommended, "command": then, "run": str(self.bench and self.bench.path)}
            show(facts, as_json=True)
            return
        click.echo(f"\n{summary_table(verdict)}\n\n{verdict.sentence}")
        if then is None:
            click.echo("Nothing is recommended, because too little real text was written to measure on.")
            return
        if verdict.pays is None:
            click.echo(f"A longer benchmark makes it clearer: --seconds {5 * self.seconds:.0f}")
        for note in self.advice:
            click.echo(fill(note, 100))
        click.echo(f'Recommended: {recommended}. From now on:\n\n  {then} --prompt "…"\n')
        click.echo("`spectool chat` and `spectool serve` take the same options.")


def _made(path: Path, kind: str, tokenizers: Mapping[str, Tokenizer], **inputs: Any) -> bool:
    """Whether an artifact is there and whole, and was made for these tokenizers from these inputs."""
    try:
        manifest = read_manifest(path)
    except ArtifactError:
        return False
    found = manifest.format, manifest.fingerprints, {name: manifest.inputs.get(name) for name in inputs}
    return found == (kind, {role: each.fingerprint for role, each in tokenizers.items()}, inputs)


def _files(texts: Sequence[Corpus]) -> list[dict[str, Any]]:
    return [file for text in texts for file in text.describe_inputs()]
