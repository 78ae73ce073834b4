"""``spectool advise`` from end to end: bundled models, real tokenizers alone, and what it refuses."""

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from spectool.cli import main
from spectool.corpora import read_sample
from spectool.runtime.demo_models import demo_path
from spectool.tests import running as commands
from spectool.tests.running import error_of
from spectool.tests.test_imports import command, loaded_by

pytestmark = pytest.mark.system

TARGET, DRAFT, OTHER = (str(demo_path(part)) for part in ("target", "draft", "other"))
ORIGINS = {"measured", "stated", "assumed", "computed", "unknown"}
FAST = ("--bandwidth", "200", "--num-draft-tokens", "2")


run = partial(commands.run, "advise")
advised = partial(commands.figures, "advise")


def origins(value: Any) -> list[str]:
    """The origins of all figures in the answer."""
    if isinstance(value, list):
        return [found for each in value for found in origins(each)]
    if isinstance(value, dict):
        mine = [value["origin"]] if set(value) == {"value", "origin"} else []
        return mine + [found for each in value.values() for found in origins(each)]
    return []


@pytest.fixture(scope="module")
def dictionary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("advise") / "pl.dict"
    options = ["--tokenizer", TARGET, "--corpus", "sample:pl", "--entries", "2000", "-o", str(path)]
    result = CliRunner().invoke(main, ["build-dict", *options])
    assert result.exit_code == 0, result.output
    return path


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A little text."""
    path = tmp_path_factory.mktemp("advise") / "short.txt"
    path.write_text("\n".join(document.replace("\n", " ") for document in read_sample("pl")[:8]), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def aligned(tmp_path_factory: pytest.TempPathFactory, short: Path) -> Path:
    path = tmp_path_factory.mktemp("advise") / "pair.align"
    options = ["--draft", OTHER, "--target", TARGET, "--corpus", str(short), "-o", str(path)]
    result = CliRunner().invoke(main, ["align", *options])
    assert result.exit_code == 0, result.output
    return path


def test_the_papers_machine_at_k_2_and_4() -> None:
    """Paper, section 6.2: 11.32 and 0.8 GB on an M2 Pro, beta 0.19; any tokenizers do where all is stated."""
    sizes = ("--target-bytes", 11_320_000_000, "--draft-bytes", 800_000_000, "--bandwidth", 200, "--memory", 16)
    asked = ("--target", TARGET, "--draft", DRAFT, *sizes, "--beta", 0.19, "--acceptance", 0.45)
    at = {k: advised(*asked, "--num-draft-tokens", k) for k in (2, 4)}
    assert at[2]["recommendation"]["verdict"] == "break-even"
    assert at[4]["recommendation"]["verdict"] == "do not draft"
    draft = at[2]["candidates"][0]
    assert draft["model"]["r"]["value"] == pytest.approx(0.071, abs=0.001)
    assert draft["expectations"][0]["speedup"]["value"] == pytest.approx(0.963, abs=0.002)
    assert draft["expectations"][0]["published"] == pytest.approx(0.451, abs=0.001)
    assert at[2]["plain_tokens_per_second"] == {
        "value": pytest.approx(200 / 11.32),
        "origin": "computed: at most: bandwidth / bytes of the target",
    }
    together = advised(*asked, "--num-draft-tokens", 2, "--num-draft-tokens", 4)
    assert together["recommendation"]["verdict"] == "break-even"


def test_tokenizers_alone_tell_what_is_needed() -> None:
    files = (Path(TARGET, "tokenizer.json"), Path(OTHER, "tokenizer.json"))
    sizes = ("--target-bytes", 1_000_000_000, "--draft-bytes", 50_000_000)
    found = advised("--target", files[0], "--draft", files[1], *sizes, *FAST)
    draft, history = found["candidates"]
    assert found["recommendation"]["verdict"] == "unknown"
    assert found["recommendation"]["todo"] == draft["todo"]
    assert [line.split()[1] for line in draft["todo"]] == ["align", "bench"]
    assert "--model TARGET_MODEL --drafter model=DRAFT_MODEL,align=other.align" in draft["todo"][1]
    (expectation,) = draft["expectations"]
    assert expectation["acceptance"]["value"] is None
    assert expectation["needed"]["value"] == pytest.approx((3 * 0.05 + 0.19 * 4) / 2, rel=0.01)
    assert draft["model"]["tokenizers"]["ceiling"]["anchored"]["2"] > 2
    assert draft["model"]["tokenizers"]["string_free"]["value"] is None
    assert history["kind"] == "history"
    assert {origin.partition(":")[0] for origin in origins(found)} <= ORIGINS
    assert len(origins(found)) > 20


def test_tokenizers_alone_load_no_model(tmp_path: Path) -> None:
    files = [str(Path(part, "tokenizer.json")) for part in (TARGET, OTHER)]
    loaded = loaded_by(
        command("advise", "--target", files[0], "--draft", files[1], "--num-draft-tokens", "2"), tmp_path
    )
    assert not loaded & {"mlx", "mlx_lm", "transformers"}


def test_directories_give_sizes_and_load_no_model(tmp_path: Path) -> None:
    code = command("advise", "--target", TARGET, "--draft", DRAFT, "--num-draft-tokens", "2")
    assert not loaded_by(code, tmp_path) & {"mlx", "mlx_lm"}
    found = advised("--target", TARGET, "--draft", DRAFT, *FAST)
    weights = Path(DRAFT, "model.safetensors").stat().st_size
    assert found["candidates"][0]["model"]["weights"]["value"] == weights
    assert found["candidates"][0]["model"]["tokenizers"]["same"] is True


def test_the_page_says_where_each_figure_comes_from() -> None:
    result = run("--target", TARGET, "--draft", DRAFT, "--acceptance", 0.9, "--beta", 0.01, *FAST)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    (row,) = [line for line in lines if line.startswith("draft ") and "90% stated" in line]
    assert "2.80 computed" in row
    assert "200 GB/s (stated)" in result.stdout
    assert lines[-2].startswith("Draft with draft, k = 2: ")
    assert lines[-1].startswith("  spectool bench --model ")


def test_models_that_are_asked(aligned: Path, dictionary: Path, short: Path) -> None:
    options = ("--draft", DRAFT, "--draft", OTHER, "--alignment", aligned, "--dict", dictionary, "--corpus", short)
    found = advised("--target", TARGET, *options, "--num-draft-tokens", 2, "--measure")
    draft, other, lookup, history = found["candidates"]
    assert found["verification"]["beta"]["origin"].startswith("measured")
    assert found["plain_tokens_per_second"]["origin"].startswith("measured")
    for candidate in (draft, lookup, history):
        (expectation,) = candidate["expectations"]
        assert expectation["acceptance"]["origin"] == "measured: on the target's own text"
        assert expectation["speedup"]["value"] > 0
    assert 0 < draft["model"]["divergence"]["acceptance"] < 1
    assert any("--verify rejection" in note for note in draft["notes"])
    assert other["notes"] == [f"not loaded: {OTHER} is no directory with config.json and *.safetensors"]
    # a tokenizer alone stays unknown, and its string-free rate is the alignment's
    assert other["expectations"][0]["acceptance"]["value"] is None
    assert other["model"]["tokenizers"]["string_free"]["value"] > 0.5
    assert f"align={aligned}" in other["todo"][0]


def test_what_is_not_measured_for_lack_of_an_alignment_is_not_judged(tmp_path: Path, short: Path) -> None:
    """A draft as heavy as the target, that no figure of bytes lets gain."""
    foreign = tmp_path / "foreign"
    shutil.copytree(DRAFT, foreign)
    shutil.copy(Path(OTHER, "tokenizer.json"), foreign)
    options = ("--target", TARGET, "--draft", foreign, "--draft-bytes", 10**9, "--corpus", short, "--memory", 9)
    found = advised(*options, "--num-draft-tokens", 2, "--measure")
    candidate = found["candidates"][0]
    align = f"spectool align --draft {foreign} --target {TARGET} --corpus {short} -o foreign.align"
    (note,) = candidate["notes"]
    assert note == f"not loaded: it takes an alignment. Make one, and name it with --alignment: {align}"
    assert candidate["expectations"][0]["best"]["value"] < 0.1
    assert found["recommendation"]["verdict"] == "unknown"
    assert "foreign was not measured" in found["recommendation"]["sentence"]
    assert found["recommendation"]["todo"][0] == align
    assert advised(*options, *FAST, "--beta", 0)["recommendation"]["verdict"] == "do not draft"


def test_a_dictionary_is_replayed_on_the_text(dictionary: Path) -> None:
    found = advised("--target", TARGET, "--dict", dictionary, "--beta", 0, *FAST)
    lookup, history = found["candidates"]
    assert (
        lookup["expectations"][0]["tokens_per_pass"]["value"] > history["expectations"][0]["tokens_per_pass"]["value"]
    )
    assert found["recommendation"]["drafter"] == str(dictionary)
    assert f"dict={dictionary},history" in found["recommendation"]["todo"][0]


def test_real_tokenizers_alone(shared: Path) -> None:
    folder = shared / "tokenizers"
    target, drafts = folder / "bielik-11b-v2.5", ("qwen2.5", "bielik-4.5b-v3-apt4")
    asked = [
        part for name in drafts for part in ("--draft", folder / name / "tokenizer.json", "--draft-bytes", 8 * 10**8)
    ]
    sizes = ("--target-bytes", 11_320_000_000, "--memory", 16)
    found = advised("--target", target / "tokenizer.json", *asked, *sizes, *FAST)
    assert found["fertility"]["value"] > 2.5
    qwen, apt4, _ = found["candidates"]
    assert (qwen["name"], apt4["name"]) == drafts
    covered = [each["model"]["tokenizers"]["by_occurrence"]["value"] for each in (qwen, apt4)]
    assert covered[0] > 0.8 > covered[1] > 0.4
    ceilings = [each["model"]["tokenizers"]["ceiling"] for each in (qwen, apt4)]
    assert ceilings[1]["anchored"]["2"] > ceilings[0]["anchored"]["2"] > 3.0  # longer tokens reach further
    assert all(ceiling["naive"]["2"] < ceiling["context"]["2"] + 1e-9 for ceiling in ceilings)
    assert found["recommendation"]["verdict"] == "unknown"


def test_no_draft_of_the_size_of_the_target() -> None:
    sizes = ("--target-bytes", 10**9, "--draft-bytes", 10**9, "--beta", 0)
    found = advised("--target", TARGET, "--draft", DRAFT, *sizes, *FAST)
    assert found["recommendation"]["verdict"] == "do not draft"


def test_what_does_not_fit() -> None:
    sizes = ("--target-bytes", 10**10, "--draft-bytes", 10**9, "--memory", 10)
    found = advised("--target", TARGET, "--draft", DRAFT, *sizes, *FAST)
    assert found["candidates"][0]["fits"] is False
    assert "fit into memory" in found["recommendation"]["sentence"]


def test_the_caches_count(tmp_path: Path) -> None:
    config = json.loads(Path(DRAFT, "config.json").read_text(encoding="utf-8"))
    heads = config.get("num_key_value_heads") or config["num_attention_heads"]
    size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    found = advised("--target", TARGET, "--draft", DRAFT, "--context", 1000, *FAST)
    cache = found["candidates"][0]["model"]["cache"]["value"]
    assert cache == 2 * config["num_hidden_layers"] * heads * size * 2 * 1000


def test_the_target_is_no_draft() -> None:
    assert "got the target itself" in error_of(run("--target", TARGET, "--draft", TARGET))
    file = Path(TARGET, "tokenizer.json")
    sizes = ("--target-bytes", 10**10, "--draft-bytes", 10**8)
    assert advised("--target", file, "--draft", file, *sizes, *FAST)["candidates"][0]["model"]["tokenizers"]["same"]


def test_missing_files(tmp_path: Path) -> None:
    missing = tmp_path / "no" / "tokenizer.json"
    assert str(missing) in error_of(run("--target", missing))
    assert str(missing) in error_of(run("--target", TARGET, "--draft", missing))
    assert "no such artifact" in error_of(run("--target", TARGET, "--dict", tmp_path / "no.dict"))
    assert "no such artifact" in error_of(
        run("--target", TARGET, "--draft", OTHER, "--alignment", tmp_path / "no.align")
    )
    assert "no such artifact" in error_of(run("--target", TARGET, "--run", tmp_path / "no.bench"))
    assert "sample:xx" in error_of(run("--target", TARGET, "--language", "xx"))


def test_damaged_models(tmp_path: Path) -> None:
    shutil.copytree(DRAFT, tmp_path / "draft")
    (tmp_path / "draft" / "config.json").write_text("{")
    assert "config.json" in error_of(run("--target", TARGET, "--draft", tmp_path / "draft"))


def test_an_alignment_of_others(aligned: Path) -> None:
    line = error_of(run("--target", TARGET, "--draft", DRAFT, "--alignment", aligned))
    assert f"{aligned}: aligns" in line and "expected one of" in line


def test_measuring_takes_a_model() -> None:
    line = error_of(run("--target", Path(TARGET, "tokenizer.json"), "--measure"))
    assert "of a model in MLX format" in line
    line = error_of(run("--target", TARGET, "--measure", "--memory", 0.0001))
    assert "to load" in line


@pytest.mark.parametrize(
    "options",
    [
        ("--bandwidth", -1),
        ("--bandwidth", 0),
        ("--bandwidth", "nan"),
        ("--memory", -2),
        ("--acceptance", 1.5),
        ("--acceptance", 0.5, "--acceptance", 0.5),
        ("--draft-bytes", 0),
        ("--draft-bytes", 5, "--draft-bytes", 5),
        ("--num-draft-tokens", 0),
        ("--beta", -0.1),
        ("--beta", 0.1, "--measure"),
        ("--corpus", "sample:pl", "--language", "pl"),
        ("--temp", 0.5),
    ],
)
def test_usage(options: tuple[object, ...]) -> None:
    result = run("--target", TARGET, "--draft", DRAFT, *options)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
