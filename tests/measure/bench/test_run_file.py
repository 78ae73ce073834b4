"""The file of a run: what was written comes back, and every other line is refused in a sentence that names it."""

import json
import random
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from spectool import ArtifactError
from spectool.lab.paper_tables.trials import trial_frames
from spectool.measure.bench import run_file
from spectool.measure.bench.page import page
from spectool.measure.bench.results import verdicts
from spectool.measure.bench.run_file import PLAIN, RUN_FILE, append, find_run, read_run, writing

from .line_changes import CHANGES
from .runs import QWEN, Truth, block, drawn_blocks, generation, header_of, write_run

BLOCKS = drawn_blocks([QWEN], ["pl"], ["list"], prompts=3)
DEEP = "[" * 100_000 + "]" * 100_000
Line = dict[str, Any]
Change = Callable[[Line], object]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "x.bench", BLOCKS)


def rewrite(run: Path, number: int, change: Change) -> None:
    """Change a line; the header is line 0."""
    lines = [json.loads(line) for line in (run / RUN_FILE).read_bytes().splitlines()]
    change(lines[number])
    (run / RUN_FILE).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def refusal(run: Path) -> str:
    with pytest.raises(ArtifactError) as caught:
        find_run(run)
    message = str(caught.value)
    assert message.startswith(f"{run / RUN_FILE}, line ") and message.isprintable() and len(message) < 1000
    return message


def test_what_was_written_comes_back(run: Path) -> None:
    found = read_run(run)
    assert found.blocks == BLOCKS and found.header == header_of(BLOCKS)


def test_an_unfinished_line_is_as_if_it_were_not_there(run: Path) -> None:
    file = run / RUN_FILE
    whole = file.read_bytes()
    for cut in (1, 40, len(whole.splitlines()[-1])):
        file.write_bytes(whole[:-cut])
        assert read_run(run).blocks == BLOCKS[:2]
    with writing(run) as found:
        assert found is not None and len(found.blocks) == 2
        append(run, BLOCKS[2])
    assert file.read_bytes() == whole


@pytest.mark.parametrize("left", [b"", b'{"format":"spectool-be', None])
def test_a_run_without_a_block_begins_anew(run: Path, left: bytes | None) -> None:
    file = run / RUN_FILE
    file.write_bytes(file.read_bytes().splitlines(keepends=True)[0] if left is None else left)
    with writing(run) as found:
        assert found is None
        append(run, BLOCKS[0], header_of(BLOCKS))
    assert read_run(run).blocks == BLOCKS[:1]


def test_nothing_is_left_where_nothing_was_measured(tmp_path: Path) -> None:
    with suppress(ValueError), writing(tmp_path / "new" / "x.bench"):
        raise ValueError
    assert not (tmp_path / "new" / "x.bench").exists()
    with pytest.raises(ArtifactError, match=r"new: expected a run of `spectool bench` \(a folder with run\.jsonl\)"):
        read_run(tmp_path / "new")


def first(line: Line) -> Line:
    """A drafted generation."""
    return next(one for one in line["generations"] if one["drafter"] != PLAIN)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda line: first(line).update(output=[]), "output: expected at least 1, got none"),
        (lambda line: first(line).update(output=[2**31]), "expected less than 2147483648, got 2147483648"),
        (lambda line: first(line).update(output=[True]), "expected a valid integer, got True"),
        (
            lambda line: first(line).update(decoding_seconds=0.0),
            "decoding_seconds: expected greater than or equal to 0.000000001",
        ),
        (lambda line: first(line).update(decoding_seconds=float("inf")), "decoding_seconds: expected a finite number"),
        (lambda line: first(line).update(decoding_seconds=float("nan")), "decoding_seconds: expected a finite number"),
        (lambda line: first(line).update(decoding_seconds="1"), "decoding_seconds: expected a valid number, got 1"),
        (lambda line: first(line).update(draft_seconds=-1.0), "draft_seconds: expected greater than or equal to 0"),
        (
            lambda line: first(line)["proposed"].__setitem__(0, 65),
            "proposed.0: expected less than or equal to 64, got 65",
        ),
        (lambda line: first(line)["proposed"].__setitem__(0, -1), "proposed.0: expected greater than or equal to 0"),
        (lambda line: first(line)["accepted"].__setitem__(0, 64), "accepted draft tokens of each cycle to be among"),
        (lambda line: first(line)["accepted"].pop(), "accepted draft tokens of each cycle to be among"),
        (lambda line: first(line).update(gap=0.1), "expected a gap exactly where"),
        (lambda line: first(line)["output"].pop(), "expected a gap exactly where"),
        (lambda line: first(line).update(num_draft_tokens=3), "expected a generation in every configuration"),
        (lambda line: first(line).update(drafter="\x1b[2J"), "expected a generation in every configuration"),
        (lambda line: line["generations"].append(first(line)), "expected a generation in every configuration"),
        (lambda line: line.update(generations=[]), "expected a generation by plain decoding, got none"),
        (lambda line: line.update(prompt="pl-list-0"), "prompt 'pl-list-0': expected one block, got two"),
        (lambda line: line.update(prompt="x" * 4097), "prompt: expected at most 4096 characters"),
        (lambda line: line.update(temperature=-0.5), "temperature: expected greater than or equal to 0"),
        (lambda line: line.update({"\n": 1}), "'\\n': expected no such key"),
        (lambda line: line.pop("kind"), "kind: expected a value, got none"),
        (lambda line: line.clear(), "prompt: expected a value, got none"),
    ],
)
def test_blocks_that_no_run_has(run: Path, change: Change, message: str) -> None:
    rewrite(run, 2, change)
    said = refusal(run)
    assert message in said and "line 3: " in said and "Remove this line; `spectool bench` measures it again" in said


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda line: line.update(version=2), "version: expected 1, got 2"),
        (lambda line: line.update(format="x"), "format: expected 'spectool-bench', got x"),
        (lambda line: line["options"].update(drafters={}), "options.drafters: expected at least 1, got none"),
        (lambda line: line["options"].update(temperatures=[]), "options.temperatures: expected at least 1, got none"),
        (lambda line: line["options"].update(num_draft_tokens=[0]), "num_draft_tokens.0: expected greater than"),
        (lambda line: line["options"]["drafters"].update(plain={}), "expected other names than plain"),
        (lambda line: line["weight_bytes"].update(x=-1), "weight_bytes.x: expected greater than or equal to 0"),
        (lambda line: line["machine"].update(cores=None), "machine.cores"),
    ],
)
def test_headers_that_no_run_has(run: Path, change: Change, message: str) -> None:
    rewrite(run, 0, change)
    said = refusal(run)
    assert message in said and "line 1: " in said and "Remove the run" in said


