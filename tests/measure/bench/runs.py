"""Runs whose truth is known: cycles drawn from a probability of acceptance, timed by the cost model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from spectool.lab.paper_tables.cost_model import CostModel
from spectool.measure.bench.results import PLAIN, Block, DrafterSpec, Generation, Options, Run

STEP = 0.05  # seconds of a plain step


@dataclass(frozen=True)
class Truth:
    """What a drafter really is."""

    drafter: str
    agreement: float
    cost: CostModel


HISTORY = Truth("history", 0.25, CostModel(0.001, 0.01))
QWEN = Truth("qwen", 0.7, CostModel(0.07, 0.05))
DRAFTERS = (HISTORY, QWEN)
KINDS = ("encyclopaedic", "question")


def generation(drafter: str, k: int | None, seconds: float, tokens: int = 64, **columns: Any) -> Generation:
    """A generation that took some seconds; by default one without drafts."""
    cycles = {} if drafter == PLAIN else {"proposed": (1,) * tokens, "accepted": (0,) * tokens}
    columns = {"output": tuple(range(tokens)), "seconds": seconds, **cycles, **columns}
    return Generation(drafter=drafter, num_draft_tokens=k, **columns)


def block(name: str, generations: Sequence[Generation], **columns: Any) -> Block:
    """A block of a Polish list, if ``columns`` say nothing else."""
    labels: dict[str, Any] = {"source": "pl", "kind": "list", "temperature": 0.0, "prompt_tokens": 9}
    return Block(prompt=name, generations=tuple(generations), **{**labels, **columns})


def run_of(
    blocks: Sequence[Block], path: Path = Path("some.bench"), drafters: Mapping[str, DrafterSpec] | None = None
) -> Run:
    """The run with some blocks: a draft model where a drafter is named ``qwen``, and look-ups else."""
    ran = [one for one in blocks[0].generations if one.drafter != PLAIN]
    model, history = ("--draft-model", "models/qwen", "--no-dict", "--no-history"), ("--history", "--no-dict")
    made = {
        name: DrafterSpec(model if name == "qwen" else history, {})
        for name in dict.fromkeys(one.drafter for one in ran)
    }
    options = Options(
        model="models/large",
        drafters={**made, **(drafters or {})},
        prompts=blocks[0].source,
        num_draft_tokens=tuple(dict.fromkeys(one.num_draft_tokens for one in ran)),
        tokens=64,
        temp=blocks[0].temperature,
    )
    facts = {"began": "2026-01-02T03:04:05+00:00", "machine": "Test", "versions": "mlx 2"}
    return Run(path, options, facts, list(blocks))


def write_run(path: Path, blocks: Sequence[Block], drafters: Mapping[str, DrafterSpec] | None = None) -> Path:
    """Write a run as `spectool bench` does."""
    path.mkdir(parents=True, exist_ok=True)
    run = run_of(blocks, path, drafters)
    run.blocks.clear()
    for each in blocks:
        run.append(each)
    return path


def drawn_blocks(
    truths: Sequence[Truth] = DRAFTERS,
    sources: Sequence[str] = ("pl", "uk"),
    kinds: Sequence[str] = KINDS,
    prompts: int = 8,
    lengths: Sequence[int] = (2, 4),
    tokens: int = 64,
    noise: float = 0.03,
    seed: int = 0,
    temperatures: Sequence[float] = (0.0,),
) -> list[Block]:
    """Draw the blocks of a run. Drafts are accepted less often in the second source and kind."""
    rng = np.random.default_rng(seed)
    found = []
    every = product(temperatures, enumerate(sources), enumerate(kinds), range(prompts))
    for temperature, (number, source), (place, kind), prompt in every:
        ease = rng.uniform(0.7, 1.3) * 0.9**number * 0.9**place
        ran = [generation(PLAIN, 0, tokens * STEP * rng.lognormal(0, noise), tokens)]
        for truth in truths:
            agreement, slow = min(0.98, truth.agreement * ease), rng.lognormal(0, noise)
            ran += [_drawn(rng, agreement, k, tokens, truth, slow) for k in lengths]
        labels = {"source": source, "kind": kind, "temperature": temperature}
        found.append(block(f"{source}-{kind}-{prompt}", ran, **labels))
    return found


def _drawn(rng: np.random.Generator, agreement: float, k: int, tokens: int, truth: Truth, slow: float) -> Generation:
    done, accepted = 0, list[int]()
    while done < tokens:
        agreed = rng.random(k) < agreement
        right = k if agreed.all() else int(np.argmin(agreed))
        accepted.append(min(right, tokens - done - 1))
        done += accepted[-1] + 1
    step = STEP * slow * len(accepted)
    drafts = {"proposed": (k,) * len(accepted), "accepted": tuple(accepted)}
    drafting = step * truth.cost.r * (k + 1)
    return generation(truth.drafter, k, step * truth.cost.cost(k), tokens, draft_seconds=drafting, **drafts)
