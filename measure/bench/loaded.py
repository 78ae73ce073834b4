"""A loaded target with all its drafters, ready to measure prompts in every way."""

from typing import Any

from mlx.utils import tree_flatten

from spectool.artifacts.formats.benchmark import PLAIN, Block, Row
from spectool.measure.bench.energy import Meter
from spectool.measure.bench.experiment import DrafterSpec, Experiment, ModelSpec
from spectool.measure.bench.measuring import Target, Way
from spectool.measure.bench.progress import Progress
from spectool.measure.bench.prompt_sources import Prompt, encoded
from spectool.runtime.loading import load_drafter
from spectool.runtime.models import load_model


class Loaded:
    """A target and its drafters."""

    def __init__(self, experiment: Experiment, spec: ModelSpec, meter: Meter, progress: Progress) -> None:
        """Load all that ``spec`` names, each draft model once."""
        progress.say(f"loading {spec.name}")
        self._spec, self._seed, self._progress = spec, experiment.seed, progress
        self._model, self._tokenizer = load_model(spec.path)
        stop = frozenset(() if experiment.ignore_eos else self._tokenizer.eos_token_ids)
        self._target = Target(spec.name, self._model, stop, experiment.tokens, experiment.temperature, meter)
        self._drafts: dict[str, Any] = {}
        self._ways: list[tuple[DrafterSpec | None, Way]] = [(None, Way(PLAIN, None, 0, None))]
        self._warm: set[int] = set()  # ways that have run
        for drafter in spec.drafters:
            progress.say(f"loading {drafter.name}")
            if drafter.draft_model is not None and drafter.draft_model not in self._drafts:
                self._drafts[drafter.draft_model] = load_model(drafter.draft_model)
            for strategy in drafter.strategies or (None,):
                loaded = load_drafter(
                    self._tokenizer,
                    dictionary=drafter.dictionary,
                    draft_model=None if drafter.draft_model is None else self._drafts[drafter.draft_model],
                    alignment=drafter.alignment,
                    strategy=strategy,
                    history=drafter.history,
                )
                for k in experiment.num_draft_tokens:
                    self._ways.append((drafter, Way(drafter.name, strategy, k, loaded)))

    def sizes(self) -> dict[str, Row]:
        """Return the bytes of weights, of the model and of each drafter's."""
        drafts = {
            drafter.name: _bytes(self._drafts[drafter.draft_model][0])
            for drafter in self._spec.drafters
            if drafter.draft_model is not None
        }
        return {"sizes": {self._spec.name: _bytes(self._model)}, "draft_sizes": {self._spec.name: drafts}}

    def measure(self, number: int, prompt: Prompt, repetition: int) -> Block:
        """Measure one prompt in every way that serves its language; ways that never ran are warmed up first."""
        labels = {"language": prompt.language, "kind": prompt.kind, "prompt": prompt.name, "repetition": repetition}
        drafters = [None, *self._spec.drafters_for(prompt.language)]
        ways = [way for drafter, way in self._ways if drafter in drafters]
        ids = encoded(prompt, self._tokenizer)
        cold = [way for way in ways if id(way) not in self._warm]
        if cold:
            self._progress.say("warming up")
            self._target.warm_up(ids, cold)
            self._warm.update(map(id, cold))
            self._progress.say("measuring")
        return self._target.measure(number, ids, ways, (self._seed, number), labels, self._progress.step)


def _bytes(model: Any) -> int:
    weights: dict[str, Any] = dict(tree_flatten(model.parameters()))
    return sum(weight.nbytes for weight in weights.values())
