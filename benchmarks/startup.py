"""What a start costs: processor seconds and memory of ``load_drafter`` and of commands, for pairs of tokenizers.

    python benchmarks/startup.py

Each row is measured in a process of its own. Before its clock starts, the process has done what ``mlx_lm.load`` does
with tokenizers, so that only spectool's share is counted. Memory is what no other process shares (Linux: private dirty
pages). Commands are counted as a whole, from the start of Python. Prints rows and appends them to
``benchmarks/results/startup.jsonl``. Artifacts are built once, in .scratch/artifacts.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import click
from real_data import made
from real_models import SHARED
from saving import save

PAIRS = [
    *((draft, "bielik-11b-v2.5") for draft in ("gemma-3", "qwen2.5", "llama-3.2", "bielik-4.5b-v3-apt4")),
    ("gemma-3", "gpt4o-o200k"),
    ("qwen2.5", "gemma-3"),
    ("xlm-roberta-base", "gemma-3"),
]
PROMPTS = (8_000, 128_000)  # tokens


@click.command()
@click.option("--pair", "pairs", multiple=True, metavar="DRAFT:TARGET", help="Only these pairs.")
@click.option("--turns", default=3, show_default=True, help="Processes for each row; medians are shown.")
def main(pairs: tuple[str, ...], turns: int) -> None:
    """Measure every pair and every command; print and save."""
    for draft, target in [tuple(pair.split(":")) for pair in pairs] or PAIRS:
        sides = {side: str(SHARED / "tokenizers" / name) for side, name in (("draft", draft), ("target", target))}
        text = SHARED / "corpora" / "crh.train.txt.zst"
        align = ("align", "--draft", sides["draft"], "--target", sides["target"], "--corpus", "sample:pl")
        build = ("build-dict", "--tokenizer", sides["target"], "--corpus", text)
        place = {**sides, "alignment": str(made(f"startup-{draft}-{target}.align", *align))}
        place["dictionary"] = str(made(f"startup-{target}.dict", *build))
        for step in ("dictionary", "dictionary and draft"):
            _save(draft, target, f"load {step}", [_child(step, place) for _ in range(turns)])
        commands = {
            "inspect dictionary": ("inspect", place["dictionary"], "--lookup", "Qırım"),
            "inspect alignment": ("inspect", place["alignment"]),
            "inspect tokenizer": ("inspect", place["target"]),
        }
        for name, command in commands.items():
            _save(draft, target, name, [_command(command) for _ in range(turns)])


def _save(draft: str, target: str, step: str, runs: list[dict[str, float]]) -> None:
    figures = {key: round(median(run[key] for run in runs), 4) for key in runs[0]}
    row = {"draft": draft, "target": target, "step": step, **figures}
    click.echo(json.dumps(row))
    save("startup", row)


def _command(arguments: tuple[str, ...]) -> dict[str, float]:
    with subprocess.Popen([sys.executable, "-m", "spectool.cli", *arguments], stdout=subprocess.DEVNULL) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise click.ClickException(f"{' '.join(arguments)}: exit status {process.returncode}")
    return {"cpu_s": used.ru_utime + used.ru_stime, "peak_mb": used.ru_maxrss / 1000}


def _child(step: str, place: dict[str, str]) -> dict[str, float]:
    command = [sys.executable, __file__, "--child", json.dumps({"step": step, **place})]
    figures: dict[str, float] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return figures


def _child_main(given: dict[str, str]) -> None:
    """Load a drafter in this process, start it with prompts, and print what that cost."""
    import mlx_lm  # noqa: F401 (its cost is not counted)
    from mlx_lm.models.llama import Model, ModelArgs
    from mlx_lm.tokenizer_utils import load

    target, draft = load(Path(given["target"])), load(Path(given["draft"]))
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "intermediate_size": 8, "num_attention_heads": 1}
    model = Model(ModelArgs("llama", **sizes, rms_norm_eps=1e-5, vocab_size=len(draft)))
    options: dict[str, Any] = {"dictionary": given["dictionary"]}
    if given["step"] != "dictionary":
        options |= {"draft_model": (model, draft), "alignment": given["alignment"]}
    ids = target.encode(" ".join(["Qırım tatar tili türkiy tillerden biridir."] * 20_000), add_special_tokens=False)
    before, started = _private_memory(), time.process_time()
    from spectool.runtime import load_drafter

    drafter = load_drafter(target, **options)
    figures = {"cpu_s": time.process_time() - started, "private_mb": _private_memory() - before}
    for length in PROMPTS if given["step"] == "dictionary" else ():
        started = time.process_time()
        drafter.start(ids[:length])
        figures[f"prompt of {length:,}, cpu_s"] = time.process_time() - started
    print(json.dumps(figures))


def _private_memory() -> float:
    """Private dirty pages of this process in MB."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]
    return next(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty:")) / 1000


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        _child_main(json.loads(sys.argv[2]))
    else:
        main()
