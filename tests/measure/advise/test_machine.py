"""Replays give what the loop gives; a saved run gives back the costs that it was made with."""

import json
import shutil
import time
import tracemalloc
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from click.testing import CliRunner, Result
from mlx.utils import tree_flatten

from spectool import ArtifactError
from spectool.artifacts.formats.benchmark import FORMAT, PLAIN, VERSION, write_block
from spectool.artifacts.manifest import Manifest, seal
from spectool.cli import main
from spectool.corpora import read_sample
from spectool.measure.advise.expect import Guesses, assumed, measured
from spectool.measure.advise.machine import copy_bandwidth, this_machine, verification_of
from spectool.measure.advise.replayed import replayed
from spectool.runtime.decoding.drafter import Drafter, Proposal
from spectool.runtime.decoding.generation import generate_step
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.demo_models import demo_path
from spectool.runtime.loading import load_drafter
from spectool.runtime.models import load_model


class Oracle(Drafter):
    """Knows the text, and is wrong at every ``wrong``-th token."""

    name = "oracle"

    def __init__(self, text: list[int], wrong: int) -> None:
        self.said = [token + 1 if place % wrong == wrong - 1 else token for place, token in enumerate(text)]
        self.position = 0

    def start(self, prompt: Any) -> None:
        self.position = 0

    def propose(self, limit: int) -> Proposal:
        return Proposal(self.said[self.position : self.position + limit], self.name)

    def commit(self, tokens: Any) -> None:
        self.position += len(tokens)


def test_a_replay_counts() -> None:
    text = list(range(100, 120))
    right = replayed([((), text)], Oracle(text, 1000), 4, "x")
    free = assumed(0.0, "a look-up takes microseconds")
    assert right == Guesses(measured(5.0, "x"), measured(1.0, "x"), 4.0, free, 1.0)
    half = replayed([((), text)], Oracle(text, 2), 1, "x")
    assert (half.tokens_per_pass.value, half.acceptance.value) == (2.0, 1.0)


def test_a_drafter_is_timed_beside_a_plain_step() -> None:
    class Slow(Oracle):
        def start(self, prompt: Any) -> None:
            time.sleep(0.5)  # is not counted
            super().start(prompt)

        def propose(self, limit: int) -> Proposal:
            time.sleep(0.1)
            return super().propose(limit)

    text = list(range(100, 120))
    drafting = replayed([((7,), text)] * 2, Slow(text, 1000), 4, "x", lambda prompt: 0.5 * len(prompt)).drafting
    assert drafting.value == pytest.approx(0.2, rel=0.5)
    assert drafting.kind == "measured"


@pytest.mark.parametrize("k", [2, 5])
@pytest.mark.parametrize("drafting", ["history", "model"])
def test_a_replay_of_the_targets_text_is_a_generation(drafting: str, k: int) -> None:
    model, loaded = load_model(str(demo_path("target")))
    draft = demo_path("draft") if drafting == "model" else None
    drafter = load_drafter(loaded, draft_model=draft, history=draft is None)
    assert drafter is not None
    texts, counted = [], DraftStatistics()
    for sample in read_sample("pl")[:3]:
        prompt = loaded.encode(sample)[:24]
        written = [token for token, _, _ in generate_step(mx.array(prompt), model, max_tokens=32)]
        steps = generate_step(
            mx.array(prompt), model, drafter=drafter, num_draft_tokens=k, max_tokens=32, statistics=counted
        )
        assert [token for token, _, _ in steps] == written
        texts.append((prompt, written))
    found = replayed(texts, drafter, k, "x")
    assert found.tokens_per_pass.value == counted.tokens_per_pass
    assert found.acceptance.value == counted.acceptance_rate
    assert (found.proposed, found.coverage) == (counted.proposed / counted.drafted_passes, counted.coverage)


