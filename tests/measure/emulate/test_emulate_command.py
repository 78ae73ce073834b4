"""``spectool emulate``: figures for every strategy, and of what was replayed before Ctrl-C."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from click.testing import CliRunner
from mlx.utils import tree_flatten

from spectool.cli import main
from spectool.commands import console
from spectool.runtime.drafters.lookup import LookupDrafter
from spectool.runtime.drafters.translated import TranslatedDrafter
from spectool.tests.measure.emulate.emulating import OTHER, TARGET, figures, run
from spectool.tests.runtime.models import COMMON, tiny_model
from spectool.tokenization import open_tokenizer

pytestmark = pytest.mark.system
STRATEGIES = ["none", "naive", "context", "intersection", "anchored"]
STEPS = ["forward only", "+ resync", "+ healing", "+ head absorption"]
COLUMNS = [
    "k",
    "strategy",
    "tokens",
    "tokens_per_pass",
    "acceptance",
    "without_proposal",
    "string_free",
    "us_per_cycle",
]


@pytest.fixture(scope="module")
def neural(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random model with the tokenizer of another family, as mlx-lm loads it."""
    folder = tmp_path_factory.mktemp("neural")
    for file in Path(OTHER).iterdir():
        shutil.copyfile(file, folder / file.name)
    size = open_tokenizer(OTHER).size
    weights = dict(tree_flatten(tiny_model(vocabulary=size).parameters()))
    mx.save_safetensors(str(folder / "model.safetensors"), weights)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": size, **COMMON}))
    return folder


def test_every_strategy_at_two_and_four_draft_tokens(work: Path, aligned: list[object]) -> None:
    facts = figures(*aligned, "--count-on", work / "uk.rest.txt")
    assert list(facts) == ["corpus", "documents", "tokens", "target", "draft", "runs"]
    target = open_tokenizer(TARGET)
    lines = [line for line in (work / "uk.txt").read_text(encoding="utf-8").splitlines() if line.strip()]
    assert facts["documents"] == len(lines)
    assert facts["tokens"] == sum(len(target.encode(line)) for line in lines)
    assert facts["target"] == TARGET
    assert facts["draft"] == f"5-gram model counted on {work / 'uk.rest.txt'}, tokens of {OTHER}"
    rows = facts["runs"]
    assert [(row["k"], row["strategy"]) for row in rows] == [(k, name) for k in (2, 4) for name in STRATEGIES]
    for row in rows:
        assert list(row) == COLUMNS
        assert row["tokens_per_pass"] >= 1
        assert 0 <= row["acceptance"] <= 1
        assert 0 <= row["without_proposal"] < 1
        assert row["us_per_cycle"] > 0
        assert row["string_free"] == (0 if row["strategy"] in ("naive", "context") else 1)
    by_name = {(row["k"], row["strategy"]): row["tokens_per_pass"] for row in rows}
    for k in (2, 4):
        assert by_name[k, "anchored"] >= by_name[k, "context"]
        assert by_name[k, "anchored"] - 1 > 2 * (by_name[k, "context"] - 1), "the gain over plain decoding"
        assert by_name[k, "anchored"] > by_name[k, "none"]


def test_the_figures_repeat_but_for_the_time(work: Path, aligned: list[object]) -> None:
    arguments = [*aligned, "--count-on", work / "pl.txt", "--strategy", "anchored", "--num-draft-tokens", 3]
    first, second = (figures(*arguments)["runs"] for _ in range(2))
    assert [{**row, "us_per_cycle": 0} for row in first] == [{**row, "us_per_cycle": 0} for row in second]


def test_strategies_steps_and_lengths_are_those_asked_for(work: Path, aligned: list[object]) -> None:
    asked = ["--strategy", "none", "--strategy", "anchored", "--num-draft-tokens", 3, "--num-draft-tokens", 3]
    rows = figures(*aligned, "--count-on", work / "uk.rest.txt", *asked, "--steps")["runs"]
    assert [(row["k"], row["strategy"]) for row in rows] == [(3, name) for name in ("none", "anchored", *STEPS)]
    anchored, last = rows[1], rows[-1]
    assert {**anchored, "strategy": 0, "us_per_cycle": 0} == {**last, "strategy": 0, "us_per_cycle": 0}
    assert rows[2]["tokens_per_pass"] <= last["tokens_per_pass"]


def test_the_order_of_the_ngrams(work: Path, aligned: list[object]) -> None:
    asked = [*aligned, "--count-on", work / "uk.rest.txt", "--strategy", "anchored", "--num-draft-tokens", 4]
    one, five = (figures(*asked, "--order", order) for order in (1, 5))
    assert one["draft"].startswith("1-gram model")
    assert one["runs"][0]["tokens_per_pass"] < five["runs"][0]["tokens_per_pass"]
    assert figures(*asked)["runs"][0]["tokens_per_pass"] == five["runs"][0]["tokens_per_pass"]


def test_a_table_for_people(work: Path, aligned: list[object]) -> None:
    arguments = [*aligned, "--count-on", work / "pl.txt", "--strategy", "context", "--num-draft-tokens", 2]
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines[:5]] == ["corpus", "documents", "tokens", "target", "draft"]
    assert re.fullmatch(
        r"k +strategy +tokens +tokens per pass +acceptance +without proposal +string free +us per cycle", lines[6]
    )
    assert re.fullmatch(r"2 +context +\d+( +[01]\.\d{3}){4} +\d+\.\d", lines[8])
    assert result.stderr.splitlines() == [
        f"{OTHER} keeps ordinary text as it is, with these exceptions: normalizes to NFC",
        f"counting 5-grams of {OTHER} on {work / 'pl.txt'}",
    ]


