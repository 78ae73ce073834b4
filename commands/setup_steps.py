"""What ``spectool setup`` makes: dictionaries, a draft model, measurements. What an earlier run has made is kept."""

import shlex
import shutil
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import click

from spectool import ArtifactError, CorpusError, SpectoolError
from spectool.artifacts.alignment import require_checked
from spectool.artifacts.artifact import open_artifact, read_manifest
from spectool.artifacts.atomic import require_writable
from spectool.artifacts.default_paths import AUTO, default_path, digest, draft_path, place_of, slug
from spectool.artifacts.manifest import Manifest
from spectool.artifacts.pack import Pack
from spectool.artifacts.pruned_draft import RECORD, read_record
from spectool.build.alignment.stage import build_alignment
from spectool.build.corpus_reading import quiet
from spectool.build.packs import bundled_packs
from spectool.build.packs.stage import count_and_build, described, open_pack
from spectool.build.pruning.stage import prune_model
from spectool.commands.bench import drafter_of
from spectool.commands.build_dict import dictionary_path, options_for
from spectool.commands.doctor import measured
from spectool.commands.prune_draft import draft_name, guesses_of, model_directory
from spectool.commands.shared.console import open_text, say, show
from spectool.commands.shared.tokenizers import named_tokenizer
from spectool.corpora import Corpus, open_corpus, sample_names
from spectool.measure.bench.prompts import LANGUAGES
from spectool.measure.bench.results import Options, Run, Verdict, summary_table, verdict_of
from spectool.measure.bench.run import run_benchmark
from spectool.measure.doctor import SECONDS
from spectool.measure.drafts import LARGEST, advise, cached_draft
from spectool.measure.first_guesses import passages, right_guesses, right_proposals, share
from spectool.measure.forms import keep_fastest
from spectool.measure.machines import cheaper_here
from spectool.measure.predict import Text
from spectool.runtime.drafters.draft_model import vocabulary_mismatch
from spectool.runtime.drafters.lookup import LookupDrafter
from spectool.runtime.loading import load_model, local_model, open_dictionaries
from spectool.runtime.mlx_lm_compat import get_total_parameters
from spectool.runtime.policy.costs import known_costs
from spectool.tokenization.opening import open_tokenizer
from spectool.tokenization.tokenizer import Tokenizer

PLAIN, LOOK_UPS, DRAFT, ALL = "plain decoding", "dictionary + history", "draft model", "all together"
"""What is measured and may be recommended."""

_TOKENS, _FEWEST_TOKENS = 64, 32  # after each prompt of the benchmark
_PROMPTS, _FEWEST_PROMPTS = 60, 8  # the built-in ones of a language; what an interval for three drafters needs
_READ_FIRST = 1000  # documents, in which another encoding is noticed before anything is made
_UNMEASURED = "Not measured: no prompts in this language come with spectool. To compare drafts, add text: --corpus FILE"
_WINDOW = 32  # tokens of a prompt from the text, in languages without built-in prompts
_FEWEST = 0.02  # of the target's longer tokens that a draft's vocabulary has as well
_LONG = 3  # bytes: shorter tokens are in every vocabulary


