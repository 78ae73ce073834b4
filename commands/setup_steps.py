"""The steps of ``spectool setup``, from a model to a benchmark. Each knows whether what it makes is there already.

`Setup.steps` looks at the disk before every step. Going through it without making anything gives the plan; making what
is missing on the way goes on where an earlier run ended.
"""

import json
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from spectool import ArtifactError, CorpusError, TokenizerError
from spectool.artifacts import alignment, dictionary
from spectool.artifacts.default_paths import AUTO, default_path, digest, slug
from spectool.artifacts.manifest import read_manifest
from spectool.artifacts.pass_costs import PassCosts, load_costs, save_costs
from spectool.artifacts.resumable import resumable_work
from spectool.build.alignment.check import require_checked
from spectool.build.alignment.stage import build_alignment
from spectool.build.corpus_reading import quiet
from spectool.build.counting.options import CountOptions
from spectool.build.dictionary.backoff_stage import count_and_build
from spectool.build.dictionary.options import BackoffOptions
from spectool.build.pruning import stage as pruning
from spectool.commands.build_dict import amount_of_text, dictionary_path, least_count
from spectool.commands.console import progress, reading, say
from spectool.commands.prune_draft import model_directory
from spectool.corpora import Corpus, open_corpus
from spectool.measure.bench.experiment import LANGUAGES, Experiment, make_experiment
from spectool.measure.bench.identity import contents
from spectool.measure.bench.running import run_experiment
from spectool.measure.ceiling import measure_ceiling
from spectool.measure.doctor import measure_costs
from spectool.runtime.draft_length.measured import forget_known_costs, model_key
from spectool.runtime.loading import load_model, open_dictionaries
from spectool.tokenization.opening import looks_like_hub_id, open_tokenizer
from spectool.tokenization.tokenizer import Tokenizer

LOOK_UPS, DRAFT, ALL = "dictionary + history", "draft model", "all together"
"""The names of the drafters that are measured."""

_DOCTOR = 10.0  # seconds of passes, as in `spectool doctor`
_TOKENS, _FEWEST_TOKENS = 64, 32  # after each prompt of the benchmark
_PROMPTS, _FEWEST_PROMPTS = 60, 8  # the built-in ones of a language; what an interval for three drafters needs
_WINDOW = 32  # tokens of a prompt from the text, in languages without built-in prompts

Files = list[dict[str, Any]] | None
"""Names, sizes and hashes of a text's files, as manifests have them; None before they are fetched."""


class Step(NamedTuple):
    """Something to make, unless it is kept from an earlier run."""

    name: str
    what: str  # is made, in words
    seconds: float  # that it takes, roughly
    kept: bool  # whether it is there, made from the same inputs
    make: Callable[[], object]


class Text(NamedTuple):
    """A text that the user named."""

    spec: str
    fetched: Path | None  # where the part of it that is fetched from the hub is kept; None if it is read in place

    @property
    def name(self) -> str:
        """What to open it by."""
        return str(self.fetched or self.spec)

    @property
    def corpus(self) -> Corpus:
        """Its documents, with the licence of the data set that they come from."""
        corpus = open_corpus(self.name)
        corpus.licence = open_corpus(self.spec).licence
        return corpus

    @property
    def files(self) -> Files:
        """Its files."""
        if self.fetched is not None and not self.fetched.exists():
            return None
        return [file._asdict() for file in self.corpus.describe_inputs()]


