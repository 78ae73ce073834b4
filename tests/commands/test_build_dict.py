"""What build-dict says of an amount of text, and of its figures on a part of it."""

import json
from pathlib import Path

import pytest

from spectool.commands.build_dict import amount_of_text
from spectool.tests.running import TOKENIZER, run


@pytest.mark.parametrize(
    ("counted", "said"),
    [
        (99_999, "99,999 tokens: enough for a demonstration. Expect gains from about a million tokens"),
        (100_000, "100,000 tokens: enough for part of the gain. Expect more from a million tokens on"),
        (1_000_000, "1,000,000 tokens: enough for a useful dictionary."),
    ],
)
def test_steps(counted: int, said: str) -> None:
    assert amount_of_text(counted).startswith(said)


def test_build_dict_says_it_and_as_json(tmp_path: Path) -> None:
    arguments = ("build-dict", "--tokenizer", TOKENIZER, "--corpus", "sample:pl")
    shown = run(*arguments, "-o", tmp_path / "a.dict").stdout.splitlines()
    facts = json.loads(run(*arguments, "-o", tmp_path / "b.dict", "--json").stdout)
    counted = facts["statistics"]["tokens"]
    assert facts["text"].startswith(f"{counted:,} ") and "enough for a demonstration" in facts["text"]
    (last,) = [line for line in shown if line.startswith("text ")]
    assert last.split(maxsplit=1)[1] == facts["text"]
