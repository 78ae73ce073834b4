"""A text in a batch is the text that the same request gets alone, with every kind of cache."""

import random
from typing import Any

import pytest

from spectool.runtime.decoding.drafter import Drafter
from spectool.runtime.drafters.lookup import LookupDrafter
from spectool.tests.runtime.batching.schedules import Wanted, check, run, schedule
from spectool.tests.runtime.decoding.test_lossless import TIE
from spectool.tests.runtime.fake_drafters import Failing, Guesser, Reference
from spectool.tests.runtime.models import plain, tiny_model

KINDS = ["llama", "qwen3", "gemma3_text", "ministral3", "qwen3_5", "falcon_h1", "mamba2"]


def schedules(kind: str, count: int) -> None:
    model: Any = tiny_model(kind)
    ties = shared = 0
    for number in range(count):
        seed = random.randrange(1 << 30)
        print(f"{kind}, schedule {number}: seed {seed}")
        rng = random.Random(seed)
        wanted = schedule(rng, rng.randint(1, 7), 256, 80, 60)

        def make(one: Wanted, rng: random.Random = rng) -> Drafter | None:
            text = plain(model, [*one.held, *one.prompt], one.options["max_tokens"])
            return rng.choice(
                [
                    None,
                    LookupDrafter(history=True),
                    Reference(text),
                    Reference(text, wrong=0.3, seed=rng.randrange(99)),
                    Guesser(seed=rng.randrange(99)),
                    Failing(text, "propose", 3),
                ]
            )

        shared += run(model, wanted, make, rows=rng.randint(2, 5)) > 1
        ties += check(model, wanted, TIE[None])
    assert shared > count // 2
    assert ties <= count


@pytest.mark.filterwarnings("ignore:drafter 'failing' is switched off")
@pytest.mark.parametrize("kind", KINDS)
def test_every_text_is_its_own(kind: str) -> None:
    schedules(kind, 5)
