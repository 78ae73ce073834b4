"""What was written: kinds of tokens from cycles, their picture, and the section of the page on the demo model."""

import random
import xml.etree.ElementTree
from pathlib import Path

import pandas as pd
import pytest

from spectool.artifacts.benchmark import Benchmark
from spectool.measure.page import HTML, MARKDOWN
from spectool.measure.report.compose import report_files
from spectool.measure.report.target_text import kinds_of, picture
from spectool.measure.report.trials import read_trials, repeated_share
from spectool.runtime.demo_models import demo_path
from spectool.tests.measure.report.pages import read_page
from spectool.tests.measure.report.runs import rows_of, write_run
from spectool.tokenization.opening import open_tokenizer

TEXT = 'Zażółć gęślą jaźń, powiedział.\nПерсональний ком\u2019ютер — це <b> & "річ".'


def test_every_committed_token_has_its_kind() -> None:
    cycles = pd.DataFrame(
        [(0, 0, 1), (3, 3, 4), (3, 1, 2), (2, 0, 1), (4, 4, 2), (2, 2, 2)],
        columns=["proposed", "accepted", "committed"],
    )
    assert list(kinds_of(cycles)) == [
        *("undrafted", "accepted", "accepted", "accepted", "bonus", "accepted", "corrected", "corrected"),
        *("accepted", "accepted", "accepted", "accepted"),  # the text ended inside two drafts
    ]


def test_kinds_are_as_many_as_tokens() -> None:
    generations, cycles = rows_of(prompts=2)
    frame = pd.DataFrame(cycles)
    for row in generations:
        if row["drafter"] != "plain":
            seen = frame[(frame.block == row["block"]) & (frame.order == row["order"])]
            kinds = list(kinds_of(seen))
            assert len(kinds) == row["tokens"] and kinds.count("accepted") == row["accepted"]


def test_a_picture_has_the_text_and_fits() -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    kinds = ["accepted", "corrected", "bonus", "undrafted"]
    words = [piece for word in (TEXT * 9).split(" ") for piece in (word[:2], word[2:] + " ")]
    root = xml.etree.ElementTree.fromstring(picture([(word, rng.choice(kinds)) for word in words]))
    drawn = [element for element in root if element.tag.endswith("text")]
    assert "".join(element.text or "" for element in drawn[:-4]) == "".join(words).replace("\n", "")
    assert [(element.text or "").strip() for element in drawn[-4:]] == kinds
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    for element in drawn:
        assert 0 <= float(element.get("x", 0)) <= width - float(element.get("textLength", 0))
        assert 0 < float(element.get("y", 0)) < height


def test_repetition() -> None:
    assert repeated_share([]) == repeated_share([1, 2, 3]) == repeated_share(range(100)) == 0
    assert repeated_share([1, 2, 3, 4] * 20) == pytest.approx(1 - 4 / 77)


def test_a_text_that_goes_in_circles_is_shown(tmp_path: Path) -> None:
    tokenizer = open_tokenizer(demo_path("target"))
    generations, cycles = rows_of(languages=["pl", "uk"], kinds=["list"], prompts=5)
    ids = tokenizer.encode(TEXT)
    for row in generations:
        row["output"] = (
            (ids * row["tokens"])[: row["tokens"]] if row["language"] == "pl" else list(range(row["tokens"]))
        )
    run = write_run(tmp_path / "x.bench", generations, cycles)
    without = read_page(report_files(read_trials(Benchmark(run)))[MARKDOWN])["What was written"]
    assert without.text[-1].startswith("No text is shown: no target's tokenizer")
    identity = {"name": str(demo_path("target")), "fingerprint": tokenizer.fingerprint, "size": tokenizer.size}
    run = write_run(tmp_path / "y.bench", generations, cycles, tokenizers={"target": identity})
    trials = read_trials(Benchmark(run))
    files = report_files(trials)
    written = read_page(files[MARKDOWN])["What was written"]
    shares = {language: float(written.row(f"target, {language}, plain")["all"][:-1]) for language in ("pl", "uk")}
    assert shares["pl"] > 20 and shares["uk"] == 0
    assert files[HTML].count('<span class="accepted">') > 2 and "Zażółć" not in files[MARKDOWN]
    none = report_files(trials, texts=0)
    assert '<span class="accepted">' not in none[HTML] and len(files) == len(none) + 2
    pictures = [svg for svg in files.values() if "corrected" in svg and svg.startswith("<svg")]
    assert len(pictures) == 2 and "Zażółć" in "".join(xml.etree.ElementTree.fromstring(pictures[0]).itertext())
