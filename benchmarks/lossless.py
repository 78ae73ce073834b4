"""The main promise on a grid: every drafter on every kind of cache and in every precision, beside plain decoding.

    python benchmarks/train_models.py pl uk      # once: the targets and drafts
    python benchmarks/lossless.py                # the whole grid, on two cores
    python benchmarks/lossless.py --language pl --cache window --precision 4 --prompts 5

Plain decoding is mlx-lm's own loop. Where an output differs from it, an oracle (lossless_oracle.py) tells near-ties of
the two tokens, which are counted, from errors, which are printed whole. The exit status is 1 then, as it is where a
drafter proposed nothing. A near-tie is counted as shown, too, where a pass of several tokens over the true history puts
the other token first. Drafting then starts anew behind it, from the cache of plain decoding, so that every position of
every output is compared.

Lines go to ``benchmarks/results/lossless.jsonl``; a table of all that were asked for is printed. Tokenizers and
corpora come from the folder named by SPECTOOL_SHARED.
"""

import json
import multiprocessing
import os
import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from lossless_drafters import DRAFTERS, drafters
from lossless_models import KINDS, LANGUAGES, PRECISIONS, Language, in_precision
from lossless_oracle import Cell, Setting, compare
from tqdm import tqdm
from train_models import MODELS, environment

RESULTS = Path(__file__).parent / "results" / "lossless.jsonl"
SCRATCH = MODELS.parent / "lossless"  # dictionaries and alignments stay there
LENGTHS = (2, 4, 8, None)  # draft tokens of a cycle, drawn for each prompt; None: as many as pay


@dataclass(frozen=True)
class Job:
    """One setting of the grid."""

    language: str
    cache: str
    precision: str
    prompts: int
    tokens: int

    def key(self, drafter: str) -> tuple[Any, ...]:
        """Return what tells a cell from all others."""
        return (self.language, self.cache, self.precision, drafter, self.prompts, self.tokens)


_done: Any = None  # prompts done so far, in all processes


def _begin(done: Any) -> None:
    """Note where to count prompts, in a new process."""
    global _done
    _done = done


def run(job: Job, models: Path, scratch: Path, names: Sequence[str]) -> tuple[list[dict[str, Any]], list[str]]:
    """Run one setting with the named drafters; return a line for each, and the errors."""
    language, kind = Language(job.language, models, scratch), KINDS[job.cache]
    setting = Setting(in_precision(kind.build(language), job.precision), kind)
    target, prompts = language.tokenizer("target"), language.prompts(job.prompts)
    begun = [setting.begun(prompt) for prompt in prompts]
    plain = [setting.plain(prompt, cache, job.tokens) for prompt, cache in zip(prompts, begun, strict=True)]
    texts = [[*prompt, *output] for prompt, output in zip(prompts, plain, strict=True)]
    made = drafters(language, kind, texts)
    cells, errors = {name: Cell() for name in names}, []
    rng = random.Random(0)
    for number, (prompt, held, output) in enumerate(zip(prompts, begun, plain, strict=True)):
        length = rng.choice(LENGTHS)
        for source in made.sources:
            source.text = target.bytes_of(texts[number])
        for name, cell in cells.items():
            drafter = made.by_name[name][number % len(made.by_name[name])]
            found = compare(setting, drafter, prompt, held, output, length, cell)
            errors += [f"{job}, {name}, prompt {number}: {error}" for error in found]
        with _done.get_lock():
            _done.value += 1
    lines = []
    for name, cell in cells.items():
        statistics = cell.statistics
        lines.append(
            {
                "language": job.language,
                "cache": job.cache,
                "precision": job.precision,
                "drafter": name,
                "prompts": job.prompts,
                "tokens": job.tokens,
                "compared": cell.compared,
                "differences": cell.near_ties + cell.errors,
                "near-ties": cell.near_ties,
                "of these shown": cell.shown,
                "widest gap": round(cell.widest, 6),
                "errors": cell.errors,
                "proposed": statistics.proposed,
                "acceptance": round(statistics.acceptance_rate, 4),
                "tokens per pass": round(statistics.tokens_per_pass, 3),
                "cpu seconds": round(cell.seconds, 1),
            }
        )
    return lines, errors


