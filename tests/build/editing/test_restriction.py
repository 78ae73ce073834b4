"""Restricting a dictionary: what fits stays, what became redundant goes, the rest proposes what it did."""

from pathlib import Path

import pytest

from spectool import FingerprintMismatch, SpectoolError
from spectool.artifacts import Dictionary
from spectool.build.dictionary.options import Limits
from spectool.build.editing.restriction import restrict_dictionary
from spectool.tests.build.dictionaries import written
from spectool.tokenization import Tokenizer


def quiet(step: str) -> None:
    pass


@pytest.fixture
def mixed(tmp_path: Path, other_bundled: Tokenizer) -> Dictionary:
    """Entries of two scripts over byte-level tokens, many of them parts of characters."""
    rows = {}
    for text in ("дзень добры, мікрафон", "їжак і ґудзик", "dzień dobry, łódź", "12:30 — 14:00", "їжак like USB"):
        tokens = other_bundled.encode(text)
        for end in range(1, len(tokens)):
            for start in range(max(0, end - 3), end):
                context = tuple(tokens[start:end])
                rows.setdefault(context, (context, (tokens[end],), 0.5, 8))
    return written(tmp_path / "mixed.dict", rows.values(), tokenizer=other_bundled.identity)


def texts(dictionary: Dictionary, tokenizer: Tokenizer) -> list[str]:
    return [
        b"".join(tokenizer.surfaces[token] for token in (*entry.context, *entry.continuation)).decode("utf-8", "ignore")
        for entry in dictionary.entries()
    ]


@pytest.mark.parametrize(
    ("scripts", "languages", "letter", "foreign"),
    [
        (("Cyrl",), (), "ї", "abcdłźUSB"),
        (("Latn",), (), "d", "їжакґудзиміран"),
        ((), ("uk",), "ї", "ыabcdł"),
        ((), ("pl",), "d", "їжакґ"),
        (("Cyrl",), ("be", "pl"), "ў", "abcdїґ"),
    ],
)
def test_only_what_fits_stays(
    tmp_path: Path,
    mixed: Dictionary,
    other_bundled: Tokenizer,
    scripts: tuple[str, ...],
    languages: tuple[str, ...],
    letter: str,
    foreign: str,
) -> None:
    manifest = restrict_dictionary(mixed, other_bundled, tmp_path / "x", scripts, languages, Limits(), quiet)
    restricted = Dictionary(tmp_path / "x")
    restricted.verify()
    kept = texts(restricted, other_bundled)
    assert not set("".join(kept)) & set(foreign)
    assert any("12" in text or ":" in text for text in kept), "digits and signs fit everywhere"
    assert 0 < len(restricted) < len(mixed) == manifest.statistics["entries_before_restriction"]
    proposed = {tuple(entry.context): tuple(entry.continuation) for entry in mixed.entries()}
    for entry in restricted.entries():
        assert proposed[tuple(entry.context)] == tuple(entry.continuation)


def test_an_entry_that_its_new_fallback_makes_redundant_goes(tmp_path: Path, other_bundled: Tokenizer) -> None:
    ids = {text: other_bundled.encode(text)[-1] for text in ("a", "b", "c", "1", "2")}
    cyrillic = next(i for i, surface in enumerate(other_bundled.surfaces) if surface == "ж".encode()[:1])
    rows = [
        ((ids["1"],), (ids["a"],), 0.5, 9),
        ((ids["2"], ids["1"]), (cyrillic,), 0.5, 9),
        ((ids["b"], ids["2"], ids["1"]), (ids["a"],), 0.5, 9),
        ((ids["c"], ids["2"], ids["1"]), (ids["b"],), 0.5, 9),
    ]
    dictionary = written(tmp_path / "a", rows, tokenizer=other_bundled.identity)
    restrict_dictionary(dictionary, other_bundled, tmp_path / "x", ("Latn",), (), Limits(), quiet)
    kept = {tuple(entry.context) for entry in Dictionary(tmp_path / "x").entries()}
    assert kept == {tuple(rows[0][0]), tuple(rows[3][0])}


def test_nothing_that_fits_and_another_tokenizer(
    tmp_path: Path, mixed: Dictionary, bundled: Tokenizer, other_bundled: Tokenizer
) -> None:
    only = written(tmp_path / "a", [((other_bundled.encode("a")[-1],), (other_bundled.encode("b")[-1],), 1.0, 1)],
                   tokenizer=other_bundled.identity)  # fmt: skip
    with pytest.raises(SpectoolError, match="none of its 1 entries is in Grek"):
        restrict_dictionary(only, other_bundled, tmp_path / "x", ("Grek",), (), Limits(), quiet)
    with pytest.raises(FingerprintMismatch):
        restrict_dictionary(mixed, bundled, tmp_path / "x", ("Latn",), (), Limits(), quiet)
    assert not (tmp_path / "x").exists()
