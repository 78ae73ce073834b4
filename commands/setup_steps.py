"""What ``spectool setup`` runs: other commands, and a benchmark at the end. What an earlier run has made is kept."""

import io
import json
import shlex
import shutil
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import click

from spectool import ArtifactError, CorpusError, MissingExtra
from spectool.artifacts.alignment_report import require_checked
from spectool.artifacts.artifact import read_manifest
from spectool.artifacts.atomic import atomic_file
from spectool.artifacts.default_paths import AUTO, default_path, digest, slug
from spectool.artifacts.pack import Pack
from spectool.build.corpus_reading import quiet
from spectool.build.packs.bundled import bundled_packs
from spectool.build.packs.stage import described, open_pack
from spectool.commands.prune_draft import model_directory
from spectool.commands.shared.console import open_text, progress, say, show
from spectool.commands.shared.drafter_spec import drafter_of
from spectool.corpora import open_corpus, preset_for
from spectool.measure.bench.page import summary_table
from spectool.measure.bench.prompts import LANGUAGES
from spectool.measure.bench.results import Options, Run, Verdict, verdict_of
from spectool.measure.bench.run import run_benchmark
from spectool.measure.doctor import SECONDS
from spectool.measure.machines import cheaper_here
from spectool.runtime.drafters.draft_model import vocabulary_mismatch
from spectool.runtime.loading import load_model, open_dictionaries
from spectool.runtime.policy.costs import known_costs
from spectool.tokenization.opening import open_tokenizer
from spectool.tokenization.tokenizer import Tokenizer

PLAIN, LOOK_UPS, DRAFT, ALL = "plain decoding", "dictionary + history", "draft model", "all together"
"""What is measured and may be recommended."""

