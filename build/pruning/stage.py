"""The stage behind ``spectool prune-draft``: a model directory, text and packs in, a smaller model directory out."""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from tqdm import tqdm

from spectool import ArtifactError, TokenizerError
from spectool.artifacts.atomic import atomic_directory
from spectool.artifacts.manifest import Manifest
from spectool.artifacts.pack import Pack
from spectool.artifacts.pruned_draft import FORMAT, RECORD, VERSION
from spectool.build.corpus_reading import Progress, describe_corpus
from spectool.build.packs.stage import described
from spectool.build.pruning.sources import COUNTED, SEED, counted_pack, counted_text
from spectool.build.pruning.vocabulary import (
    COVERAGE,
    choose_ids,
    needed_ids,
    placeholders,
    pruned_spec,
    renumber,
    require_prunable,
)
from spectool.build.pruning.weights import open_weights, resized, write_weights
from spectool.corpora import Corpus
from spectool.tokenization.fingerprint import PROBES
from spectool.tokenization.hub_names import LEGAL
from spectool.tokenization.opening import open_tokenizer
from spectool.tokenization.tokenizer import Tokenizer

_NAMING = ("chat_template.*", "special_tokens_map.json")
_COPIED = (*_NAMING, "*processor_config.json", *LEGAL)


def prune_model(
    model: Path,
    whole: Tokenizer,
    corpora: Sequence[Corpus],
    out: Path,
    progress: Progress,
    ids: int | None = None,
    packs: Sequence[Pack] = (),
    finish: Callable[[Path], Mapping[str, Any]] = lambda directory: {},
) -> Manifest:
    """Write a copy of a model with only the ids that some languages need.

    The manifest records what was kept, how much that covers, and the length of each corpus in tokens before and after.
    Each corpus and each pack has the same weight.

    Args:
        model: Directory of the draft model.
        whole: Its tokenizer.
        corpora: Text in the languages to keep.
        out: Directory to write, in one step; nothing may be there.
        progress: Called at the start of each step.
        ids: Maximum number of ids to keep; by default as many as cover 99.9% of the tokens of every corpus, and all of
            every pack.
        packs: Counts of the languages to keep.
        finish: Called with the directory of the new model before it is kept, and may change its weights. It gives what
            the manifest's statistics say of that, and the ``bytes`` of the weights.

    Raises:
        TokenizerError: The tokenizer cannot be pruned, or the pruned one decodes a text differently. The error names
            the document.
        ArtifactError: A file of the model is missing, damaged or not as expected, or ``out`` exists.
    """
    require_prunable(whole)
    configs = {name: _read_json(model / name) for name in ("config.json", "generation_config.json")}
    in_model = max(whole.backend.get_vocab(with_added_tokens=False).values()) + 1
    weights = open_weights(model, configs["config.json"], in_model)
    before = weights.size_with(weights.rows)
    without_row = frozenset(range(weights.rows, whole.size))  # as tokens for images where the model sees none
    spec = json.loads(whole.backend.to_str())
    progress("counting tokens")
    sources = [*(counted_text(corpus, whole) for corpus in corpora), *(counted_pack(pack, whole) for pack in packs)]
    if unknown := [str(next(iter(source.facts.values()))) for source in sources if not source.counts.any()]:
        raise TokenizerError(f"{whole.name}: knows none of {unknown[0]}. Give another text, pack or draft model")
    progress("choosing ids")
    named: set[int] = set()
    renumber([*configs.values(), spec["post_processor"]], named.add)
    if strangers := sorted(index for index in named if whole.backend.id_to_token(index) is None):
        progress(f"{model}: ignoring ids in its configuration that have no token: {strangers}")
    counts, coverage = [source.counts for source in sources], [source.coverage for source in sources]
    tokenizer_config = _read_json(model / "tokenizer_config.json")
    about, occurring = _names_in(model, tokenizer_config), np.any(counts, axis=0)
    named |= {index for index, name in placeholders(whole).items() if name in about or occurring[index]}
    characters = frozenset[str]().union(*(source.characters for source in sources))
    needed = needed_ids(whole, characters, named.difference(strangers))
    if unused := [name for index, name in placeholders(whole).items() if index not in needed]:
        progress(f"leaving out {len(unused):,} added tokens that stand for nothing, such as {unused[0]}")
    kept = choose_ids(whole, counts, needed - without_row, ids, coverage)
    content, new = pruned_spec(spec, kept | without_row)
    rows = [old for old in new if old not in without_row]
    size = weights.size_with(len(rows))
    with atomic_directory(out) as directory:
        progress("writing the tokenizer and comparing it with the whole one on the text")
        configs["config.json"] = resized(configs["config.json"], weights.rows, len(rows))
        for name, config in configs.items():
            if config:
                _write_json(directory / name, renumber(config, new.get))
        for path in {path for pattern in _COPIED for path in model.glob(pattern) if path.is_file()}:
            shutil.copyfile(path, directory / path.name)
        _write_tokenizer(directory, tokenizer_config, whole, content, new)
        pruned = open_tokenizer(directory)  # as mlx-lm will
        _require_same(pruned, content)
        text = [
            {**source.facts, **source.compare(whole, pruned), "covered": round(float(share), 6)}
            for source, share in zip(sources, (each[list(kept)].sum() / each.sum() for each in counts), strict=True)
        ]
        with tqdm(total=before, desc="writing weights", unit="B", unit_scale=True, disable=None) as bar:
            write_weights(weights, rows, directory, bar.update)
        form = dict(finish(directory))
        names = [*(corpus.spec for corpus in corpora), *(pack.name for pack in packs)]
        manifest = Manifest(
            FORMAT,
            VERSION,
            arguments={"ids": ids, "coverage": COVERAGE, "counted": COUNTED, "seed": SEED},
            tokenizers={"whole": whole.identity, "pruned": pruned.identity | {"name": out.name}},
            inputs=describe_corpus(*corpora) | {"corpus": ", ".join(names), "packs": described(packs)},
            statistics={
                "ids": {"before": whole.size, "after": len(new)},
                "weights": {"before": before, "after": form.pop("bytes", size)},
                "text": text,
                **form,
            },
        )
        _write_json(directory / RECORD, asdict(manifest))
        return manifest


