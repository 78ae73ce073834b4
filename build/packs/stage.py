"""The stages behind ``spectool pack`` and ``spectool build-dict --pack``."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from spectool import ArtifactError, SpectoolError, expanded
from spectool.artifacts.manifest import Manifest
from spectool.artifacts.pack import STEPS, Pack, pack_arrays
from spectool.build.corpus_reading import Progress, describe_corpus, with_progress
from spectool.build.counting import Counts, add_counts, count_windows
from spectool.build.dictionary import BackoffOptions
from spectool.build.dictionary.backoff import build_dictionary
from spectool.build.dictionary.size_limits import largest_within
from spectool.build.dictionary.smoothing import open_windows, smooth
from spectool.build.packs import PackOptions, bundled_packs
from spectool.build.packs.compiling import compile_pack
from spectool.build.packs.pieces import PieceCounts, add_pieces, count_pieces, keep_rows, without_rare
from spectool.corpora import Corpus
from spectool.tokenization.tokenizer import Tokenizer

_BYTES_AN_NGRAM = 1.5  # first guess


class Candidates:
    """N-grams, from which a pack keeps those by which the text gets shorter, if it is coded by the counts.

    An n-gram of a context c and a piece w that occurs n times saves n log2(P(w | c) / P(w | c')) bits, where c' is the
    context without its oldest piece and P is smoothed as for dictionaries. A piece itself saves a bit for each
    character. The n-grams that it begins and ends with are kept as well.
    """

    def __init__(self, found: PieceCounts) -> None:
        self._found, self._windows = found, (windows := open_windows(found.counts))
        smoothed = smooth(windows, BackoffOptions.discount)
        lengths = np.array([0, *map(len, found.pieces)])
        saved = [windows[0].count * lengths[windows[0].symbol]]
        for window, shorter, longer in zip(windows[1:], smoothed, smoothed[1:], strict=False):
            ratio = longer.probability / np.maximum(shorter.probability[window.suffix], 1e-30)
            saved.append(window.count * np.log2(np.maximum(ratio, 1e-30)))
        self._saved = np.concatenate(saved)
        self._ranking = np.argsort(-self._saved, kind="stable")  # of equals, the first ones

    def __len__(self) -> int:
        return int(np.count_nonzero(self._saved > 0))

    def best(self, most: int) -> PieceCounts:
        """About ``most`` n-grams, those that save most and what they begin and end with."""
        best = np.zeros(len(self._saved), dtype=np.bool_)
        best[self._ranking[:most]] = True
        kept = np.split(best & (self._saved > 0), np.cumsum([len(window.keys) for window in self._windows])[:-1])
        for order in range(len(kept) - 1, 0, -1):
            window = self._windows[order]
            kept[order - 1][window.prefix[kept[order]]] = True
            kept[order - 1][window.suffix[kept[order]]] = True
        return keep_rows(self._found, kept)


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
        parts.append(count_pieces(with_progress(corpus), options.orders, progress))
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
        texts = with_progress(corpus)
        parts.append(count_windows(corpus, texts, tokenizer, options.max_context + 1, options.min_count, progress))
    for pack in packs:
        progress(f"compiling {len(pack):,} n-grams of {pack.name}")
        parts.append(compile_pack(pack, tokenizer, options.max_context + 1))
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
    path = expanded(name)
    if path.is_file():  # and no folder of texts in that language
        return Pack(path)
    known, language = bundled_packs(), name.removesuffix(".pack")
    if language not in known:
        raise ArtifactError(
            f"{name}: no such pack. Bundled: {', '.join(known)}. Build one of another language from text: "
            f"spectool pack CORPUS --language CODE -o CODE.pack"
        )
    return Pack(known[language])