_TOKENS, _FEWEST_TOKENS = 64, 32  # after each prompt of the benchmark
_PROMPTS, _FEWEST_PROMPTS = 60, 8  # the built-in ones of a language; what an interval for three drafters needs
_HUB_BYTES = 20_000_000  # of a text on the hub
_READ_FIRST = 1000  # documents, in which another encoding is noticed before anything is made
_UNMEASURED = (
    "Not measured, because no prompts in this language come with spectool. To compare drafts with plain decoding, add "
    "text: --corpus FILE. Meanwhile, drafting stops by itself where it does not pay."
)
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
    sibling: bool = False  # the draft model has the target's tokenizer, so it is used as it is
    steps: list[dict[str, Any]] = field(default_factory=list)

    def run(self, as_json: bool) -> None:
        """Make all that is missing, measure it, and print what to use from now on."""
        target = self._checked()
        packs, texts = self._sources()
        for pack in packs:
            self._dictionary(target, "--pack", str(pack.path), packs=described([pack]))
        for text in texts:
            self._dictionary(target, "--corpus", text, files=_files(text))
        if self.draft is not None:
            self._draft(self.draft, target, texts)
        self._doctor(self.model, *self.draft_options[1:2])
        measurable = self.language in LANGUAGES or texts
        self._print(self._bench(target, texts) if measurable else None, as_json)

    def _checked(self) -> Tokenizer:
        """The target's tokenizer, once it is clear that all that was named is there and can be read."""
        for spec in self.corpora:
            corpus = open_text(spec)  # says which files are left out
            if corpus.files:
                list(islice(corpus, _READ_FIRST))
        for name in filter(None, (self.model, self.draft)):
            model_directory(name)  # which may have to be fetched
        target = open_tokenizer(self.model)
        if self.draft is not None:
            self.sibling = vocabulary_mismatch(open_tokenizer(self.draft).vocabulary, target.vocabulary) is None
        return target

    def _sources(self) -> tuple[list[Pack], list[str]]:
        """Packs and local texts that dictionaries are made from; a draft model with another tokenizer needs text."""
        say("This takes some minutes, longer with a slow model. Close other programs, because passes are timed.")
        say("You can stop with Ctrl-C and continue later with the same command, which keeps what is finished.")
        packs = [open_pack(name) for name in self.packs or bundled_packs().keys() & {self.language.partition("-")[0]}]
        needs_text = not packs or (self.draft is not None and not self.sibling)
        named = self.corpora or ([preset_for(self.language)] if needs_text else [])
        try:
            return packs, list(map(local, named))
        except (CorpusError, MissingExtra) as error:
            raise error if self.corpora else type(error)(f"{error}. Or name text of your own: --corpus FILE") from error

    def _step(self, kept: bool, *words: object) -> None:
        """Run a command, whose result is not shown, unless what it makes is kept from an earlier run."""
        command, *arguments = map(str, words)
        say(f"{'there already' if kept else 'running'}: spectool {shlex.join([command, *arguments])}")
        if not kept:
            context = click.get_current_context()
            group = context.find_root()
            assert isinstance(group.command, click.Group)
            found = group.command.get_command(group, command)
            assert found is not None
            with redirect_stdout(io.StringIO()):
                found.main([*arguments, "--json"], command, standalone_mode=False, parent=context)
        self.steps.append({"step": command, "arguments": arguments, "kept": kept})

    def _dictionary(self, target: Tokenizer, option: str, source: str, **inputs: Any) -> None:
        path = default_path(f"{slug(source)}-{digest(Path(source).absolute())}.{target.fingerprint[:8]}.dict")
        try:
            made_from = read_manifest(path).inputs
        except ArtifactError:
            made_from = {}
        kept = {each: made_from.get(each) for each in inputs} == inputs
        self._step(kept, "build-dict", "--tokenizer", self.model, option, source, "-o", path)

    def _draft(self, name: str, target: Tokenizer, texts: Sequence[str]) -> None:
        used = name
        if self.sibling:
            self.draft_options = ["--draft-model", name]
            return
        if self.prune:
            made_of = digest(name, [_files(text) for text in texts])
            used = str(default_path("drafts") / f"{slug(name)}-{self.language}-{made_of}")
            corpora = (word for text in texts for word in ("--corpus", text))
            self._step(Path(used).exists(), "prune-draft", "--draft", name, *corpora, "-o", used)
        self.draft_options = ["--draft-model", used]
        sides = open_tokenizer(used).fingerprint, target.fingerprint
        if sides[0] != sides[1]:
            aligned = default_path(f"{slug(name)}-{slug(self.model)}-{self.language}-{digest(*sides)}.align")
            self.draft_options += ["--alignment", str(aligned)]
            between = ("--draft", used, "--target", self.model, "--corpus", texts[0])
            self._step(aligned.exists(), "align", *between, "-o", aligned)
            require_checked(aligned, read_manifest(aligned))  # one of an earlier run may have failed

    def _doctor(self, model: str, *draft: str) -> None:
        found = [known_costs(load_model(name, lazy=True)[0]) for name in (model, *draft)]
        kept = all(each is not None and each.final for each in found)
        options = [*(word for name in draft for word in ("--draft-model", name))]
        options += ["--seconds", str(self.seconds)] if self.seconds < SECONDS else []
        self._step(kept, "doctor", "--model", model, *options)

    def _bench(self, target: Tokenizer, texts: Sequence[str]) -> Run:
        """Measure all drafters, on as many prompts as there is time for."""
        costs = known_costs(load_model(self.model, lazy=True)[0])
        assert costs is not None  # measured now, or kept
        drafters = [LOOK_UPS, *([DRAFT, ALL] if self.draft else [])]
        step = (1 + len(drafters)) * costs.curve[1]  # seconds of a token in all of them
        count = min(_PROMPTS, max(_FEWEST_PROMPTS, int(self.seconds / step / _TOKENS)))
        found = open_dictionaries(AUTO, target, quiet)  # as in `generate`
        look_ups = ["--history", *(word for each in found for word in ("--dict", str(each.path)))]
        options = {LOOK_UPS: look_ups, DRAFT: self.draft_options, ALL: [*look_ups, *self.draft_options]}
        built_in = self.language in LANGUAGES
        out = default_path("setup") / f"{slug(self.model)}-{self.language}-{digest(self.model)}.bench"
        asked = Options(
            model=self.model,
            drafters={name: drafter_of(options[name]) for name in drafters},
            prompts=self.language if built_in else texts[0],
            count=count,
            window=0 if built_in else _WINDOW,
            tokens=min(_TOKENS, max(_FEWEST_TOKENS, int(self.seconds / step / count))),
        )
        say(f"measuring {', '.join([PLAIN, *drafters])}, on {count} prompts")
        shutil.rmtree(out, ignore_errors=True)
        return run_benchmark(asked, out, say, progress)

    def recommended(self, verdict: Verdict) -> tuple[str | None, str | None]:
        """The drafter and the command to use from now on, if the verdict tells."""
        if verdict.fastest is None:
            return None, None
        speedups = {one.drafter: one.speedup for one in verdict.results}
        best = verdict.fastest.drafter if verdict.pays else PLAIN
        if verdict.pays is None and speedups[LOOK_UPS] > 1:  # they cost next to nothing where they do not pay
            best = LOOK_UPS
        return best, self._command(best)

    def _command(self, best: str) -> str:
        alone = ["--no-dict", "--no-history", *self.draft_options]  # `generate` finds the dictionary
        options = {PLAIN: ["--num-draft-tokens", "0"], LOOK_UPS: [], DRAFT: alone, ALL: self.draft_options}[best]
        return shlex.join(["spectool", "generate", "--model", self.model, *options])

    def _advice(self) -> list[str]:
        """Forms of the model in which passes with drafts cost less on this machine."""
        model = load_model(self.model, lazy=True)[0]
        costs = known_costs(model)
        return [] if costs is None else cheaper_here(model, costs)

    def _print(self, run: Run | None, as_json: bool) -> None:
        verdict = Verdict([], _UNMEASURED) if run is None else verdict_of(run)
        best, command = self.recommended(verdict)
        if run is None:
            command = self._command(ALL if self.draft else LOOK_UPS)
        advice = self._advice()
        if as_json:
            facts = {"steps": self.steps, **verdict.facts, "recommended": best, "command": command}
            show(facts | {"run": run and str(run.path), "other_weights": advice}, as_json=True)
            return
        click.echo(f"\n{summary_table(verdict)}\n\n{verdict.sentence}" if run else f"\n{verdict.sentence}")
        if run and verdict.pays is None:
            click.echo(f"A longer benchmark makes it clearer: --seconds {5 * self.seconds:.0f}")
        if command is None:
            click.echo("Nothing is recommended, because too little real text was written to measure on.")
        else:
            click.echo(f'{f"Recommended: {best}. " if best else ""}From now on:\n\n  {command} --prompt "…"\n')
            click.echo("`spectool chat` and `spectool serve` take the same options.")
            click.echo("Every model with this tokenizer drafts from the dictionary, too; --no-dict turns that off.")
        for each in advice:
            click.echo(each)


def local(spec: str) -> str:
    """A text on this machine: what was named, or the beginning of a text on the hub, which is fetched and kept."""
    named = open_corpus(spec)
    if named.total_bytes is not None:
        return spec
    path = default_path("texts") / f"{slug(spec)}-{digest(spec, _HUB_BYTES)}.jsonl"
    if not path.exists():
        say(f"fetching the first 20 MB of {spec}")
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as partial, partial.open("wb") as stream, progress(spec, _HUB_BYTES, "B") as done:
            for document in named:
                done(stream.write(json.dumps({"text": document.text}, ensure_ascii=False).encode() + b"\n"))
                if stream.tell() >= _HUB_BYTES:
                    break
    return str(path)


def _files(spec: str) -> list[dict[str, Any]]:
    return open_corpus(spec).describe_inputs()