def _names_in(model: Path, config: Mapping[str, Any]) -> str:
    """What may name an added token: chat templates, the map of special tokens, and the tokenizer's configuration."""
    files = (path.read_text(encoding="utf-8", errors="replace") for pattern in _NAMING for path in model.glob(pattern))
    named = {key: value for key, value in config.items() if key != "added_tokens_decoder"}  # which lists all of them
    return "\n".join([*files, json.dumps(named)])


def _write_tokenizer(
    directory: Path, config: dict[str, Any], whole: Tokenizer, content: Mapping[str, Any], new: Mapping[int, int]
) -> None:
    roles = whole.roles  # which may be those of its class in transformers
    ids = {"bos_token": roles.bos, "eos_token": next(iter(roles.eos), None), "unk_token": roles.unk}
    named = {role: whole.backend.id_to_token(index) for role, index in ids.items() if index is not None}
    # Another class would rebuild what the whole one's class has made already.
    config = named | config | {"tokenizer_class": "PreTrainedTokenizerFast"}
    if declared := config.get("added_tokens_decoder"):
        kept = ((new.get(int(old)), token) for old, token in declared.items())
        config["added_tokens_decoder"] = {str(place): token for place, token in kept if place is not None}
    (directory / "tokenizer.json").write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    _write_json(directory / "tokenizer_config.json", config)


def _require_same(opened: Tokenizer, content: Mapping[str, Any]) -> None:
    """Check that the tokenizer in the directory is the one that was written to it."""
    written = tokenizers.Tokenizer.from_str(json.dumps(content))
    same = opened.backend.get_vocab() == written.get_vocab()
    if not same or any(opened.backend.encode(text).ids != written.encode(text).ids for text in PROBES):
        raise TokenizerError(
            f"{opened.name}: transformers does not load the tokenizer that was written here. Use the original draft "
            "model, and please report its tokenizer"
        )


def _read_json(path: Path) -> dict[str, Any]:
    """The object in a file; empty if there is none, except for ``config.json``."""
    if not path.is_file() and path.name != "config.json":
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise ValueError("expected an object")
    except (OSError, ValueError) as error:
        raise ArtifactError(f"{path}: not readable ({error}). Download the model's files again") from error
    return found


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
