"""What a start costs: processor seconds and private memory of every step, for ten pairs and for every command.

    python benchmarks/startup.py

Each row is a process of its own. Before its clock starts it has done what `mlx_lm.load` does with tokenizers, so that
only ours is counted. Memory is what the process has to itself (Linux: private dirty pages, and the proportional share
of all, from smaps_rollup). *Shared* is the proportional share of four processes that hold the same artifacts.
Commands are counted whole, from the start of Python; their memory is the highest that the process had.

Prints Markdown tables and saves ``benchmarks/results/startup.jsonl``. Artifacts are made once, in .scratch/artifacts.
Tokenizers and corpora come from the folder named by SPECTOOL_SHARED.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
from real_data import made
from real_models import SHARED

RESULTS = Path(__file__).parent / "results" / "startup.jsonl"
TEXT = SHARED / "corpora" / "crh.train.txt.zst"  # small enough to count in a minute, for any tokenizer
PAIRS = [
    *((draft, "bielik-11b-v2.5") for draft in ("gemma-3", "qwen2.5", "llama-3.2", "mistral-nemo")),
    ("bielik-4.5b-v3-apt4", "bielik-11b-v2.5"),
    ("gemma-3", "gpt4o-o200k"),
    ("qwen2.5", "gemma-3"),
    ("gpt4o-o200k", "llama-3.2"),
    ("phi-3-mini", "qwen2.5"),
    ("xlm-roberta-base", "gemma-3"),
]
PROMPTS = [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000]
TOGETHER = 4


@click.command()
@click.option("--label", default="now", show_default=True, help="Name of these figures in the results.")
@click.option("--pair", "pairs", multiple=True, metavar="DRAFT:TARGET", help="Only these pairs.")
@click.option("--turns", default=3, show_default=True, help="Processes for each row; medians are shown.")
@click.option("--prompts/--no-prompts", default=True, help="Measure what prompts of growing length cost.")
@click.option("--answers", is_flag=True, help="Measure `inspect` and `verify` alone, and keep all other rows.")
def main(label: str, pairs: tuple[str, ...], turns: int, prompts: bool, answers: bool) -> None:
    """Measure every pair and every command; print, and save each pair when it is done."""
    rows: list[dict[str, Any]] = []

    def note(**row: Any) -> None:
        rows.append({"label": label, **row})
        click.echo(json.dumps(rows[-1]), err=True)

    for draft, target in [tuple(pair.split(":")) for pair in pairs] or PAIRS:
        place = _artifacts(draft, target)
        for step in () if answers else ("dictionary", "alignment", "pair"):
            note(draft=draft, target=target, step=step, **_median([_child(step, place) for _ in range(turns)]))
        if not answers:
            note(draft=draft, target=target, step="shared", **_together(place))
        if prompts and not answers and (draft, target) == PAIRS[0]:
            for step in ("prompt dictionary", "prompt pair"):
                for figures in _child(step, place)["prompts"]:
                    note(draft=draft, target=target, step=step, **figures)
        for name, command in _commands(place).items():
            runs = [_timed_command(command) for _ in range(turns)]
            note(draft=draft, target=target, step=name, **_median(runs))
        with TemporaryDirectory() as scratch:
            for name, command in () if answers else _builds(place["draft"], place["target"]).items():
                note(draft=draft, target=target, step=name, **_timed_command([*command, "-o", f"{scratch}/{name}"]))
        others = [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
        done = [row for row in rows if (row["draft"], row["target"]) == (draft, target)]
        measured = {(label, draft, target, row["step"]) for row in done}
        kept = [row for row in others if (row["label"], row["draft"], row["target"], row["step"]) not in measured]
        RESULTS.write_text("".join(json.dumps(row) + "\n" for row in kept + done))
    _print(rows)


def _artifacts(draft: str, target: str) -> dict[str, str]:
    """Make what a pair needs; return where everything is."""
    folders = {side: str(SHARED / "tokenizers" / name) for side, name in (("draft", draft), ("target", target))}
    builds = _builds(**folders)
    pair = made(f"startup-{draft}-{target}.align", *builds["align"])
    dictionary = made(f"startup-{target}.dict", *builds["build-dict"])
    return {**folders, "alignment": str(pair), "dictionary": str(dictionary)}


def _builds(draft: str, target: str) -> dict[str, list[str]]:
    return {
        "align": ["align", "--draft", draft, "--target", target, "--corpus", "sample:pl"],
        "build-dict": ["build-dict", "--tokenizer", target, "--corpus", str(TEXT)],
    }


def _commands(place: dict[str, str]) -> dict[str, list[str]]:
    return {
        "inspect dictionary": ["inspect", place["dictionary"]],
        "inspect --lookup": ["inspect", place["dictionary"], "--lookup", "Qırım"],
        "inspect alignment": ["inspect", place["alignment"]],
        "verify dictionary": ["verify", place["dictionary"]],
        "verify alignment": ["verify", place["alignment"]],
        "inspect tokenizer": ["inspect", place["target"]],
    }


def _timed_command(arguments: list[str]) -> dict[str, float]:
    started = time.perf_counter()
    command = [sys.executable, "-m", "spectool.cli", *arguments]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        errors = process.stderr.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise click.ClickException(f"{' '.join(arguments)}: {errors}")
    wall = round(time.perf_counter() - started, 3)
    return {"cpu_s": round(used.ru_utime + used.ru_stime, 3), "wall_s": wall, "peak_mb": round(used.ru_maxrss / 1000)}


def _start(step: str, place: dict[str, str]) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--child", json.dumps({"step": step, **place})]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)


def _child(step: str, place: dict[str, str]) -> dict[str, Any]:
    output, _ = _start(step, place).communicate("\n")
    figures: dict[str, Any] = json.loads(output.splitlines()[-1])
    return figures


def _together(place: dict[str, str]) -> dict[str, Any]:
    """Let four processes hold the same artifacts; return the mean of what each has beyond its own beginning."""
    children = [_start("shared", place) for _ in range(TOGETHER)]
    for child in children:  # all have loaded
        assert child.stdout is not None
        child.stdout.readline()
    found = [json.loads(child.communicate("\n")[0].splitlines()[-1]) for child in children]
    return {key: round(sum(row[key] for row in found) / TOGETHER, 2) for key in found[0]}


def _median(runs: list[dict[str, float]]) -> dict[str, float]:
    return {key: sorted(run[key] for run in runs)[len(runs) // 2] for key in runs[0]}


def _print(rows: list[dict[str, Any]]) -> None:
    columns = ("draft", "target", "step", "tokens", "cpu_s", "wall_s", "private_mb", "share_mb", "peak_mb", "file_mb")
    click.echo("| " + " | ".join(columns) + " |\n|---|---|---|" + "---:|" * (len(columns) - 3))
    for row in rows:
        click.echo("| " + " | ".join(str(row.get(column, "")) for column in columns) + " |")


def _child_main(given: dict[str, str]) -> None:
    """Do one step in this process and print what it took."""
    import mlx_lm  # noqa: F401 (its cost is not ours)
    from mlx_lm.models.llama import Model, ModelArgs
    from mlx_lm.tokenizer_utils import load

    step = given["step"]
    target, draft = load(Path(given["target"])), load(Path(given["draft"]))
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "intermediate_size": 8, "num_attention_heads": 1}
    model = Model(ModelArgs("llama", **sizes, rms_norm_eps=1e-5, vocab_size=len(draft)))
    options: dict[str, Any] = {} if step == "alignment" else {"dictionary": given["dictionary"]}
    if "dictionary" not in step:
        options |= {"draft_model": (model, draft), "alignment": given["alignment"]}
    if step == "shared":
        before = _memory()
        kept = _load(target, options)
        kept.start(target.encode("Qırım tatar tili. " * 50))
        print("ready", flush=True)
        sys.stdin.readline()
        print(json.dumps({key: round(_memory()[key] - before[key], 2) for key in before}))
        return
    if step.startswith("prompt"):
        print(json.dumps({"prompts": _prompts(_load(target, options), target, "pair" in step)}))
        return
    before, started = _memory(), time.process_time()
    kept = _load(target, options)
    cpu = round(time.process_time() - started, 4)
    grown = {key: round(value - before[key], 2) for key, value in _memory().items()}
    artifacts = [Path(given[name]) for name in ("dictionary", "alignment") if name in options]
    size = sum(file.stat().st_size for artifact in artifacts for file in artifact.iterdir()) / 1e6
    print(json.dumps({"cpu_s": cpu, **grown, "file_mb": round(size, 2)}))
    del kept


def _load(target: Any, options: dict[str, Any]) -> Any:
    from spectool.runtime import load_drafter

    return load_drafter(target, **options)


def _prompts(drafter: Any, target: Any, translated: bool) -> list[dict[str, float]]:
    """Time what a drafter does with prompts of real text, and nothing but it."""
    from spectool.corpora import open_corpus

    ids: list[int] = []
    for document in open_corpus(str(SHARED / "corpora" / "pl.train.txt.zst")):
        ids += target.encode(document.text, add_special_tokens=False)
        if len(ids) >= PROMPTS[-1]:
            break
    if translated:
        from spectool.runtime.drafters.translated import TranslatedDrafter

        parts = [part for part in drafter.drafters if isinstance(part, TranslatedDrafter)]
        drafter = parts[0]
    rows = []
    for length in PROMPTS:
        started = time.process_time()
        drafter.start(ids[:length])
        rows.append({"tokens": length, "cpu_s": round(time.process_time() - started, 4)})
    return rows


def _memory() -> dict[str, float]:
    """Return private (dirty) and proportional memory of this process in MB."""
    text = Path("/proc/self/smaps_rollup").read_text()
    found = {line.split()[0]: int(line.split()[1]) for line in text.splitlines()[1:]}
    return {"private_mb": found["Private_Dirty:"] / 1000, "share_mb": found["Pss:"] / 1000}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        _child_main(json.loads(sys.argv[2]))
    else:
        main()
