"""A loaded target with all its drafters, ready to measure prompts in every configuration."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from mlx.utils import tree_flatten

from spectool.artifacts.console import say
from spectool.artifacts.formats.benchmark import Row
from spectool.measure.bench.energy import Meter
from spectool.measure.bench.experiment import Experiment, ModelSpec
from spectool.measure.bench.timing import Configuration, Target
from spectool.runtime.drafters.prompt_lookup import with_prompt_lookup
from spectool.runtime.loading import load_drafter
from spectool.runtime.models import load_model


class Loaded(NamedTuple):
    """A target and what drafts for it.

    Attributes:
        target: Measures.
        tokenizer: mlx-lm's ``TokenizerWrapper`` of it.
        configurations: Plain decoding, and every combination of drafter, strategy and draft length.
        weights: By the target's name: bytes (``sizes``) and bits of quantised weights, its own and of draft models.
    """

    target: Target
    tokenizer: Any
    configurations: Sequence[Configuration]
    weights: dict[str, Row]


def load(experiment: Experiment, spec: ModelSpec, meter: Meter) -> Loaded:
    """Load a target and all its drafters, each draft model once; say so before each.

    Args:
        experiment: What is measured.
        spec: What to load.
        meter: Counts energy.
    """
    say(f"loading {spec.name}")
    model, tokenizer = load_model(spec.path)
    configurations, models, drafts = [Configuration()], dict[str, Any](), dict[str, Any]()
    for drafter in spec.drafters:
        say(f"loading {drafter.name}")
        if drafter.draft_model is not None:
            if drafter.draft_model not in models:
                models[drafter.draft_model] = load_model(drafter.draft_model)
            drafts[drafter.name] = models[drafter.draft_model][0]
        for strategy in drafter.strategies or (None,):
            loaded = load_drafter(
                tokenizer,
                dictionary=drafter.dictionary,
                draft_model=None if drafter.draft_model is None else models[drafter.draft_model],
                alignment=drafter.alignment,
                strategy=strategy,
                history=drafter.history,
                min_probability=drafter.min_draft_prob,
            )
            loaded = with_prompt_lookup(loaded) if drafter.prompt_lookup else loaded
            configurations += [
                Configuration(drafter.name, strategy, k, loaded, drafter.verify, drafter.languages)
                for k in experiment.num_draft_tokens
            ]
    stop = frozenset(() if experiment.ignore_eos else tokenizer.eos_token_ids)
    weights: dict[str, Row] = {}
    for part, count in (("sizes", _bytes), ("bits", _bits)):
        weights[part] = {spec.name: count(model)}
        weights[f"draft_{part}"] = {spec.name: {name: count(draft) for name, draft in drafts.items()}}
    return Loaded(Target(spec.name, model, stop, experiment.tokens, meter), tokenizer, configurations, weights)


def _bytes(model: Any) -> int:
    weights: dict[str, Any] = dict(tree_flatten(model.parameters()))
    return sum(weight.nbytes for weight in weights.values())


def _bits(model: Any) -> list[int]:
    """Return the bits of quantised weights; several where layers differ, none where nothing is quantised."""
    return sorted({module.bits for module in model.modules() if hasattr(module, "bits")})
