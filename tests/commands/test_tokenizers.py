"""A stranger's dictionary chooses no tokenizer: the user's own is found by its fingerprint, and nothing is fetched."""

import shutil
import socket
from pathlib import Path

import pytest

from spectool.runtime.demo_models import demo_path
from spectool.tests.artifacts.parts import edit_manifest
from spectool.tests.build.dictionaries import written
from spectool.tests.running import error_of, run
from spectool.tokenization.opening import open_tokenizer

COMMANDS = (("inspect", "--lookup", "w"), ("predict", "--corpus", "sample:pl", "--max-tokens", "50", "--dict"))
GIVE = "Give the dictionary's tokenizer with --tokenizer; the file calls it "


@pytest.fixture
def asked(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What is asked of the network, which is nothing; the cache of the hub and our own are empty."""
    found: list[object] = []

    def refuse(self: object, address: object) -> None:
        found.append(address)
        raise ConnectionError("no network here")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr("huggingface_hub.HfApi.model_info", lambda self, name, **_: refuse(self, name))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return found


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A tokenizer that nobody has named; it is the dictionary's, so that opening it would show."""
    return Path(shutil.copytree(demo_path("target"), tmp_path / "elsewhere"))


@pytest.fixture
def dictionary(tmp_path: Path, elsewhere: Path) -> Path:
    rows = [((5,), 6, 0.5), ((6, 5), 7, 0.5)]
    return written(tmp_path / "x.dict", rows, open_tokenizer(elsewhere).identity).path


def in_hub_cache(tmp_path: Path, owner: str, model: Path) -> None:
    folder = tmp_path / "hub" / f"models--{owner}--model"
    shutil.copytree(model, folder / "snapshots" / ("0" * 40))
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("0" * 40)


def rename(dictionary: Path, name: str) -> None:
    edit_manifest(dictionary, lambda manifest: manifest["tokenizers"]["target"].update(name=name))


@pytest.mark.parametrize("name", ["someone-else/anything", "acme/model", "PATH"])
def test_a_manifest_opens_and_fetches_nothing(
    dictionary: Path, elsewhere: Path, asked: list[object], tmp_path: Path, name: str
) -> None:
    """Not even what is in the cache, unless the fingerprint is the same."""
    name = name.replace("PATH", str(elsewhere))
    rename(dictionary, name)
    in_hub_cache(tmp_path, "acme", demo_path("other"))
    for command in COMMANDS:
        assert error_of(run(*command, dictionary)).endswith(f"{GIVE}{name!r}")
    assert run("inspect", dictionary).exit_code == 0
    assert asked == []


@pytest.mark.parametrize("own", ["by its id", "by its path"])
def test_the_users_own_is_found_by_its_fingerprint(
    dictionary: Path, elsewhere: Path, asked: list[object], tmp_path: Path, own: str
) -> None:
    rename(dictionary, "someone-else/anything")
    in_hub_cache(tmp_path, "acme", demo_path("other"))
    in_hub_cache(tmp_path, "zorro", elsewhere)
    assert GIVE in error_of(run(*COMMANDS[0], dictionary)), "it was not named"
    assert run("inspect", "zorro/model" if own == "by its id" else elsewhere).exit_code == 0
    for command in COMMANDS:
        assert (result := run(*command, dictionary)).exit_code == 0, result.output
    assert asked == []
    if own == "by its path":
        shutil.rmtree(elsewhere)
        assert all(GIVE in error_of(run(*command, dictionary)) for command in COMMANDS)
        assert run(*COMMANDS[1], dictionary, "--tokenizer", demo_path("target")).exit_code == 0