@dataclass
class Setup:
    """What the user asked for, and what the steps that were gone through have found."""

    model: str
    language: str
    corpora: Sequence[str]
    draft: str | None
    prune: bool
    hub_bytes: int  # of each text on the hub
    seconds: float  # of the benchmark
    drafters: dict[str, dict[str, Any]] = field(default_factory=dict)  # as an experiment has them, by name
    unusable: str = ""  # why the draft model is not among them
    run: Path | None = None  # the benchmark

    def steps(self) -> Iterator[Step]:
        """Yield the steps in order; what depends on one that is missing when the next is asked for is missing, too.

        Raises:
            SpectoolError: Something that the user named is not there, or cannot be used.
        """
        target = open_tokenizer(self.model)
        texts = [_text(spec, self.hub_bytes) for spec in self.corpora]
        if not is_here(self.model):
            yield _download(self.model)
        for text in texts:
            if text.fetched is not None:
                what = f"{self.hub_bytes / 1e6:g} MB of {text.spec} from the hub"
                fetch = partial(_fetch, text.spec, self.hub_bytes, text.fetched)
                yield Step("text", what, self.hub_bytes / 1e6, text.fetched.exists(), fetch)
        files = [text.files for text in texts]
        for text, mine in zip(texts, files, strict=True):
            yield _dictionary(target, text, mine)
        yield _doctor(self.model)
        dictionaries = [str(each.path) for each in open_dictionaries(AUTO, target, quiet)]  # what `generate` takes
        look_ups = {"dictionary": dictionaries, "history": True}
        self.drafters, self.unusable = {LOOK_UPS: look_ups}, ""
        if self.draft is not None:
            draft = yield from self._draft(self.draft, target, texts, files)
            if not self.unusable:
                self.drafters |= {DRAFT: draft, ALL: look_ups | draft}
        yield self._bench(texts[0])

    def _draft(
        self, name: str, target: Tokenizer, texts: Sequence[Text], files: Sequence[Files]
    ) -> Generator[Step, None, dict[str, str]]:
        """Yield the steps of the draft model, and return what an experiment says of it."""
        if not is_here(name):
            yield _download(name)
        used = name
        if self.prune:
            path = (
                default_path("drafts") / f"{slug(name)}-{self.language}-{digest(contents([name], ())[f'model {name}'])}"
            )
            yield _pruning(name, path, texts, files)
            used = str(path)
        draft = open_tokenizer(used) if is_here(used) else None
        found = {"draft_model": used}
        if draft is None or draft.fingerprint != target.fingerprint:
            sides = digest(draft and draft.fingerprint, target.fingerprint)
            path = default_path(f"{slug(name)}-{slug(self.model)}-{self.language}-{sides}.align")
            yield _alignment(draft, target, path, texts[0], files[0])
            found["alignment"] = str(path)
            if path.exists():
                try:
                    require_checked(path, read_manifest(path))
                except ArtifactError as error:
                    self.unusable = str(error)
                    return found
        yield _doctor(used)
        return found

    def _bench(self, text: Text) -> Step:
        """The step that measures all drafters on as many prompts as there is time for."""
        what, costs = f"plain decoding, {', '.join(self.drafters)}", _costs(self.model)
        artifacts = [Path(name) for each in self.drafters.values() for name in _artifacts(each)]
        if costs is None or text.files is None or not all(map(Path.is_dir, artifacts)):
            return Step("bench", what, self.seconds, False, lambda: None)
        experiment, seconds = self._experiment(text, costs.curve[1])
        models = [self.model, *(each["draft_model"] for each in self.drafters.values() if "draft_model" in each)]
        key = digest(experiment.model_dump(mode="json"), contents(models, artifacts), text.files)
        self.run = default_path("setup") / f"{slug(self.model)}-{self.language}-{key}.bench"
        make = partial(run_experiment, experiment, self.run, 0.0, say, progress)
        return Step("bench", what, seconds, self.run.exists(), make)

    def _experiment(self, text: Text, pass_seconds: float) -> tuple[Experiment, float]:
        """An experiment, and the seconds that it takes if no draft is right and no wrong one costs anything."""
        every = (1 + len(self.drafters)) * pass_seconds  # seconds of a token in each configuration
        prompts: dict[str, Any] = {"language": self.language}
        if self.language not in LANGUAGES:
            prompts |= {"source": text.name, "window": _WINDOW}
        prompts["count"] = min(_PROMPTS, max(_FEWEST_PROMPTS, int(self.seconds / every / _TOKENS)))
        tokens = min(_TOKENS, max(_FEWEST_TOKENS, int(self.seconds / every / prompts["count"])))
        drafters = [{"name": name, **drafter} for name, drafter in self.drafters.items()]
        model = {"name": slug(self.model), "path": self.model, "drafters": drafters}
        keys = {"name": "setup", "models": [model], "prompts": [prompts], "tokens": tokens}
        return make_experiment(keys), every * prompts["count"] * tokens


def is_here(model: str) -> bool:
    """Whether a model is a directory, or its weights are in the hub's cache."""
    from huggingface_hub import try_to_load_from_cache

    weights = "model.safetensors", "model.safetensors.index.json"
    hub_id = looks_like_hub_id(model)
    return Path(model).is_dir() or (hub_id and any(isinstance(try_to_load_from_cache(model, n), str) for n in weights))


