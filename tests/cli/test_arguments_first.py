"""Arguments are checked before anything dear is read: an error names them, although the models are damaged as well."""

from pathlib import Path

import pytest

from spectool.tests.running import run


def damaged(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Go to a folder with a damaged model, BAD, and a file of the user's, taken."""
    monkeypatch.chdir(folder)
    Path("taken").write_text("something of the user's")
    Path("BAD").mkdir()
    for name in ("tokenizer.json", "config.json", "model.safetensors"):
        Path("BAD", name).write_text("{")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            "build-dict --tokenizer BAD --corpus sample:pl -o taken",
            "taken: exists and is not a whole artifact of spectool",
        ),
        ("build-dict --tokenizer BAD --corpus gone.txt", "gone.txt"),
        ("build-dict --tokenizer BAD --corpus sample:pl --max-bytes much", "'much' is not a size"),
        ("align --draft BAD --target nope --corpus sample:pl -o new", "nope: no such file or directory"),
        (
            "align --draft BAD --target BAD --corpus sample:pl -o taken",
            "taken: exists and is not a whole artifact of spectool",
        ),
        ("align --draft BAD --target BAD --corpus gone.txt", "gone.txt"),
        ("prune-draft --draft BAD --corpus sample:pl -o taken", "taken: exists already"),
        ("prune-draft --draft BAD --corpus gone.txt -o new", "gone.txt"),
        ("predict --tokenizer BAD --corpus gone.txt", "gone.txt"),
        ("predict --tokenizer BAD --corpus sample:pl --dict gone", "gone: no such file"),
        ("generate --model BAD -p a --dict gone", "gone: no such file"),
        ("generate --model BAD -p a --draft-model nope", "nope: no such directory"),
        ("generate --model BAD -p a --draft-model BAD --alignment gone", "gone: no such file"),
        ("generate --model BAD -p a --json-schema gone", "'gone' does not exist"),
        ("serve --model BAD --adapter-path nope", "nope: expected a LoRA adapter"),
        ("serve --model BAD --dict gone", "gone: no such file"),
        ("serve --model BAD --draft-model nope", "nope: no such directory"),
        ("doctor --model BAD --draft-model nope", "nope: no such directory"),
        ("inspect gone", "gone: no such file or directory"),
        ("setup BAD --language pl --corpus gone.txt", "gone.txt"),
        ("setup BAD --language pl --corpus sample:pl --draft-model nope", "nope: no such directory"),
    ],
)
def test_what_is_cheap_to_check_is_checked_first(
    command: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged(tmp_path, monkeypatch)
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: f"{tmp_path}/cache/{name}")
    result = run(*command.split())
    assert result.exit_code in (1, 2) and message in result.stderr, result.output
    assert "BAD" not in result.stderr.splitlines()[-1]
    assert sorted(path.name for path in Path().iterdir()) == ["BAD", "taken"]


@pytest.mark.parametrize(
    "command",
    [
        "build-dict --tokenizer BAD --corpus sample:pl",
        "align --draft BAD --target BAD --corpus sample:pl",
        "doctor --model BAD",
    ],
)
def test_a_cache_that_cannot_be_written_is_found_first(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged(tmp_path, monkeypatch)
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: f"{tmp_path}/taken/{name}")
    result = run(*command.split())
    assert result.exit_code == 1 and "BAD" not in result.stderr
    assert f"{tmp_path}/taken/spectool/" in result.stderr
    assert "cannot be written" in result.stderr or "cannot be saved" in result.stderr
