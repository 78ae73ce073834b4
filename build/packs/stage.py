"""The stages behind ``spectool pack`` and ``spectool build-dict --pack``."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from spectool import ArtifactError, SpectoolError
from spectool.artifacts.manifest import Manifest
from spectool.artifacts.pack import STEPS, Pack, pack_arrays
from spectool.build.corpus_reading import Progress, describe_corpus, with_progress
from spectool.build.counting import Counts, add_counts, count_windows
from spectool.build.dictionary import BackoffOptions
from spectool.build.dictionary.backoff import build_dictionary
from spectool.build.dictionary.size_limits import largest_within
from spectool.build.dictionary.smoothing import open_windows
from spectool.build.packs import PackOptions, bundled_packs
from spectool.build.packs.compiling import compile_pack
from spectool.build.packs.pieces import PieceCounts, add_pieces, count_pieces, without_rare
from spectool.build.packs.pruning import Candidates
from spectool.corpora import Corpus
from spectool.tokenization.tokenizer import Tokenizer

_BYTES_AN_NGRAM = 1.5  # first guess
_MERGED = 0.01  # share of merged pieces from which on it is said


def build_pack(
    packs: Sequence[Pack],
    corpora: Sequence[Corpus],
    about: Mapping[str, Any],
    out: Path,
    options: PackOptions,
    progress: Progress,
) -> Manifest:
    """Count corpora of any size, add the counts of packs, and write the n-grams that save most to a pack.

    ``about`` is what its manifest says of the language, and of sources and licences.

    Raises:
        CorpusError: The text cannot be read.
        SpectoolError: There is nothing to keep.
    """
    parts = []
    for pack in packs:
        ngrams = Counts(tuple(pack.orders[: options.orders]), len(pack.pieces), pack.occurrences)
        parts.append(PieceCounts(pack.pieces, ngrams))
    for corpus in corpora:
        progress(f"splitting {corpus.spec} into pieces")
        texts = (document.text for document in with_progress(corpus))
        parts.append(count_pieces(texts, options.orders, progress))
    found = by_frequency(without_rare(add_pieces(parts), options.min_count, options.min_names))
    if not found.pieces:
        raise SpectoolError(
            f"{out}: nothing occurs {options.min_count} times and, if it is not in lower case, {options.min_names}. "
            "Give more text, or a lower --min-count or --min-names"
        )
    progress("smoothing")
    candidates = Candidates(found)
    progress("choosing n-grams")
    first = options.max_bytes / _BYTES_AN_NGRAM
    fitting = largest_within(
        options.max_bytes, first, len(candidates), lambda most: _arrays(candidates.best(max(1, int(most))))
    )
    if fitting is None:
        raise SpectoolError(f"{out}: nothing fits in {options.max_bytes:,} bytes. Give a larger --max-bytes")
    arrays, shape = fitting
    read = [text for pack in packs for text in pack.manifest.inputs.get("texts", [])]
    for corpus in corpora:  # names of files and folders may be private
        name, counts = Path(corpus.spec).name, corpus.counts
        read.append({"corpus": name, "documents": counts.documents, "characters": counts.characters})
    names = [pack.name for pack in packs] + [Path(corpus.spec).name for corpus in corpora]
    inputs = {"corpus": ", ".join(names), **about, "texts": read}
    arguments = asdict(options)
    return Pack.write(out, arrays, arguments=arguments, tokenizers={}, inputs=inputs, statistics=shape)


def by_frequency(found: PieceCounts) -> PieceCounts:
    """The same n-grams with the pieces in the order of a pack: most frequent first, as coarse as they are written."""
    tokens = found.counts.levels[0]
    steps = np.rint(STEPS * np.log2(tokens.count)).tolist()
    named = sorted((-step, found.pieces[symbol - 1]) for step, symbol in zip(steps, tokens.symbol, strict=True))
    return add_pieces([found], [piece for _, piece in named])


def _arrays(found: PieceCounts) -> tuple[int, tuple[dict[str, Any], dict[str, Any]]]:
    arrays, shape = pack_arrays(found.pieces, open_windows(found.counts), found.counts.total)
    return sum(values.nbytes for values in arrays.values()), (arrays, shape)


def count_and_build(
    tokenizer: Tokenizer,
    corpus: Corpus | None,
    out: Path,
    options: BackoffOptions,
    progress: Progress,
    packs: Sequence[Pack] = (),
) -> Manifest:
    """Build a dictionary from a corpus and from packs.

    Each step calls ``progress`` with a short description first.

    Raises:
        CorpusError: The text cannot be read.
        SpectoolError: It does not fit into memory, or there is nothing to build from.
    """
    parts = list[Counts]()
    if corpus is not None:  # first, because it may be refused
        texts = (document.text for document in with_progress(corpus))
        parts.append(count_windows(corpus, texts, tokenizer, options.max_context + 1, options.min_count, progress))
    for pack in packs:
        progress(f"compiling {len(pack):,} n-grams of {pack.name}")
        counts, merged = compile_pack(pack, tokenizer, options.max_context + 1)
        if merged >= _MERGED:
            progress(
                f"{tokenizer.name} merges {merged:.0%} of the words with what stands before them. These are drafted "
                "less often than from a dictionary of the text itself"
            )
        parts.append(counts)
    counts = add_counts(parts, tokenizer.size) if packs else parts[0]
    inputs = ({"packs": described(packs)} if packs else {}) | ({} if corpus is None else describe_corpus(corpus))
    return build_dictionary(tokenizer, counts, inputs, out, options, progress)


def described(packs: Iterable[Pack]) -> list[dict[str, str]]:
    """What the manifest of a dictionary says of its packs."""
    return [
        {"name": pack.name, "sha256": pack.file.sha256, "language": str(pack.manifest.inputs.get("language", ""))}
        for pack in packs
    ]


def open_pack(name: str) -> Pack:
    """The pack at a path, or the bundled one of a language, such as ``pl`` or ``pl.pack``.

    Raises:
        ArtifactError: There is none, or it is damaged.
    """
    path = Path(name).expanduser()
    if path.is_file():  # and no folder of texts in that language
        return Pack(path)
    known, language = bundled_packs(), name.removesuffix(".pack")
    if language not in known:
        raise ArtifactError(
            f"{name}: no such pack. Bundled: {', '.join(known)}. Build one of another language from text: "
            f"spectool pack CORPUS --language CODE -o CODE.pack"
        )
    return Pack(known[language])
