"""Measures which task a draft serves worst: models and text by task in, all figures out.

Only one draft at a time is in memory next to the target. Nothing in the figures depends on the clock. They are written
as one JSON file, with the names given on the command line, lengths in tokens and divergences in nats:

    format, version, tool
    arguments       what was asked for
    tokenizers      by name
    inputs          text by task
    gamma           draft tokens per pass
    target          name, bytes (of weights)
    tasks           by task: rows, and left_out (passages that some tokenizer does not spell)
    drafts          by draft: path, bytes, cost (of a pass, in passes of the target), cost_stated (or from bytes),
                    compared ("one vocabulary" or "shared ids"), shared_ids, unfairness, unfairness_kl, spearman (of
                    fitness and acceptance over the rows of all tasks), sure_gaps (pairs of tasks, the first with the
                    larger acceptance by Corollary 2), and by task what `places` measures and what `formulas` derives
                    from it, with by_temperature (acceptance) and examples (fitness and acceptance of each row)
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import pandas as pd

from spectool import ArtifactError, SpectoolError, __version__
from spectool.artifacts.artifact import read_manifest
from spectool.artifacts.atomic import atomic_file, require_new
from spectool.corpora import open_corpus
from spectool.lab.fairness import formulas
from spectool.lab.fairness.identity import contents, weight_bytes
from spectool.lab.fairness.places import compare
from spectool.lab.fairness.texts import TaskText, read_task_text
from spectool.lab.paper_tables.cost_model import geometric_tokens
from spectool.lab.progress import progress
from spectool.lab.resumable import TaskResult, finished_task, resumable_work, run_task
from spectool.lab.tuning.corrective import unfairness
from spectool.lab.tuning.divergence import Pairing, pairing_of
from spectool.lab.tuning.examples import NOWHERE, paired_example
from spectool.lab.tuning.tuned_model import OpenedModel
from spectool.tokenization.opening import open_tokenizer
from spectool.tokenization.tokenizer import Tokenizer

_WHOLE = 2**20  # tokens: more than a passage has


@dataclass(frozen=True, kw_only=True)
class FairnessOptions:
    """What to measure; tasks and drafts are by name."""

    target: str  # directory or hub id
    tasks: Mapping[str, str]  # corpora
    drafts: Mapping[str, str]  # directories or hub ids
    alignments: tuple[Path, ...] = ()  # of drafts with other vocabularies, in any order
    gamma: int = 5  # draft tokens of a pass
    temperatures: tuple[float, ...] = (0.0,)  # to measure the acceptance at, in addition to 1
    costs: tuple[float, ...] = ()  # seconds of a draft's pass / seconds of the target's; one for all, or one for each
    rows: int = 64  # passages of each task
    length: int = 128  # the target's tokens in a passage, at most
    seed: int = 0

    @property
    def cost_of(self) -> dict[str, float | None]:
        """What a pass of each draft costs, in passes of the target; None for the ratio of the weights' bytes."""
        return dict(zip(self.drafts, cycle(self.costs or (None,)), strict=False))