def generation(order: int, drafter: str, **columns: Any) -> dict[str, Any]:
    empty = {"strategy": None, "joules": None, "first_difference": None, "gap": None, "output": [1]}
    numbers = dict.fromkeys(("proposed", "accepted", "drafted_passes", "prompt_tokens", "peak_memory"), 0)
    named = {"language": "pl", "kind": "list", "prompt": "p", "repetition": 0, "model": "m", "num_draft_tokens": 2}
    times = dict.fromkeys(("prompt_seconds", "draft_prompt_seconds", "draft_seconds", "pass_seconds"), 0.0)
    times |= {"first_token_seconds": 0.0, "temperature": 0.0}
    own = {"block": 0, "order": order, "drafter": drafter, "tokens": 20, "passes": 20, "seconds": 2.0}
    return {**empty, **numbers, **named, **times, **own, **columns}


def cycles(order: int, proposed: int, seconds: float) -> Iterator[dict[str, Any]]:
    for number in range(12):
        yield {
            "block": 0,
            "order": order,
            "cycle": number,
            "position": number,
            "source": "x" if proposed else "",
            "proposed": proposed,
            "accepted": 0,
            "committed": 1,
            "draft_seconds": 0.01,
            "pass_seconds": seconds if number else 9.0,  # the first one waits for the prompt
            "seconds": seconds + 0.015,
        }


def write(path: Path, rows: list[dict[str, Any]], of_rows: list[dict[str, Any]]) -> None:
    """Write generations with the sums of their cycles."""
    for row in rows:
        if mine := [each for each in of_rows if each["order"] == row["order"]]:
            sums = {name: sum(each[name] for each in mine) for name in ("proposed", "accepted")}
            row |= sums | {"tokens": len(mine), "passes": len(mine)}
    write_block(path, rows, of_rows)


def saved(path: Path, paths: dict[str, str], sizes: dict[str, int]) -> Path:
    """A run whose plain step of ``m`` takes 0.1 s, and passes over 2 and 4 drafts 1.2 and 1.8 times that."""
    path.mkdir()
    rows = [generation(0, PLAIN), generation(1, "a"), generation(2, "b")]
    rows += [generation(order, drafter, model="other", seconds=20.0) for order, drafter in ((3, PLAIN), (4, "a"))]
    of_m = [*cycles(1, 2, 0.12), *cycles(2, 4, 0.18), *cycles(2, 0, 0.1)]
    write(path, rows, [*of_m, *islice(cycles(4, 2, 9.9), 3)])
    models = [{"name": name, "path": where} for name, where in paths.items()]
    seal(path, Manifest(FORMAT, VERSION, {"models": models}, {}, {}, {"sizes": sizes}))
    return path


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return saved(tmp_path / "a.bench", {"m": "/models/m", "other": "/models/other"}, {})


@pytest.mark.parametrize("target", ["m", "/models/m", "/models/m/tokenizer.json", "/moved/m"])
def test_costs_of_a_saved_run(run: Path, target: str) -> None:
    found = verification_of(run, target, None)
    assert found.passes == pytest.approx({2: 1.2, 4: 1.8})
    assert found.loop == pytest.approx(0.05)
    assert found.beta.value == pytest.approx((0.2 * 4 + 0.8 * 16) / (16 + 256))
    assert found.beta.origin == f"measured: medians of {run}"


def test_a_run_that_does_not_tell(run: Path) -> None:
    with pytest.raises(ArtifactError, match=r"expected a run of /elsewhere, got one of m \(/models/m\), other"):
        verification_of(run, "/elsewhere", None)
    with pytest.raises(ArtifactError, match=r"expected plain generations of other and at least 5 .* got 1 and 2"):
        verification_of(run, "other", None)


def test_a_run_of_one_model_is_compared_too(tmp_path: Path) -> None:
    """By path, by bytes whatever the name is, and by name where nothing tells the bytes."""
    run = saved(tmp_path / "a.bench", {"m": "/models/m"}, {"m": 1_000_000})
    for target, weights in (
        ("/models/m", 5.0),
        ("/moved/x", 1_000_900.0),
        ("/moved/m", 1_000_900.0),
        ("/moved/m", None),
    ):
        assert verification_of(run, target, weights).passes
    for target, weights in (("/models/x", None), ("/models/x", 2e6), ("/moved/m", 2e6)):
        with pytest.raises(ArtifactError, match=r"expected a run of .*, got one of m \(/models/m, 1,000,000 bytes\)"):
            verification_of(run, target, weights)


