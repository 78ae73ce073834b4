"""Whether texts stay the same with every architecture that mlx-lm's own tests build, with random weights.

    git clone https://github.com/ml-explore/mlx-lm
    python benchmarks/every_architecture.py mlx-lm/tests/test_models.py

Three greedy texts are written by mlx-lm, then alone with drafts of which every sixth token is wrong, and then together
as far as the model can. Weights are widened so that texts vary.
"""

import inspect
import random
from collections.abc import Iterable, Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import click
import mlx.core as mx
from mlx.utils import tree_flatten, tree_map
from mlx_lm.generate import generate_step as plain_step
from tqdm import tqdm

from spectool.runtime import Drafter, DraftStatistics, PredictionDrafter, batch_generate, generate_step
from spectool.runtime.demo_models import demo_path
from spectool.runtime.loading import load_model

TOKENS = 48
PROMPTS = [[random.Random(length).randrange(3, 32) for _ in range(length)] for length in (2, 24, 50)]


def models(path: Path, largest: float) -> dict[str, Any]:
    """The models that the tests in ``path`` build, by the name of their module; nothing is computed."""
    spec = spec_from_file_location("mlx_lm_tests", path)
    tests = module_from_spec(spec)
    spec.loader.exec_module(tests)
    found: dict[str, Any] = {}

    def keep(test: Any, model: Any, *facts: Any) -> None:
        if sum(weight.size for _, weight in tree_flatten(model.parameters())) <= largest:
            found.setdefault(type(model).__module__.rpartition(".")[2], model)

    methods = inspect.getmembers(tests.TestModels, inspect.isfunction)
    building = [name for name, method in methods if "self.model_test_runner(" in inspect.getsource(method)]
    tests.TestModels.model_test_runner = keep
    for name in building:
        try:
            getattr(tests.TestModels(name), name)()
        except Exception as error:  # a package is missing, or Metal
            click.echo(f"{name}: {type(error).__name__}: {error}")
    found.pop("phi3small", None)  # writes to rows that its vocabulary of 1,000 tokens does not have
    return found


class EachItsOwn(Drafter):
    """Each fork follows the next of several predictions."""

    def __init__(self, predictions: Iterable[Sequence[int]]) -> None:
        self._left = iter(predictions)

    def fork(self) -> Drafter:
        """The drafter of the next text."""
        return PredictionDrafter(next(self._left))


@click.command()
@click.argument("path", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--largest", default=2e7, show_default=True, help="Numbers in the weights of a model, at most.")
def main(path: Path, largest: float) -> None:
    """Compare and print."""
    tokenizer, different = load_model(str(demo_path("target")))[1], []
    for name, model in tqdm(models(path, largest).items(), mininterval=10):
        model.update(tree_map(lambda each: each * 2.5 if each.ndim == 2 else each, model.parameters()))
        model.eval()
        texts = [[int(token) for token, _ in plain_step(mx.array(each), model, max_tokens=TOKENS)] for each in PROMPTS]
        total, options = DraftStatistics(), {"num_draft_tokens": 4, "max_tokens": TOKENS}
        spoilt = [[token ^ (place % 6 == 5) for place, token in enumerate(text)] for text in texts]
        alone = [
            [token for token, *_ in generate_step(prompt, model, drafter=drafter, statistics=total, **options)]
            for prompt, drafter in zip(PROMPTS, map(PredictionDrafter, spoilt), strict=True)
        ]
        found = batch_generate(model, tokenizer, PROMPTS, drafter=EachItsOwn(spoilt), **options)
        together = [text[: len(each)] for text, each in zip(texts, found.tokens, strict=True)]  # some have an end
        if alone != texts or found.tokens != together:
            different.append(name)
        click.echo(f"{name}: {total}{', DIFFERENT' if name in different[-1:] else ''}")
    click.echo(f"different: {', '.join(different) or 'none'}")


if __name__ == "__main__":
    main()