def measure_fairness(asked: FairnessOptions, out: Path) -> dict[str, Any]:
    """Measure everything and write the figures to ``out``.

    Raises:
        SpectoolError: A name cannot be used, a draft needs an alignment, or draft and target have no place in common in
            a task.
    """
    require_new(out)
    corpora = {name: open_corpus(spec) for name, spec in asked.tasks.items()}
    tokenizers = {name: open_tokenizer(source) for name, source in {"target": asked.target, **asked.drafts}.items()}
    target, *others = tokenizers.values()
    aligned = _alignments_of({name: tokenizers[name] for name in asked.drafts}, target, asked.alignments)
    pairings = {name: pairing_of(tokenizers[name], target, path) for name, path in aligned.items()}
    drawn = (asked.rows, asked.length, asked.seed)
    texts = {name: read_task_text(corpus, target, others, *drawn) for name, corpus in corpora.items()}
    paths = {name: path and str(path) for name, path in aligned.items()}
    arguments = asdict(asked) | {"alignments": paths}
    passages = hashlib.sha256(repr([text.passages for text in texts.values()]).encode()).hexdigest()
    models = (asked.target, *asked.drafts.values())
    key = {"asked": arguments, "passages": passages, **contents(models, asked.alignments)}
    with resumable_work(out, json.loads(json.dumps(key)), what="measurement", begin_anew=False) as kept:
        rows = sum(len(text.passages) for text in texts.values()) * len(asked.drafts)
        with progress("measuring", rows, "rows") as done:
            measurement = Measurement(asked, OpenedModel.load(asked.target), texts, kept, done)
            figures = measurement.figures(pairings)
        identities = {name: tokenizer.identity for name, tokenizer in tokenizers.items()}
        made_from = {
            "arguments": arguments,
            "tokenizers": identities,
            "inputs": {n: t.inputs for n, t in texts.items()},
        }
        record = {
            "format": "spectool-fairness",
            "version": 2,
            "tool": f"spectool {__version__}",
            **made_from,
            **figures,
        }
        with atomic_file(out) as partial:
            partial.write_text(json.dumps(record, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        return record


def _alignments_of(
    drafts: Mapping[str, Tokenizer], target: Tokenizer, alignments: Sequence[Path]
) -> dict[str, Path | None]:
    """The alignment of every draft, found by the fingerprints of both sides.

    Raises:
        ArtifactError: An alignment is none, or is for none of the drafts.
    """
    found: dict[str, Path | None] = dict.fromkeys(drafts)
    for path in alignments:
        sides = read_manifest(path).tokenizers
        both = [sides.get(role, {}).get("fingerprint") for role in ("draft", "target")]
        fitting = [name for name, draft in drafts.items() if [draft.fingerprint, target.fingerprint] == both]
        if not fitting:
            raise ArtifactError(
                f"{path}: expected an alignment of one of {', '.join(d.name for d in drafts.values())} with "
                f"{target.name}. Make one: spectool align --draft DRAFT --target {target.name} --corpus TEXT "
                "-o pair.align"
            )
        found |= dict.fromkeys(fitting, path)
    return found


@dataclass(frozen=True)
class Measurement:
    """Measures the target and drafts on all tasks."""

    asked: FairnessOptions
    target: OpenedModel
    texts: Mapping[str, TaskText]  # by task
    kept: Path  # work directory: a task that the target or a draft has finished there is not measured again
    on_rows: Callable[[int], object]  # called with the number of rows measured since the last call

    def figures(self, pairings: Mapping[str, Pairing]) -> dict[str, Any]:
        """All figures.

        Raises:
            SpectoolError: A model cannot be loaded, or draft and target have no place in common in a task.
        """
        weights = weight_bytes(self.target.model)
        return {
            "gamma": self.asked.gamma,
            "target": {"name": self.target.name, "bytes": weights},
            "tasks": {
                task: {"rows": len(text.passages), "left_out": text.left_out} for task, text in self.texts.items()
            },
            "drafts": {name: self._of_draft(n, name, pair, weights) for n, (name, pair) in enumerate(pairings.items())},
        }

    def _by_task(self, name: str, measured: Callable[[str], TaskResult]) -> dict[str, TaskResult]:
        """The figures of each task, measured now or in an earlier run."""
        found = {}
        for number, (task, text) in enumerate(self.texts.items()):
            before = finished_task(self.kept, f"{name}-{number}")
            if before is not None:
                self.on_rows(len(text.passages))
            found[task] = before or run_task(lambda _, of: measured(of), self.kept, f"{name}-{number}", task)
        return found

    def _of_draft(self, number: int, name: str, pairing: Pairing, weights: int) -> TaskResult:
        draft, stated = OpenedModel.load(self.asked.drafts[name]), self.asked.cost_of[name]
        size = weight_bytes(draft.model)
        cost = size / weights if stated is None else stated
        by_task = self._by_task(f"draft-{number}", partial(self._compared, draft, pairing, cost))
        examples = pd.DataFrame([example for at in by_task.values() for example in at["examples"]])
        misfits = {task: (at["draft_misfit"], at["target_misfit"]) for task, at in by_task.items()}
        return {
            "path": draft.name,
            "bytes": size,
            "cost": cost,
            "cost_stated": stated is not None,
            "compared": "one vocabulary" if pairing.same_vocabulary else "shared ids",
            "shared_ids": None if pairing.same_vocabulary else pairing.size,
            "unfairness": unfairness([at["cross_entropy"] for at in by_task.values()]),
            "unfairness_kl": unfairness([at["kl"] for at in by_task.values()]),
            "spearman": examples.corr("spearman").iat[0, 1],
            "sure_gaps": formulas.sure_gaps(misfits),
            "tasks": by_task,
        }

    def _compared(self, draft: OpenedModel, pairing: Pairing, cost: float, task: str) -> TaskResult:
        """The figures of a draft on a task."""
        target, text, same = self.target, self.texts[task], pairing.same_vocabulary
        made = [paired_example(draft.tokenizer, target.tokenizer, same, passage, _WHOLE) for passage in text.passages]
        examples = [example for example in made if example is not None and (example.at != NOWHERE).any()]
        if len(examples) < 2:
            raise SpectoolError(
                f"{draft.name}: can be compared with {target.name} in {len(examples)} rows of {task}, expected at "
                "least 2 where some boundaries of their tokens are the same. Give more text (--rows), or see what the "
                "two share: spectool inspect ALIGNMENT"
            )
        temperatures, gamma = tuple(dict.fromkeys(self.asked.temperatures)), self.asked.gamma
        places = compare(draft.model, target.model, pairing, examples, self.on_rows, temperatures)
        self.on_rows(len(text.passages) - len(examples))
        figures = places.figures(gamma)
        return figures | _speeds(figures, gamma, cost, same)


def _speeds(places: Mapping[str, float], gamma: int, cost: float, same_vocabulary: bool) -> dict[str, Any]:
    """What acceptance, divergence and misfits say about speed."""
    each = 1 + gamma * cost
    alpha = places["acceptance"]
    bounds = {"fitness": formulas.least_by_fitness(places["draft_misfit"], places["target_misfit"])}
    if same_vocabulary:  # otherwise the draft gives some of the target's ids no probability: both are infinite
        bounds |= {name: formulas.least_by_divergence(places[name]) for name in ("kl", "cross_entropy")}
    return {
        "tokens_per_pass": geometric_tokens(alpha, gamma),
        "speedup": formulas.expected_speedup(alpha, gamma, cost),
        "speedup_by_place": places["tokens_by_place"] / each,
        "bounds": {
            name: {"acceptance": least, "speedup": formulas.expected_speedup(least, gamma, cost)}
            for name, least in bounds.items()
        },
    }
