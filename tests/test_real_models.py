"""The main job with pretrained models, where they are in the cache: ``make test-real``.

``python benchmarks/real_models.py smollm2-135m gemma3-270m`` puts them there; SPECTOOL_MODELS names another folder.
Output is compared with mlx-lm's own loop. A difference is excused only where the two best logits are as near as
float32 rounding makes them.
"""

import os
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from click.testing import CliRunner
from platformdirs import user_cache_path

from spectool.cli import main
from spectool.runtime import DraftStatistics, load_drafter, stream_generate
from spectool.runtime.loading import load_model
from spectool.runtime.mlx_lm_compat import generate_step
from spectool.tests.runtime.test_groups import written

pytestmark = pytest.mark.real
MODELS = Path(os.environ.get("SPECTOOL_MODELS", user_cache_path("spectool-models")))
PAIR = ("smollm2-135m", "gemma3-270m")
SPREAD = "qwen2.5-coder-0.5b"  # has heads for two processes
PROMPTS = (
    "The river rises in the mountains, and the river ends in the sea. The river",
    "Rzeka ma swoje źródła w górach, a kończy bieg w morzu. Rzeka",
    "def mean(values):\n    total = 0\n    for value in values:\n        total",
)
TOKENS = 16
NEAR = 1e-3  # logits this near are a tie at float32


@pytest.fixture(scope="module")
def models() -> dict[str, tuple[Any, Any]]:
    missing = [name for name in PAIR if not (MODELS / name / "config.json").exists()]
    if missing:
        names = " ".join(missing)
        pytest.skip(f"no {names} in {MODELS}; get them with: python benchmarks/real_models.py {names}")
    return {name: load_model(str(MODELS / name)) for name in PAIR}


@pytest.fixture(scope="module")
def alignment(models: dict[str, tuple[Any, Any]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An alignment of the second of the pair towards the first."""
    target, draft = PAIR
    out = tmp_path_factory.mktemp("pair") / "x.align"
    sides = "--draft", MODELS / draft, "--target", MODELS / target
    done = CliRunner().invoke(main, [*map(str, ("align", *sides, "--corpus", "sample:pl", "-o", out))])
    assert done.exit_code == 0, done.output
    return out


@pytest.fixture(scope="module")
def decoded(models: dict[str, tuple[Any, Any]]) -> dict[str, list[list[int]]]:
    """What mlx-lm's loop writes to each prompt, by target."""
    return {
        name: [
            [int(token) for token, _ in generate_step(mx.array(tokenizer.encode(prompt)), model, max_tokens=TOKENS)]
            for prompt in PROMPTS
        ]
        for name, (model, tokenizer) in models.items()
    }


def gap(model: Any, tokenizer: Any, prompt: str | list[int], ours: list[int], plain: list[int]) -> float:
    """Return how far apart the logits of two outputs are where they part."""
    at = next(i for i, (one, other) in enumerate(zip(ours, plain, strict=False)) if one != other)
    ids = tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
    logits = model(mx.array([ids + plain[:at]]))[0, -1]
    return abs(float(logits[ours[at]] - logits[plain[at]]))


@pytest.mark.parametrize(
    ("target", "drafts"),
    [(PAIR[0], "history"), (PAIR[1], "history"), (PAIR[0], "draft model"), (PAIR[0], "draft model and history")],
)
def test_output_is_plain_decodings(
    models: dict[str, tuple[Any, Any]],
    decoded: dict[str, list[list[int]]],
    target: str,
    drafts: str,
    request: pytest.FixtureRequest,
) -> None:
    model, tokenizer = models[target]
    aligned = request.getfixturevalue("alignment") if "model" in drafts else None
    wanted = {"draft_model": models[PAIR[1]], "alignment": aligned} if aligned else {}
    drafter = load_drafter(tokenizer, history="history" in drafts, **wanted)
    proposed = passes = 0
    for prompt, plain in zip(PROMPTS, decoded[target], strict=True):
        responses = stream_generate(model, tokenizer, prompt, drafter=drafter, max_tokens=TOKENS, num_draft_tokens=4)
        ours = []
        for response in responses:
            ours.append(int(response.token))
            statistics = response.drafting
        if ours != plain[: len(ours)]:
            assert gap(model, tokenizer, prompt, ours, plain) < NEAR
        proposed, passes = proposed + statistics.proposed, passes + statistics.passes
    assert proposed > 0
    assert passes < len(PROMPTS) * TOKENS


def test_a_text_that_differs_in_places_from_its_prediction_takes_few_passes(models: dict[str, tuple[Any, Any]]) -> None:
    model, tokenizer = models["smollm2-135m"]
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Write a short story about a river."}], add_generation_prompt=True
    )

    def answer(**options: Any) -> tuple[list[int], DraftStatistics]:
        responses = list(stream_generate(model, tokenizer, prompt, max_tokens=64, **options))
        return [each.token for each in responses], responses[-1].drafting

    plain, _ = answer()
    words = tokenizer.decode(plain).split(" ")
    for place in (len(words) // 3, 2 * len(words) // 3):
        words[place : place + 1] = ["another", "word"]
    ours, statistics = answer(prediction=" ".join(words), num_draft_tokens=8)
    if ours != plain:
        assert gap(model, tokenizer, prompt, ours, plain) < NEAR
    assert statistics.passes <= len(plain) / 2
    assert statistics.accepted_by["prediction"] >= len(plain) / 2


def test_a_model_over_two_processes_writes_the_same_text(tmp_path: Path) -> None:
    if not (MODELS / SPREAD / "config.json").exists():
        pytest.skip(f"no {SPREAD} in {MODELS}; get it with: python benchmarks/real_models.py {SPREAD}")
    written(tmp_path, 2, model=MODELS / SPREAD, generations=2)