def _made(path: Path, kind: str, tokenizers: Mapping[str, Tokenizer | None], files: Files) -> bool:
    """Whether an artifact is there and whole, and was made for these tokenizers from these files."""
    try:
        manifest = read_manifest(path)
    except ArtifactError:
        return False
    sides = {role: side["fingerprint"] for role, side in manifest.tokenizers.items()}
    wanted = {role: side and side.fingerprint for role, side in tokenizers.items()}
    return (manifest.format, sides, manifest.inputs.get("files")) == (kind, wanted, files)


def _download(model: str) -> Step:
    return Step("download", f"{model} from the hub", 300, False, partial(model_directory, model))


def _text(spec: str, most: int) -> Text:
    on_hub = open_corpus(spec).total_bytes is None
    return Text(spec, default_path("texts") / f"{slug(spec)}-{most / 1e6:g}MB.jsonl" if on_hub else None)


def _fetch(spec: str, most: int, out: Path) -> None:
    """Write the first documents of a text on the hub to a file."""
    with resumable_work(out, {"corpus": spec, "bytes": most}, what="setup", keep=()) as work:
        try:
            with (work / "text").open("wb") as stream, progress(spec, most, "B") as done:
                for document in open_corpus(spec):
                    done(stream.write(json.dumps({"text": document.text}, ensure_ascii=False).encode() + b"\n"))
                    if stream.tell() >= most:
                        break
        except CorpusError as error:
            raise CorpusError(
                f"{error}. Or name text of your own: --corpus FILE. The bundled one, --corpus sample:pl, shows that "
                "everything works, but is too small to gain anything"
            ) from error
        (work / "text").replace(out)


def _dictionary(target: Tokenizer, text: Text, files: Files) -> Step:
    options, least = BackoffOptions(), least_count(None if files is None else text.corpus)
    path = dictionary_path(text.name, target.fingerprint, options, least)

    def make() -> None:
        manifest = count_and_build(target, text.corpus, path, options, CountOptions(min_count=least), say)
        say(amount_of_text(manifest.statistics["tokens"]))

    kept = _made(path, dictionary.FORMAT, {"target": target}, files)
    return Step("dictionary", f"{text.spec}, {options.max_bytes or 0:,} bytes at most", 60, kept, make)


def _pruning(name: str, path: Path, texts: Sequence[Text], files: Sequence[Files]) -> Step:
    def make() -> None:
        directory = model_directory(name)
        corpora = [text.corpus for text in texts]
        try:
            pruning.prune_model(directory, open_tokenizer(directory), corpora, path, say, reading, progress)
        except TokenizerError as error:
            raise TokenizerError(f"{error}. Or use it whole: --no-prune") from error

    every = None if None in files else [file for some in files for file in some or ()]
    kept = _made(path, pruning.FORMAT, {"whole": open_tokenizer(name) if is_here(name) else None}, every)
    return Step("pruned draft", f"the tokens of {name} that the text needs", 60, kept, make)


def _alignment(draft: Tokenizer | None, target: Tokenizer, path: Path, text: Text, files: Files) -> Step:
    def make() -> None:
        assert draft is not None
        build_alignment(draft, target, text.corpus, path, say, reading, measure=measure_ceiling)

    kept = _made(path, alignment.FORMAT, {"draft": draft, "target": target}, files)
    return Step("alignment", "of the two tokenizers, about 40 MB for large ones", 60, kept, make)


def _doctor(name: str) -> Step:
    def make() -> None:
        model, tokenizer = load_model(name)
        save_costs(model_key(model), measure_costs(model, tokenizer, name, _DOCTOR, say))
        forget_known_costs()

    return Step("doctor", f"what passes of {name} cost", 2 * _DOCTOR, _costs(name) is not None, make)


_key = cache(lambda name: model_key(load_model(name, lazy=True)[0]))


def _costs(name: str) -> PassCosts | None:
    """What the doctor has found of a model; None if it has not seen it, or the file is damaged."""
    try:
        return load_costs(_key(name)) if is_here(name) else None
    except ArtifactError:
        return None


def _artifacts(drafter: Mapping[str, Any]) -> list[str]:
    return [*drafter.get("dictionary", ()), *([drafter["alignment"]] if "alignment" in drafter else [])]
