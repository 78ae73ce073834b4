"""Arguments are checked before anything dear is read: an error names them, although the models are damaged as well."""

from pathlib import Path

import pytest

from spectool.tests.running import run


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            "build-dict --tokenizer BAD --corpus sample:pl -o taken",
            "taken: exists and is not a whole artifact of spectool",
        ),
        ("build-dict --tokenizer BAD --corpus gone.txt", "gone.txt"),
        ("build-dict --tokenizer BAD --corpus sample:pl --max-bytes much", "'much' is not a size"),
        ("align --draft BAD --target nope -o new", "nope: no such file or directory"),
        ("align --draft BAD --target BAD -o taken", "taken: exists and is not a whole artifact of spectool"),
        ("align --draft BAD --target BAD --corpus gone.txt", "gone.txt"),
        ("prune-draft --draft BAD --corpus sample:pl -o taken", "taken: exists already"),
        ("prune-draft --draft BAD --corpus gone.txt -o new", "gone.txt"),
        ("emulate --tokenizer BAD --corpus gone.txt", "gone.txt"),
        ("emulate --tokenizer BAD --corpus sample:pl --dict gone", "gone: no such file"),
        ("generate --model BAD -p a --dict gone", "gone: no such file"),
        ("generate --model BAD -p a --draft-model nope", "nope: no such directory"),
        ("generate --model BAD -p a --num-draft-tokens many", "expected auto or a number"),
        ("generate --model BAD -p a --draft-model BAD --alignment gone", "gone: no such file"),
        ("generate --model BAD -p a --json-schema gone", "'gone' does not exist"),
        ("chat --model BAD --dict gone", "gone: no such file"),
        ("chat --model BAD --draft-model nope", "nope: no such directory"),
        ("serve --model BAD --dict gone", "gone: no such file"),
        ("serve --model BAD --draft-model nope", "nope: no such directory"),
        ("doctor --model BAD --seconds x", "'x' is not a valid"),
        ("setup BAD --language pl --corpus gone.txt", "gone.txt"),
    ],
)
def test_what_is_cheap_to_check_is_checked_first(
    command: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("taken").write_text("something of the user's")
    Path("BAD").mkdir()
    for name in ("tokenizer.json", "config.json", "model.safetensors"):
        Path("BAD", name).write_text("{")
    result = run(*command.split())
    assert result.exit_code in (1, 2) and message in result.stderr, result.output
    assert "BAD" not in result.stderr.splitlines()[-1]
    assert sorted(path.name for path in Path().iterdir()) == ["BAD", "taken"]