def markdown(lines: Sequence[dict[str, Any]]) -> str:
    """Lay out near-ties and compared tokens by kind of cache and precision, and the range of acceptance by drafter."""
    sums: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for line in lines:
        for name in ("near-ties", "errors", "compared"):
            sums[line["cache"], line["precision"]][name] += line[name]
    precisions = [precision for precision in PRECISIONS if any(line["precision"] == precision for line in lines)]
    rows = [
        "near-ties / tokens compared (and errors, if any)",
        "",
        f"| cache | {' | '.join(map(_named, precisions))} |",
    ]
    rows.append("|---|" + "---:|" * len(precisions))
    for kind in KINDS:
        found = [sums[kind, precision] for precision in precisions if (kind, precision) in sums]
        if found:
            cells = (
                f"{s['near-ties']:,} / {s['compared']:,}" + f" ({s['errors']} errors)" * bool(s["errors"])
                for s in found
            )
            rows.append(f"| {kind} | {' | '.join(cells)} |")
    rows += ["", "| drafter | acceptance, lowest and highest | tokens per pass |", "|---|---:|---:|"]
    for drafter in dict.fromkeys(line["drafter"] for line in lines):
        mine = [line for line in lines if line["drafter"] == drafter]
        shares, passes = [line["acceptance"] for line in mine], [line["tokens per pass"] for line in mine]
        rows.append(f"| {drafter} | {min(shares):.3f} to {max(shares):.3f} | {min(passes):.2f} to {max(passes):.2f} |")
    return "\n".join(rows)


def _named(precision: str) -> str:
    return f"{precision}-bit" if precision.isdigit() else precision


@click.command()
@click.option("--language", "languages", multiple=True, type=click.Choice(list(LANGUAGES)), help="Of the grid.")
@click.option("--cache", "kinds", multiple=True, type=click.Choice(list(KINDS)), help="Of the grid.")
@click.option("--precision", "precisions", multiple=True, type=click.Choice(PRECISIONS), help="Of the grid.")
@click.option("--drafter", "names", multiple=True, type=click.Choice(DRAFTERS), help="Of the grid.")
@click.option("--prompts", default=200, show_default=True, help="Of each cell.")
@click.option("--tokens", default=12, show_default=True, help="Generated after each prompt.")
@click.option("--models", type=click.Path(path_type=Path, exists=True), default=MODELS, show_default=".scratch/models")
@click.option("--scratch", type=click.Path(path_type=Path), default=SCRATCH, show_default=".scratch/lossless")
@click.option("--jobs", default=2, show_default=True, help="Processes.")
@click.option("--resume", is_flag=True, help="Leave out cells that the results hold already.")
@click.option("--save/--no-save", default=True)
def main(
    languages: tuple[str, ...],
    kinds: tuple[str, ...],
    precisions: tuple[str, ...],
    names: tuple[str, ...],
    prompts: int,
    tokens: int,
    models: Path,
    scratch: Path,
    jobs: int,
    resume: bool,
    save: bool,
) -> None:
    """Run the grid, or the named part of it; save and print. The exit status is 1 where an output is not plain's."""
    names = names or DRAFTERS
    grid = [
        Job(language, kind, precision, prompts, tokens)
        for kind in kinds or KINDS
        for precision in precisions or PRECISIONS
        for language in languages or LANGUAGES
    ]
    known = _saved() if resume else {}
    wanted = {job: [name for name in names if job.key(name) not in known] for job in grid}
    lines = [known[job.key(name)] for job in grid for name in names if job.key(name) in known]
    os.environ.update(environment())  # of the processes to come
    context = multiprocessing.get_context("spawn")
    done = context.Value("l", 0)
    todo = {job: missing for job, missing in wanted.items() if missing}
    with ProcessPoolExecutor(jobs, context, _begin, (done,)) as pool:
        for language in dict.fromkeys(job.language for job in todo):
            click.echo(f"{language}: dictionary and alignments", err=True)
            Language(language, models, scratch).prepare()
        pending = {pool.submit(run, job, models, scratch, missing) for job, missing in todo.items()}
        with tqdm(total=prompts * len(todo), unit=" prompts") as bar:
            while pending:
                finished, pending = wait(pending, timeout=1)
                bar.update(done.value - bar.n)
                for future in finished:
                    found, errors = future.result()
                    lines += found
                    for line in found:
                        tqdm.write(json.dumps(line))
                    for error in errors:
                        tqdm.write(f"ERROR: {error}")
                    if save:
                        with RESULTS.open("a", encoding="utf-8") as file:
                            file.writelines(json.dumps(line) + "\n" for line in found)
    click.echo(markdown(lines))
    silent = [line for line in lines if not line["proposed"]]
    for line in silent:
        click.echo(f"NOTHING PROPOSED: {json.dumps(line)}")
    wrong = sum(line["errors"] for line in lines)
    if wrong or silent:
        raise click.ClickException(f"{wrong} outputs are not plain decoding's, {len(silent)} cells proposed nothing")


def _saved() -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return the lines of the results file by their keys, the latest of each."""
    if not RESULTS.exists():
        return {}
    lines = map(json.loads, RESULTS.read_text(encoding="utf-8").splitlines())
    names = ("language", "cache", "precision", "drafter", "prompts", "tokens")
    return {tuple(line[name] for name in names): line for line in lines}


if __name__ == "__main__":
    main()
