"""Names that may be hub ids: one request, and an error at once where there is nothing."""

import json
import os
import shutil
import socket
import time
from pathlib import Path

import pytest
from huggingface_hub import snapshot_download
from huggingface_hub.errors import LocalEntryNotFoundError

from spectool import RuntimeUnsupported, TokenizerError
from spectool.artifacts.artifact import read_manifest
from spectool.commands.prune_draft import model_directory
from spectool.runtime.demo_models import demo_path
from spectool.runtime.loading import load_model
from spectool.tests.running import process
from spectool.tokenization.hub_names import cached_snapshot
from spectool.tokenization.opening import open_tokenizer


@pytest.fixture
def unreachable(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A hub that nobody answers for; the names that were asked for."""
    import huggingface_hub

    asked: list[str] = []

    def refuse(self: object, name: str, **options: object) -> None:
        asked.append(name)
        raise ConnectionError("Name or service not known")

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", refuse)
    return asked


def test_a_mistyped_path_is_asked_for_once(unreachable: list[str]) -> None:
    began = time.monotonic()
    with pytest.raises(TokenizerError, match=r"modles/gemma: no such directory; as a hub id, not found \(Name or"):
        open_tokenizer("modles/gemma")
    with pytest.raises(RuntimeUnsupported, match="modles/gemma: no such directory; as a hub id, not found"):
        load_model("modles/gemma")
    assert unreachable == ["modles/gemma"] * 2
    assert time.monotonic() - began < 20  # imports, and no retries


def test_what_is_no_hub_id_asks_nobody(unreachable: list[str]) -> None:
    for name in ("./modles/gemma", "models/pl/gemma", "gemma"):
        with pytest.raises(TokenizerError, match="not a hub id"):
            open_tokenizer(name)
    assert unreachable == []


# A model of the hub that is in the local cache is opened from there, at once, even if the hub cannot be reached.


REVISION = "0" * 40


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache as huggingface_hub lays it out, with the demo model as ``acme/demo``."""
    model = tmp_path / "hub" / "models--acme--demo"
    shutil.copytree(demo_path("target"), model / "snapshots" / REVISION)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(REVISION)
    (model / "trees").mkdir()  # what the hub has, also what is never fetched
    files = [*(path.name for path in demo_path("target").iterdir()), "README.md", ".gitattributes"]
    tree = {"format_version": 1, "files": {name: {"size": 1, "blob_id": "0" * 40} for name in files}}
    (model / "trees" / f"{REVISION}.json").write_text(json.dumps(tree))
    return tmp_path


def test_a_model_is_in_the_cache_without_files_that_nobody_fetches(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache / "hub"))
    assert cached_snapshot("acme/demo", "*.safetensors") == cache / "hub/models--acme--demo/snapshots" / REVISION
    assert cached_snapshot("acme/demo", "*.gguf") is None
    with pytest.raises(LocalEntryNotFoundError):  # what it would be without asking for no files
        snapshot_download("acme/demo", local_files_only=True)


def test_the_first_time_is_like_the_next(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tokenizer that has just been fetched has the ends of text that its configuration declares."""
    folder = cache / "hub/models--acme--demo/snapshots" / REVISION

    def download(name: str, local_files_only: bool = False, **options: object) -> str:
        if local_files_only:
            raise OSError("not here yet")
        assert options["ignore_patterns"] == "*.safetensors"
        return str(folder)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    monkeypatch.setattr("huggingface_hub.HfApi.model_info", lambda *arguments, **options: None)
    (folder / "generation_config.json").write_text('{"eos_token_id": 7}')
    first = open_tokenizer("acme/demo")
    monkeypatch.undo()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache / "hub"))
    assert first.roles == open_tokenizer("acme/demo").roles and 7 in first.roles.eos


def test_terms_that_were_not_accepted_are_named(unreachable: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise OSError("Cannot access gated repo")

    monkeypatch.setattr("huggingface_hub.HfApi.model_info", lambda *arguments, **options: None)
    monkeypatch.setattr("huggingface_hub.snapshot_download", refuse)
    advice = r"acme/draft: cannot be downloaded \(Cannot access gated repo\). .*huggingface.co/acme/draft, and log in"
    with pytest.raises(TokenizerError, match=advice):
        model_directory("acme/draft")
    with pytest.raises(RuntimeUnsupported, match=advice):
        load_model("acme/draft")


@pytest.mark.nightly
@pytest.mark.parametrize("offline", [True, False])
def test_a_cached_model_is_opened_without_the_hub(cache: Path, offline: bool) -> None:
    with socket.socket() as silent:  # takes connections and never answers
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        silent.setblocking(False)
        environment = {**os.environ, "HF_HUB_CACHE": str(cache / "hub"), "XDG_CACHE_HOME": str(cache / "own")}
        environment |= {"HF_ENDPOINT": f"http://127.0.0.1:{silent.getsockname()[1]}"}
        environment |= {"HF_HUB_OFFLINE": "1"} if offline else {}
        for command in (
            ("build-dict", "--tokenizer", "acme/demo", "--corpus", "sample:pl", "-o", cache / "x.dict"),
            ("generate", "--model", "acme/demo", "-p", "Most w", "-m", "4", "--draft-model", "acme/demo"),
        ):
            done = process(*command, env=environment, timeout=60)
            assert done.returncode == 0, done.stderr
            with pytest.raises(BlockingIOError):  # nobody has asked
                silent.accept()
            assert "snapshots" not in done.stderr + done.stdout, "it goes by the name that was typed"
    assert read_manifest(cache / "x.dict").tokenizers["target"]["name"] == "acme/demo"
