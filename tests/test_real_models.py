"""The main job with pretrained models, where they are in the cache: ``make test-real``.

``python benchmarks/real_models.py smollm2-135m gemma3-270m`` puts them there; SPECTOOL_MODELS names another folder.
Output is compared with mlx-lm's own loop. A difference is excused only where the two best logits are as near as
float32 rounding makes them.
"""

import os
import statistics
import time
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

pytestmark = pytest.mark.real
MODELS = Path(os.environ.get("SPECTOOL_MODELS", user_cache_path("spectool-models")))
PAIR = ("smollm2-135m", "gemma3-270m")
PROMPTS = (
    "The river rises in the mountains, and the river ends in the sea. The river",
    "Rzeka ma swoje źródła w górach, a kończy bieg w morzu. Rzeka",
    "def mean(values):\n    total = 0\n    for value in values:\n        total",
)
TOKENS = 24
NEAR = 1e-3  # logits this near are a tie at float32


@pytest.fixture(scope="module")
def models() -> dict[str, tuple[Any, Any]]:
    missing = [name for name in PAIR if not (MODELS / name / "config.json").exists()]
    if missing:
        names = " ".join(missing)
        pytest.skip(f"no {names} in {MODELS}; get them with: python benchmarks/real_models.py {names}")
    return {name: load_model(str(MODELS / name)) for name in PAIR}


@pytest.fixture(scope="module")
def alignments(models: dict[str, tuple[Any, Any]], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Alignments towards each of the pair, by target."""
    made = {target: tmp_path_factory.mktemp("pair") / f"{target}.align" for target in PAIR}
    for target, draft in (PAIR, PAIR[::-1]):
        sides = "--draft", MODELS / draft, "--target", MODELS / target
        done = CliRunner().invoke(main, [*map(str, ("align", *sides, "--corpus", "sample:pl", "-o", made[target]))])
        assert done.exit_code == 0, done.output
    return made


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


def gap(model: Any, tokenizer: Any, prompt: str, ours: list[int], plain: list[int]) -> float:
    """Return how far apart the logits of two outputs are where they part."""
    at = next(i for i, (one, other) in enumerate(zip(ours, plain, strict=False)) if one != other)
    logits = model(mx.array([tokenizer.encode(prompt) + plain[:at]]))[0, -1]
    return abs(float(logits[ours[at]] - logits[plain[at]]))


@pytest.mark.parametrize("drafts", ["history", "draft model", "draft model and history"])
@pytest.mark.parametrize("target", PAIR)
def test_output_is_plain_decodings(
    models: dict[str, tuple[Any, Any]],
    alignments: dict[str, Path],
    decoded: dict[str, list[list[int]]],
    target: str,
    drafts: str,
) -> None:
    model, tokenizer = models[target]
    (other,) = (name for name in PAIR if name != target)
    wanted = {"draft_model": models[other], "alignment": alignments[target]} if "model" in drafts else {}
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


def test_a_file_that_differs_in_places_from_its_prediction_takes_few_passes() -> None:
    """Also, what a prediction in another language costs."""
    path = MODELS / "qwen2.5-coder-0.5b"
    if not (path / "config.json").exists():
        pytest.skip(f"no {path.name} in {MODELS}; get it with: python benchmarks/real_models.py {path.name}")
    model, tokenizer = load_model(str(path))
    file = (Path(__file__).parents[1] / "runtime" / "draft_length" / "controllers.py").read_text(encoding="utf-8")
    before = file.replace("_idle", "_unused").replace("known", "earlier")
    polish = "Wczoraj wieczorem w domu kultury odbyło się spotkanie mieszkańców z burmistrzem miasta. " * 12

    def answer(question: str, max_tokens: int, **options: Any) -> tuple[list[int], DraftStatistics, float]:
        prompt = tokenizer.apply_chat_template([{"role": "user", "content": question}], add_generation_prompt=True)
        began = time.process_time()
        responses = list(stream_generate(model, tokenizer, prompt, max_tokens=max_tokens, **options))
        return [each.token for each in responses], responses[-1].drafting, time.process_time() - began

    copied = f"Write this file once more, without any change.\n\n```python\n{file}```"
    expected, plain, seconds = answer(copied, 600)
    print(f"{len(tokenizer.encode(file))} tokens of the file; {plain} in {seconds:.1f} s")
    for name, drafter in (("alone", None), ("with history", load_drafter(tokenizer))):
        got, with_prediction, seconds = answer(copied, 600, prediction=before, drafter=drafter)
        print(f"{name}: {with_prediction} in {seconds:.1f} s, by {dict(with_prediction.accepted_by)}")
        assert got == expected
        assert with_prediction.passes <= 0.25 * plain.passes
    ratios = []
    for _ in range(3):
        question = "Explain in English what a suffix automaton is."
        expected, _, without = answer(question, 200)
        got, _, seconds = answer(question, 200, prediction=polish)
        assert got == expected
        ratios.append(seconds / without)
    print(f"a prediction in another language: {sorted(ratios)} of the processor time")
    assert statistics.median(ratios) < 1.1