@pytest.mark.parametrize(
    "line",
    [
        *(b"", b"{", b"7", b"null", b"{}{}", b'{"a": "\xff"}', b"\xef\xbb\xbf{}", b'{"a": "\x01"}', b"\x00" * 99),
        *(DEEP.encode(), b'{"prompt":' * 50_000, b'{"prompt": ' + b"1" * 5000 + b"}", "{}".encode("utf-16")),
        *(b'{"prompt": "\\ud800"}', b'{"prompt": 1, "prompt": 2}', b'{"generations": [' + b"1," * 9999 + b"1]}"),
    ],
)
def test_lines_that_are_no_blocks(run: Path, line: bytes) -> None:
    with (run / RUN_FILE).open("ab") as stream:
        stream.write(line + b"\n")
    assert "line 5: " in refusal(run)


def test_long_lines_are_not_parsed(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_file, "_LONGEST_LINE", 1 << 20)
    file = run / RUN_FILE
    whole = file.read_bytes()
    last = whole.splitlines()[-1]
    file.write_bytes(whole[:-1] + b" " * ((1 << 20) - len(last) - 1) + b"\n")
    assert len(read_run(run).blocks) == 3
    file.write_bytes(whole[:-1] + b" " * ((1 << 20) - len(last)) + b"\n")
    assert "line 4: expected at most 1,048,576 bytes, got more" in refusal(run)
    with file.open("wb") as stream:
        stream.truncate(1 << 28)
    tracemalloc.start()
    try:
        assert "line 1: expected at most 1,048,576 bytes" in refusal(run)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


EXTREME = {
    "the longest and the shortest time": [generation(PLAIN, 0, 1e9), generation("qwen", 2, 1e-9)],
    "no time at all for all": [generation(PLAIN, 0, 1e-9), generation("qwen", 2, 1e9, draft_seconds=1e9)],
    "drafts always right": [
        generation(PLAIN, 0, 1.0),
        generation("qwen", 2, 1.0, proposed=(64,) * 64, accepted=(64,) * 64),
    ],
    "cycles of nothing": [generation(PLAIN, 0, 1.0), generation("qwen", 2, 1.0, proposed=(), accepted=())],
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", EXTREME)
def test_figures_that_a_run_might_have(tmp_path: Path, name: str) -> None:
    blocks = [block(f"\x1b[2J|{number}", EXTREME[name], source="$x_$\n", kind="") for number in range(8)]
    found = read_run(write_run(tmp_path / "x", blocks))
    assert all(one.figures()["speedup"] > 0 for verdict in verdicts(found) for one in verdict.results)
    assert page(found).replace("\n", "").isprintable()
    trial_frames(found)


@pytest.mark.parametrize("number", [200, pytest.param(20_000, marks=pytest.mark.slow)])
def test_any_change_is_refused_in_a_sentence_or_has_a_page(run: Path, number: int) -> None:
    seed = random.randrange(10**6)
    print("seed", seed)
    rng = random.Random(seed)
    blocks = drawn_blocks([QWEN, Truth("history", 0.3, QWEN.cost)], ["pl"], ["list"], prompts=2, tokens=12)
    whole = (write_run(run.with_name("small"), blocks) / RUN_FILE).read_bytes()
    refused = 0
    for _ in range(number):
        data = whole
        for _ in range(rng.choice([1, 1, 2, 3])):
            data = rng.choice(CHANGES)(data, rng) if data else data
        (run / RUN_FILE).write_bytes(data)
        try:
            found = read_run(run)
            page(found)
            trial_frames(found)
        except ArtifactError as error:
            assert "\n" not in str(error) and len(str(error)) < 1000
            refused += 1
    assert number / 4 < refused < number