@dataclass
class Setup:
    """What the user asked for, which are the options of the command, and what was made of it."""

    model: str
    language: str
    corpora: Sequence[str]
    packs: Sequence[str]
    draft_model: str | None
    seconds: float  # of the benchmark
    draft_options: list[str] = field(default_factory=list)  # of `generate`, for the draft model
    steps: list[dict[str, Any]] = field(default_factory=list)
    target: Tokenizer = field(init=False)  # of the model
    loaded: Any = field(init=False)  # the model, with its weights on disk

    @property
    def base(self) -> str:
        """The language without its script or country."""
        return self.language.partition("-")[0]

    def run(self, as_json: bool) -> None:
        """Make all that is missing, measure it, and print what to use from now on."""
        require_writable(default_path("new"))
        self.language = self.language if self.language in LANGUAGES else self.base
        packs, named = self._sources(), None if self.draft_model == AUTO else self.draft_model
        for spec in self.corpora:
            deque(islice(open_text(spec), _READ_FIRST), maxlen=0)  # says which files are left out
        local_model(self.model)  # before anything is fetched
        if named:
            model_directory(named)  # the smaller one first
        self.target, self.loaded = named_tokenizer(self.model), load_model(self.model, lazy=True)[0]
        draft = self._fitting(named) if named else None
        say("This takes some minutes, longer with a slow model. Close other programs, because passes are timed.")
        say("You can stop with Ctrl-C and continue later with the same command, which keeps what is finished.")
        self._doctor(self.model)
        if self.draft_model == AUTO:
            self.draft_model, found = cached_draft(self.loaded, self.language)
            say(found.promise(self.language))
            draft = self._fitting(self.draft_model)
        for name, pack in packs.items():
            self._dictionary(name, [pack], None)
        for text in self.corpora:
            self._dictionary(text, [], open_corpus(text))
        if self.draft_model is not None and draft is not None:
            used = self._prepare(self.draft_model, draft, list(packs.values()))
            self.draft_options = ["--draft-model", used]
            self._doctor(used)
        measurable = self.language in LANGUAGES or self.corpora
        self._print(self._bench() if measurable else None, as_json)

    def _sources(self) -> dict[str, Pack]:
        """Packs by name; that of the language if none was named."""
        packs = {name: open_pack(name) for name in self.packs}
        if not packs and self.base in bundled_packs():
            packs[self.base] = Pack(bundled_packs()[self.base])
        if not packs and not self.corpora:
            raise CorpusError(
                f"{self.base}: no pack of this language is bundled. Name text with --corpus FILE, or a pack with "
                f"--pack FILE, which is made by: spectool pack TEXT --language {self.base} -o {self.base}.pack"
            )
        return packs

    def _fitting(self, name: str) -> Tokenizer:
        """The tokenizer of a draft model, once it is clear that the model may be worth having."""
        weights, ours = map(get_total_parameters, (load_model(name, lazy=True)[0], self.loaded))
        if weights > LARGEST * ours:
            raise SpectoolError(
                f"{name}: it has {weights / 1e6:,.3g} million weights, more than half of the {ours / 1e6:,.3g} million "
                "of your model, so its passes would cost more than they save. Take a smaller draft model, or none"
            )
        draft = open_tokenizer(model_directory(name).absolute())
        tokens, known = ({each for each in one.token_bytes if len(each) >= _LONG} for one in (self.target, draft))
        if len(tokens & known) <= _FEWEST * min(len(tokens), len(known)):
            raise SpectoolError(
                f"{draft.name}: only {len(tokens & known):,} of {self.target.name}'s {len(tokens):,} longer tokens are "
                "in its vocabulary, so it does not write the same languages. Take another draft model, or none"
            )
        return draft

    def _step(self, name: str, what: object, kept: bool, make: Callable[[], object]) -> None:
        """Do a step, unless what it makes is kept from an earlier run."""
        say(f"{'there already' if kept else 'running'}: {name}, {what}")
        if not kept:
            make()
        self.steps.append({"step": name, "made": str(what), "kept": kept})

    def _dictionary(self, source: str, packs: Sequence[Pack], corpus: Corpus | None) -> None:
        options, sources = options_for(corpus), ([source], []) if corpus is None else ([], [source])
        path = dictionary_path(self.target.fingerprint, options.max_bytes, *sources)
        inputs = {"packs": described(packs)} if corpus is None else {"files": corpus.describe_inputs()}
        make = partial(count_and_build, self.target, corpus, path, options, say, packs)
        self._step("build-dict", path.name, _is_made_from(_manifest(path), inputs), make)

    def _prepare(self, name: str, draft: Tokenizer, packs: Sequence[Pack]) -> str:
        """Prune a draft model of another tokenizer, keep its fastest form, and align it; the name of what is used."""
        if vocabulary_mismatch(draft.vocabulary, self.target.vocabulary) is None:
            return name
        bundled = [f"sample:{self.base}"] if self.base in sample_names() else []
        text = next(iter([*bundled, *self.corpora]), "sample:all")
        if not (known := text != "sample:all"):
            others = ", ".join(sample_names())
            say(f"no text in {self.base} is bundled, so the samples of {others} stand in for it; --corpus names some")
        tried = passages(text)
        if bundled:
            _require_language(name, draft, self.target, tried)
        used = self._pruned(name, draft, packs, tried, known)
        pruned = open_tokenizer(model_directory(used).absolute())
        sides = {"draft": pruned.fingerprint, "target": self.target.fingerprint}
        aligned = default_path(f"{sides['draft'][:8]}-{sides['target'][:8]}.align")
        align = partial(build_alignment, pruned, self.target, open_corpus(text), aligned, say)
        self._step("align", aligned.name, _is_made_from(_manifest(aligned), {}, **sides), align)
        require_checked(aligned, read_manifest(aligned))  # one of an earlier run may have failed
        return used

    def _pruned(self, name: str, draft: Tokenizer, packs: Sequence[Pack], tried: Sequence[str], known: bool) -> str:
        """Prune a draft model, unless it is a pruned one, and keep its fastest form; the name of what is used.

        It is ``known`` whether the texts that it is ``tried`` on are in its language.
        """
        if read_record(model_directory(name)) is not None:
            say(f"{name} has been pruned before, and is used as it is")
            return name
        files = [file for each in self.corpora for file in open_corpus(each).describe_inputs()]
        used, source = draft_name(name, [self.language]), place_of(name)
        inputs = {"packs": described(packs), "files": files}
        there = read_record(draft_path(used))
        if there and not (there.statistics.get("source") == source and _is_made_from(there, inputs)):
            used += f"-{digest(source, inputs)}"  # what is there may be in use with another model
        path, record = draft_path(used), read_record(draft_path(used))
        changed = max((each.stat().st_mtime for each in model_directory(name).glob("model*.safetensors")), default=0)
        kept = _is_made_from(record, inputs, whole=draft.fingerprint) and changed <= (path / RECORD).stat().st_mtime

        def finish(directory: Path) -> dict[str, Any]:
            form = keep_fastest(directory, tried, say) | {"source": source}
            return form | (guesses_of(directory, tried) if known else {})

        def make() -> None:
            new = draft_path(".new") / used  # what is there is used until then
            shutil.rmtree(new, ignore_errors=True)
            corpora = list(map(open_corpus, self.corpora))
            prune_model(model_directory(name), draft, corpora, new, say, packs=packs, finish=finish)
            (path / RECORD).unlink(missing_ok=True)  # what a kill leaves of the old one counts for nothing
            shutil.rmtree(path, ignore_errors=True)
            new.rename(path)

        self._step("prune-draft", used, kept, make)
        return used

    def _doctor(self, name: str) -> None:
        found = known_costs(load_model(name, lazy=True)[0])
        seconds = self.seconds if self.seconds < SECONDS else None
        kept, exact = found is not None and found.final, found is not None and found.exact
        self._step("doctor", name, kept, partial(measured, name, seconds, exact))

    def _bench(self) -> Run:
        """Measure all drafters, on as many prompts as there is time for."""
        costs = known_costs(self.loaded)
        assert costs is not None  # measured now, or kept
        drafters = [LOOK_UPS, *([DRAFT, ALL] if self.draft_model else [])]
        step = (1 + len(drafters)) * costs.curve[1]  # seconds of a token in all of them
        count = min(_PROMPTS, max(_FEWEST_PROMPTS, int(self.seconds / step / _TOKENS)))
        found = open_dictionaries(AUTO, self.target, quiet)  # as in `generate`
        look_ups = ["--history", *(word for each in found for word in ("--dict", str(each.path)))]
        options = {LOOK_UPS: look_ups, DRAFT: self.draft_options, ALL: [*look_ups, *self.draft_options]}
        built_in = self.language in LANGUAGES
        out = default_path("setup") / f"{slug(self.model)}-{self.language}-{digest(self.model)}.bench"
        asked = Options(
            model=self.model,
            drafters={name: drafter_of(options[name]) for name in drafters},
            prompts=self.language if built_in else self.corpora[0],
            count=count,
            window=0 if built_in else _WINDOW,
            tokens=min(_TOKENS, max(_FEWEST_TOKENS, int(self.seconds / step / count))),
        )
        say(f"measuring {', '.join([PLAIN, *drafters])}, on {count} prompts")
        shutil.rmtree(out, ignore_errors=True)
        return run_benchmark(asked, out, say)

    def recommended(self, verdict: Verdict) -> tuple[str | None, str | None]:
        """The drafter and the command to use from now on, if the verdict tells."""
        if verdict.fastest is None:
            return None, None
        best = verdict.fastest.drafter if verdict.pays else PLAIN
        if verdict.pays is None and any(one.drafter == LOOK_UPS and one.speedup > 1 for one in verdict.results):
            best = LOOK_UPS  # they cost next to nothing where they do not pay
        return best, self._command(best)

    def _command(self, best: str) -> str:
        alone = ["--no-dict", "--no-history", *self.draft_options]  # `generate` finds the dictionary
        options = {PLAIN: ["--num-draft-tokens", "0"], LOOK_UPS: [], DRAFT: alone, ALL: self.draft_options}[best]
        return shlex.join(["spectool", "generate", "--model", self.model, *options])

    def _print(self, run: Run | None, as_json: bool) -> None:
        verdict = Verdict([], _UNMEASURED) if run is None else verdict_of(run)
        best, command = self.recommended(verdict)
        if run is None:
            command = self._command(ALL if self.draft_model else LOOK_UPS)
        costs, draft_advice = known_costs(self.loaded), None
        advice = cheaper_here(self.loaded, costs) if costs else []
        if self.draft_model is None:
            try:
                draft_advice = advise(self.loaded, self.language).sentence(self.model, self.language)
            except SpectoolError as error:
                draft_advice = f"Whether a draft model pays cannot be said: {error}"
        if as_json:
            facts = {"steps": self.steps, **verdict.facts, "recommended": best, "command": command}
            facts |= {"run": run and str(run.path), "other_weights": advice, "draft_model": draft_advice}
            show(facts, as_json=True)
            return
        click.echo(f"\n{summary_table(verdict)}\n\n{verdict.sentence}" if run else f"\n{verdict.sentence}")
        if run and verdict.fastest and verdict.pays is None and (run.options.count or 0) < _PROMPTS:
            click.echo(f"A longer benchmark makes it clearer: --seconds {5 * self.seconds:.0f}")
        if command:
            click.echo(f'{f"Recommended: {best}. " if best else ""}From now on:\n\n  {command} --prompt "…"\n')
            click.echo("`spectool chat` and `spectool serve` take the same options.")
            click.echo("Every model with this tokenizer drafts from the dictionary, too; --no-dict turns that off.")
        for each in [*advice, *filter(None, [draft_advice])]:
            click.echo(each)


