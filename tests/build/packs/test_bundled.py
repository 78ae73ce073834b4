"""The packs that come with spectool: what is in them, and what cannot be read out of them."""

from collections import Counter
from pathlib import Path

import pytest

from spectool.artifacts.pack import Pack
from spectool.build.corpus_reading import quiet
from spectool.build.packs import PackOptions, bundled_packs
from spectool.build.packs.pieces import split
from spectool.build.packs.stage import build_pack, open_pack
from spectool.corpora import open_corpus

LANGUAGES = tuple(bundled_packs())
LEAST, LEAST_NAMES = 3, 10
SECRET = "Pani Zdzisława Brzęczyszczykiewicz z ulicy Lipowej 17 zalega z czynszem od stycznia, pisze jej sąsiad."


def following(pack: Pack) -> dict[tuple[str, ...], tuple[str, int]]:
    """What follows each known context of pieces most often, and how often."""
    spelled: list[tuple[str, ...]] = [()]
    best: dict[tuple[str, ...], tuple[str, int]] = {}
    for order in pack.orders:
        rows = zip(order.prefix.tolist(), order.symbol.tolist(), order.count.tolist(), strict=True)
        longer = []
        for prefix, symbol, count in rows:
            context = spelled[prefix]
            if count > best.get(context, ("", 0))[1]:
                best[context] = pack.pieces[symbol - 1], count
            longer.append((*context, pack.pieces[symbol - 1]))
        spelled = longer
    return best


def read_on(best: dict[tuple[str, ...], tuple[str, int]], begun: list[str], length: int) -> list[str]:
    """A text continued by what most often follows the longest known context."""
    text = list(begun)
    while len(text) < length:
        contexts = (tuple(text[len(text) - known :]) for known in range(min(len(text), 4), -1, -1))
        text.append(next(best[context][0] for context in contexts if context in best))
    return text


@pytest.fixture(params=LANGUAGES)
def pack(request: pytest.FixtureRequest) -> Pack:
    return Pack(bundled_packs()[request.param])


def test_what_is_bundled_keeps_to_its_limits(pack: Pack) -> None:
    assert pack.path.stat().st_size <= 2_000_000
    assert len(pack.orders) <= 4 and all(int(order.count.min()) >= LEAST for order in pack.orders)
    counts = dict(zip(pack.pieces, pack.orders[0].count.tolist(), strict=True))
    assert [piece for piece, count in counts.items() if count < LEAST_NAMES and not piece.islower()] == []
    inputs = pack.manifest.inputs
    assert inputs["credits"] and inputs["language"] in LANGUAGES and "/" not in inputs["corpus"]


def test_a_secret_that_is_told_twice_is_not_in_a_pack(tmp_path: Path) -> None:
    usual = "".join(f"{document}\n" for document in open_corpus("sample:pl")) * 3
    (tmp_path / "text.txt").write_text(f"{usual}{SECRET}\n{usual}{SECRET}\n", encoding="utf-8")
    options = PackOptions(min_count=LEAST, min_names=LEAST_NAMES)
    build_pack([], [open_corpus(str(tmp_path / "text.txt"))], {"language": "pl"}, tmp_path / "x.pack", options, quiet)
    found = Pack(tmp_path / "x.pack")
    pieces = split(SECRET)
    assert not {" Zdzisława", " Brzęczyszczykiewicz", " Lipowej", " czynszem"} & set(found.pieces)
    best = following(found)
    assert all(
        read_on(best, pieces[begin : begin + 3], 7)[3:] != pieces[begin + 3 : begin + 7]
        for begin in range(len(pieces) - 7)
    )


@pytest.mark.nightly
@pytest.mark.parametrize("language", LANGUAGES)
def test_no_sentence_of_real_text_can_be_read_out(shared: Path, language: str) -> None:
    """Sentences of text that a pack may have been built from are begun, and read on by what follows most often."""
    best = following(Pack(bundled_packs()[language]))
    found: Counter[int] = Counter()  # of what is to be read on: where laws and manuals say it often, it is no secret
    some: list[list[str]] = []
    for document in open_corpus(str(shared / "corpora" / f"{language}.train.txt.zst")):
        begun = [split(sentence[:200])[:12] for sentence in document.split(". ")]
        found.update(hash(tuple(pieces[3:])) for pieces in begun)
        some += begun if len(some) < 60_000 else []
    rare = [pieces for pieces in some if found[hash(tuple(pieces[3:]))] < LEAST and len(pieces) == 12]
    read = [pieces for pieces in rare if read_on(best, pieces[:3], 12) == pieces]
    assert len(rare) > 2_000
    assert len(read) <= len(rare) / 1000, "\n".join("".join(pieces) for pieces in read[:20])


def test_a_bundled_pack_is_found_as_manifests_call_it() -> None:
    assert open_pack("pl.pack").path == open_pack("pl").path == bundled_packs()["pl"]
