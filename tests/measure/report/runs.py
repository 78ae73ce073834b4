"""Runs whose truth is known: cycles drawn from a probability of acceptance, timed by the cost model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from spectool.artifacts.atomic import atomic_directory
from spectool.artifacts.benchmark import PLAIN, Benchmark, Row, write_block
from spectool.lab.paper_tables.cost_model import CostModel

STEP = 0.05  # seconds of a plain step
READING, DRAFT_READING = 0.1, 0.004  # seconds of the prompt: the target's and a draft model's

UNMEASURED = {
    **dict.fromkeys(("strategy", "first_difference", "gap")),
    **dict.fromkeys(("proposed", "accepted", "drafted_passes", "prompt_tokens", "peak_memory", "repetition"), 0),
    **dict.fromkeys(("prompt_seconds", "draft_prompt_seconds", "first_token_seconds"), 0.0),
    **dict.fromkeys(("draft_seconds", "pass_seconds"), 0.0),
}
"""What a generation has where a test says nothing else."""


@dataclass(frozen=True)
class Truth:
    """What a drafter really is."""

    drafter: str
    strategy: str | None
    agreement: float
    cost: CostModel


DRAFTERS = (
    Truth("history", None, 0.25, CostModel(0.001, 0.01)),
    Truth("qwen", "naive", 0.2, CostModel(0.07, 0.05)),
    Truth("qwen", "byte-aligned", 0.7, CostModel(0.07, 0.05)),
)
KINDS = ("encyclopaedic", "question")


def rows_of(
    truths: Sequence[Truth] = DRAFTERS,
    languages: Sequence[str] = ("pl", "uk"),
    kinds: Sequence[str] = KINDS,
    prompts: int = 8,
    lengths: Sequence[int] = (2, 4),
    tokens: int = 64,
    repetitions: int = 1,
    noise: float = 0.03,
    seed: int = 0,
    model: str = "target",
) -> tuple[list[Row], list[Row]]:
    """Draw the generations and cycles of a run. Drafts are accepted less often in the second language and kind."""
    rng = np.random.default_rng(seed)
    generations: list[Row] = []
    cycles: list[Row] = []
    block = 0
    for number, language in enumerate(languages):
        for place, kind in enumerate(kinds):
            for prompt in range(prompts):
                ease = rng.uniform(0.7, 1.3) * 0.9**number * 0.9**place
                for repetition in range(repetitions):
                    labels = {"block": block, "language": language, "kind": kind, "prompt": f"{kind}-{prompt}"}
                    labels |= {"repetition": repetition, "model": model, "prompt_tokens": 9, "peak_memory": 10**9}
                    seconds = tokens * STEP * rng.lognormal(0, noise)
                    plain = {"drafter": PLAIN, "num_draft_tokens": 0, "order": 0, "tokens": tokens, "passes": tokens}
                    generations.append(_generation(labels | plain, seconds, 0.0, seconds))
                    configurations = [(truth, k) for truth in truths for k in lengths]
                    for order, (truth, k) in enumerate(configurations, 1):
                        slow = rng.lognormal(0, noise)
                        drawn = _cycles(rng, min(0.98, truth.agreement * ease), k, tokens, truth, slow)
                        cycles += [{"block": block, "order": order, **cycle} for cycle in drawn]
                        sums: Any = {name: sum(c[name] for c in drawn) for name in ("proposed", "accepted")}
                        times = [sum(c[name] for c in drawn) for name in ("seconds", "draft_seconds", "pass_seconds")]
                        configuration = {"drafter": truth.drafter, "strategy": truth.strategy, "num_draft_tokens": k}
                        reading = DRAFT_READING if truth.strategy is not None else 0.0
                        configuration |= {"draft_prompt_seconds": reading}
                        sums |= {"tokens": sum(c["committed"] for c in drawn), "passes": len(drawn)}
                        generations.append(_generation(labels | configuration | sums | {"order": order}, *times))
                    block += 1
    return generations, cycles


def write_run(
    path: Path,
    generations: Sequence[Row],
    cycles: Sequence[Row],
    temperature: float = 0.0,
    tokenizers: Mapping[str, Any] | None = None,
    **statistics: Any,
) -> Path:
    """Write a whole run as `spectool bench` does."""
    drafters = dict.fromkeys((row["model"], row["drafter"]) for row in generations if row["drafter"] != PLAIN)
    names = list(dict.fromkeys(row["model"] for row in generations))
    models: list[dict[str, Any]] = [{"name": name, "path": "nowhere", "drafters": []} for name in names]
    for of, name in drafters:
        drafter = {"name": name, "strategies": ["naive", "byte-aligned"], "draft_model": None, "dictionary": None}
        next(model for model in models if model["name"] == of)["drafters"].append(drafter)
    languages = dict.fromkeys(row["language"] for row in generations)
    kinds = list(dict.fromkeys(row["kind"] for row in generations))
    arguments = {
        "name": "synthetic",
        "tokens": 64,
        "repetitions": 1,
        "temperature": temperature,
        "seed": 0,
        "num_draft_tokens": [2, 4],
        "prompts": [{"source": "built-in", "language": language, "kinds": kinds} for language in languages],
        "models": models,
    }
    machine = {"system": "Test", "processor": "none", "cores": 2, "memory_bytes": 8 * 10**9, "device": "cpu"}
    told = {"machine": machine, "began": "2026-01-02T03:04:05+00:00", "seconds": 90.0}
    told |= {"sizes": dict.fromkeys(names, 11 * 10**9), "draft_sizes": {name: {"qwen": 8 * 10**8} for name in names}}
    told |= {"prompts": len({row["prompt"] for row in generations}), "generations": len(generations)}
    told |= {"different": None if temperature else 0, **statistics}
    with atomic_directory(path) as directory:
        write_block(directory, [{**UNMEASURED, "temperature": temperature, **row} for row in generations], cycles)
        Benchmark.seal(directory, arguments, tokenizers or {}, {}, told)
    return path


def _generation(columns: Row, seconds: float, draft: float, passing: float) -> Row:
    reading = columns.get("draft_prompt_seconds", 0.0)
    times = {"seconds": reading + seconds, "draft_seconds": draft, "pass_seconds": passing, "prompt_seconds": READING}
    times |= {"first_token_seconds": reading + STEP}
    defaults = {"proposed": 0, "accepted": 0, "drafted_passes": 0, "draft_prompt_seconds": 0.0}
    return {**defaults, "output": [1], "strategy": None, **columns, **times}


def _cycles(
    rng: np.random.Generator, agreement: float, k: int, tokens: int, truth: Truth, slow: float
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    done = 0
    while done < tokens:
        agreed = rng.random(k) < agreement
        accepted = k if agreed.all() else int(np.argmin(agreed))
        draft, passing = STEP * slow * truth.cost.r * (k + 1), STEP * slow * (1 + truth.cost.beta * k * k)
        found.append(
            {
                "cycle": len(found),
                "position": done,
                "source": truth.drafter,
                "proposed": k,
                "accepted": accepted,
                "committed": accepted + 1,
                "draft_seconds": draft,
                "pass_seconds": passing,
                "seconds": draft + passing,
            }
        )
        done += accepted + 1
    return found