def test_advice_takes_no_other_models_run(tmp_path: Path) -> None:
    target, draft = demo_path("target"), demo_path("draft")
    weights = sum(weight.nbytes for _, weight in tree_flatten(load_model(str(target))[0].parameters()))
    run = saved(tmp_path / "a.bench", {"m": str(target)}, {"m": weights})
    shutil.copytree(target, tmp_path / "moved")

    def advised(model: Path, *more: object) -> Result:
        options = ["--target", model, "--run", run, "--bandwidth", 200, "--num-draft-tokens", 2, *more]
        return CliRunner().invoke(main, ["advise", *map(str, options), "--json"])

    refused = advised(draft)
    assert refused.exit_code == 1
    assert f"expected a run of {draft}" in refused.stderr and f"got one of m ({target}, {weights:,} bytes)" in (
        refused.stderr
    )
    for given in ((target,), (tmp_path / "moved",), (draft, "--target-bytes", weights)):
        assert advised(*given).exit_code == 0, "at its path, moved, and stated as the error says"


def test_lengths_beyond_a_run_are_computed_and_said_to_be(tmp_path: Path) -> None:
    """Passes over 4 drafts took 1.8 plain ones, so that those over 8 would take 2.6."""
    target = str(demo_path("target"))
    run = saved(tmp_path / "a.bench", {"m": target}, {})
    options = ["--target", target, "--draft", str(demo_path("draft")), "--run", str(run), "--bandwidth", "200"]
    shown = CliRunner().invoke(main, ["advise", *options])
    rises = "passes over more than 4 draft tokens rise as they do up to 4"
    assert shown.exit_code == 0, shown.output
    assert (
        f"1.20 at k = 2, 1.80 at k = 4 plain passes (measured: medians of {run}); 2.60 at k = 8 (computed: {rises})"
        in shown.stdout
    )
    facts = json.loads(CliRunner().invoke(main, ["advise", *options, "--json"]).stdout)
    draft = facts["candidates"][0]["expectations"]
    assert [each["verification"]["value"] for each in draft] == pytest.approx([1.2, 1.8, 2.6])
    assert [each["verification"]["origin"] for each in draft] == [f"measured: medians of {run}"] * 2 + [
        f"computed: {rises}"
    ]
    short = CliRunner().invoke(main, ["advise", *options, "--num-draft-tokens", "4"])
    assert rises not in short.stdout
    for candidate in facts["candidates"]:
        for each in candidate["expectations"]:
            assert (each["needed"]["value"] < 1) == (each["best"]["value"] > 1)


def test_long_runs_are_read_in_columns(tmp_path: Path) -> None:
    """A cycle takes some bytes in columns, and a thousand as a row."""
    path, count = tmp_path / "a.bench", 40_000
    path.mkdir()
    write(path, [generation(0, PLAIN), generation(1, "a")], list(islice(cycle(cycles(1, 2, 0.12)), count)))
    seal(path, Manifest(FORMAT, VERSION, {"models": [{"name": "m", "path": "/models/m"}]}, {}, {}, {}))
    verification_of(path, "m", None)
    tracemalloc.start()
    try:
        assert verification_of(path, "m", None).passes == pytest.approx({2: 1.2})
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 300 * count, f"{most:,} bytes"


def test_the_machine() -> None:
    assert 1e8 < copy_bandwidth() < 1e13
    stated = this_machine(200, 16)
    assert (stated.bandwidth.value, stated.memory.value) == (200e9, 16e9)
    assert (stated.bandwidth.origin, stated.memory.origin) == ("stated", "stated")
    memory = this_machine(200).memory
    assert memory.value is not None
    assert memory.value > 1e8