def test_a_neural_draft_of_another_family(work: Path, neural: Path) -> None:
    arguments = ["--draft", neural, "--alignment", work / "x.align", "--corpus", work / "pl.few.txt"]
    facts = figures(*arguments, "--strategy", "anchored", "--strategy", "naive", "--num-draft-tokens", 2)
    assert facts["draft"] == str(neural)
    for row in facts["runs"]:
        assert 1 <= row["tokens_per_pass"] < 1.5, "random weights guess nothing"
        assert row["without_proposal"] < 1


def test_only_so_many_tokens_are_replayed(work: Path, aligned: list[object]) -> None:
    target = open_tokenizer(TARGET)
    lines = [target.encode(line) for line in (work / "uk.txt").read_text(encoding="utf-8").splitlines() if line]
    limit = len(lines[0]) + 3
    drafted = [*aligned, "--count-on", work / "pl.txt", "--strategy", "none", "--num-draft-tokens", 2]
    for arguments in (drafted, ["--corpus", work / "uk.txt", "--tokenizer", TARGET]):
        facts = figures(*arguments, "--max-tokens", limit)
        assert (facts["tokens"], facts["documents"]) == (limit, 2), "the last document is cut"
        whole = figures(*arguments, "--max-tokens", 10**6)
        assert (whole["tokens"], whole["documents"]) == (sum(map(len, lines)), len(lines))


def test_what_drafts_is_what_generate_drafts_by_default(work: Path) -> None:
    arguments = ["--corpus", work / "uk.txt", "--tokenizer", TARGET]
    default, said = figures(*arguments), ["--history", "--min-draft-prob", "0.2", "--num-draft-tokens"]
    assert default == figures(*arguments, *said, "16") == figures(*arguments, *said, "auto")
    assert default["passes"] != figures(*arguments, "--min-draft-prob", "0", "--num-draft-tokens", "8")["passes"]
    assert list(default["accepted_by_source"]) == ["history"]


def test_prompt_look_up_where_the_dictionary_is_silent(work: Path) -> None:
    """The paper's three columns: the dictionary, prompt n-grams, and both."""
    build = ["build-dict", "--tokenizer", TARGET, "--corpus", "sample:uk", "--method", "dictspec", "-o"]
    built = CliRunner().invoke(main, [*build, str(work / "uk.dict"), "--min-prob", "0.8"])
    assert built.exit_code == 0, built.output
    lines = (work / "uk.txt").read_text(encoding="utf-8").splitlines()
    (work / "twice.txt").write_text("\n".join(f"{line} {line}" for line in lines if line), encoding="utf-8")
    text = ["--corpus", work / "twice.txt", "--tokenizer", TARGET, "--min-draft-prob", 0, "--num-draft-tokens", 4]
    alone = figures(*text, "--dict", work / "uk.dict", "--no-history")
    lookup = figures(*text, "--prompt-lookup")
    both = figures(*text, "--dict", work / "uk.dict", "--prompt-lookup")
    assert list(alone["accepted_by_source"]) == ["dictionary"]
    assert list(lookup["accepted_by_source"]) == ["prompt look-up"]
    assert set(both["accepted_by_source"]) == {"dictionary", "prompt look-up"}
    assert both["coverage"] > max(alone["coverage"], lookup["coverage"])


def test_a_line_now_and_then_where_nobody_looks(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["--corpus", work / "uk.txt", "--tokenizer", TARGET]
    assert run(*arguments).stderr == "", "nothing to say within half a minute"
    monkeypatch.setattr(console, "SECONDS_BETWEEN_LINES", 0.001)
    lines = run(*arguments).stderr.splitlines()
    assert len(lines) > 2
    for line in lines:
        assert re.fullmatch(r"replaying: [\d.k]+ of [\d.k]+ tokens, [\d:]+ so far, [\d:?]+ to go", line), line


@pytest.mark.parametrize("kind", ["dictionary", "draft"])
def test_interrupted_with_figures_of_what_was_replayed(
    kind: str, work: Path, aligned: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in the middle of the text (and of the second strategy)."""
    arguments: list[object] = ["--corpus", work / "uk.txt", "--tokenizer", TARGET]
    drafter: Any = LookupDrafter
    if kind == "draft":
        arguments = [*aligned, "--count-on", work / "pl.txt", "--strategy", "none", "--strategy", "context"]
        arguments += ["--num-draft-tokens", 2]
        drafter = TranslatedDrafter
    whole = figures(*arguments)
    passes = 3 + sum(round(row["tokens"] / row["tokens_per_pass"]) for row in whole.get("runs", [])[:1])
    propose, asked = drafter.propose, 0

    def interrupted(self: Any, limit: int) -> Any:
        nonlocal asked
        asked += 1
        if asked > passes:
            raise KeyboardInterrupt
        return propose(self, limit)

    monkeypatch.setattr(drafter, "propose", interrupted)
    result = run(*arguments, "--json")
    assert result.exit_code == 130
    facts = json.loads(result.stdout)
    assert re.fullmatch(r"after [\d,]+ of [\d,]+ tokens to replay", facts["interrupted"])
    if kind == "draft":
        first, second = facts["runs"]
        assert {**first, "us_per_cycle": 0} == {**whole["runs"][0], "us_per_cycle": 0}
        assert 0 < second["tokens"] < first["tokens"]
    else:
        assert facts["passes"] == 3 <= facts["tokens"] < whole["tokens"]
    asked = passes
    nothing = run(*arguments, "--json")
    assert (nothing.exit_code, nothing.stdout) == (130, ""), "nothing was replayed"