def _require_language(name: str, draft: Tokenizer, target: Tokenizer, sample: Sequence[str]) -> None:
    """Refuse a draft model whose first guesses on a sample of the language are right less often than look-ups'."""
    # One from the sample would know it by heart.
    dictionaries = [
        each
        for each in open_dictionaries(AUTO, target, quiet)
        if not str(each.manifest.inputs.get("corpus")).startswith("sample:")
    ]
    look_ups = LookupDrafter(dictionaries, history=True)
    of_draft = share(right_guesses(load_model(name)[0], draft, target, sample))
    of_look_ups = share(right_proposals(look_ups, [Text((), target.encode(text)) for text in sample]))
    say(f"first guesses that are right on a sample: {of_draft:.0%} of {name}'s, {of_look_ups:.0%} of look-ups'")
    if of_draft < of_look_ups:
        raise SpectoolError(
            f"{name}: its first guesses are right in {of_draft:.0%} of the places of a text in this language, those of "
            f"look-ups, which cost nothing, in {of_look_ups:.0%}. Take another draft model, or none"
        )


def _manifest(path: Path) -> Manifest | None:
    with suppress(ArtifactError):
        return open_artifact(path).manifest  # which another version could not read
    return None


def _is_made_from(manifest: Manifest | None, inputs: dict[str, Any], **fingerprints: str) -> bool:
    """Whether an artifact is there that was made from these inputs, for these tokenizers."""
    return (
        manifest is not None
        and inputs.items() <= manifest.inputs.items()
        and fingerprints.items() <= manifest.fingerprints.items()
    )
