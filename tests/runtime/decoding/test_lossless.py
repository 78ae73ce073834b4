"""The main promise: with every drafter the output is plain decoding's, token for token.

A pass over several positions may round differently from a pass over one. Where the outputs part, the plain logits at
that position must therefore put both tokens within a tolerance of the maximum. Such near-ties are counted, and what
follows one is not compared.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import mlx.core as mx
import pytest

from spectool.runtime.decoding.generation import generate_step
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.drafters.draft_model import ModelDrafter
from spectool.runtime.drafters.drafter import Drafter, DrafterSet
from spectool.runtime.drafters.lookup import LookupDrafter
from spectool.tests.runtime.fake_drafters import Guesser, Reference, dictionary_of
from spectool.tests.runtime.models import KINDS, LONE, drafted, perturbed, plain, prompts, tiny_model
from spectool.tests.tiers import nightly

LARGE = {"deepseek_v41"}  # kinds that take longer than all others, so they are tested with the system tests

# Relative to the largest absolute logit.
TIE = {None: 1e-5, 8: 1e-4}

Make = Callable[[Any, Any, Sequence[int]], Drafter]
DRAFTERS: dict[str, Make] = {
    "oracle": lambda same, noisy, text: Reference(text),
    "spoilt oracle": lambda same, noisy, text: Reference(text, wrong=0.3, seed=sum(text)),
    "guesser": lambda same, noisy, text: Guesser(),
    "prompt lookup": lambda same, noisy, text: LookupDrafter(history=True),
    "dictionary": lambda same, noisy, text: dictionary_of(text),
    "same model": lambda same, noisy, text: ModelDrafter(same),
    "noisy model": lambda same, noisy, text: ModelDrafter(noisy),
    "hesitant model": lambda same, noisy, text: ModelDrafter(noisy, min_probability=0.03),
    "hybrid": lambda same, noisy, text: DrafterSet(
        [dictionary_of(text), LookupDrafter(history=True), Reference(text, wrong=0.6), ModelDrafter(noisy)]
    ),
}


def is_near_tie(model: Any, history: Sequence[int], one: int, other: int, tolerance: float) -> bool:
    """Whether plain decoding could as well have chosen either of two tokens after ``history``."""
    logits = model(mx.array([list(history)]))[0, -1]
    gap = mx.max(logits) - mx.minimum(logits[one], logits[other])
    return bool(gap.item() <= tolerance * mx.max(mx.abs(logits)).item())


def compare(model: Any, prompt: Sequence[int], expected: list[int], got: list[int], tolerance: float) -> int:
    """Return 0 for equal outputs, 1 for a near-tie; fail on anything else."""
    if got == expected:
        return 0
    assert len(got) == len(expected)
    at = next(i for i, (a, b) in enumerate(zip(got, expected, strict=True)) if a != b)
    history = [*prompt, *expected[:at]]
    assert is_near_tie(model, history, expected[at], got[at], tolerance), (
        f"prompt {list(prompt)}: token {at} is {got[at]}, plain decoding says {expected[at]}"
    )
    return 1


@cache
def plain_text(kind: str, bits: int | None, prompt: tuple[int, ...], count: int, **options: Any) -> list[int]:
    """Plain decoding's output: the same for every drafter, and half of the time of a comparison."""
    return plain(tiny_model(kind, bits=bits), prompt, count, **options)


def check_all(kind: str, bits: int | None, number: int, count: int, names: Sequence[str], **options: Any) -> None:
    """Compare ``number`` prompts and ``count`` tokens under every drafter in ``names``."""
    model = tiny_model(kind, bits=bits)
    noisy = perturbed(tiny_model(kind), kind=kind, noise=0.03)
    totals = {name: DraftStatistics() for name in names}
    ties = dict.fromkeys(names, 0)
    host_options = {key: value for key, value in options.items() if key != "num_draft_tokens"}
    for prompt in prompts(number):
        expected = plain_text(kind, bits, tuple(prompt), count, **host_options)
        for name in names:
            drafter = DRAFTERS[name](model, noisy, expected)
            got = drafted(model, prompt, drafter, count, statistics=totals[name], **options)
            ties[name] += compare(model, prompt, expected, got, TIE[bits])
    for name, total in totals.items():
        print(
            f"{kind} {bits or 32} bits, {name}: {number} prompts, near-ties {ties[name]}, "
            f"acceptance {total.acceptance_rate:.2f}, tokens per pass {total.tokens_per_pass:.2f}"
        )
        assert total.tokens == number * count
        assert total.proposed > 0
    # An oracle that is not believed, or a lucky guesser, would be a mistake of the loop.
    for name in {"oracle", "same model"} & totals.keys():
        assert any(ties.values()) or totals[name].acceptance_rate == 1.0
    if "spoilt oracle" in totals:
        assert 0.1 < totals["spoilt oracle"].acceptance_rate < 0.98
    if "guesser" in totals:
        assert totals["guesser"].acceptance_rate < 0.1
    assert sum(ties.values()) <= 0.02 * number * len(names)


@pytest.mark.parametrize(("number", "bits"), [(1, None), *nightly((4, None), (4, 8))])
def test_every_drafter_equals_plain_decoding(number: int, bits: int | None) -> None:
    check_all("llama", bits, number, 32, list(DRAFTERS))


@pytest.mark.parametrize(("number", "bits"), [(10, 8), *nightly((50, None), (50, 8))])
def test_oracles_equal_plain_decoding_on_many_prompts(number: int, bits: int | None) -> None:
    check_all("llama", bits, number, 12, ["spoilt oracle"])


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("bits", [None, 8])
@pytest.mark.parametrize("name", list(DRAFTERS))
def test_every_drafter_equals_plain_decoding_at_length(kind: str, bits: int | None, name: str) -> None:
    check_all(kind, bits, 60, 128, [name])


@pytest.mark.filterwarnings("ignore:drafts end where the text is 64 tokens long")
@pytest.mark.parametrize("kind", [*KINDS, *(each for each in LONE if each not in LARGE), *nightly(*LARGE)])
@pytest.mark.parametrize(("number", "first"), [(1, 2), *nightly((2, 0))])
def test_every_model_class_and_kind_of_cache(kind: str, number: int, first: int) -> None:
    check_all(kind, None, number, 32, ["oracle", "guesser", "spoilt oracle", "noisy model"][first:])


@pytest.mark.parametrize("number", [1, *nightly(8)])
@pytest.mark.parametrize("start", [20, *nightly(0)])
# 4 bits: a token that saw the cache unquantised too long, or too early so, would be another one.
@pytest.mark.parametrize(("kind", "bits", "models"), [("llama", 8, ["noisy model"]), ("qwen3_5", 4, [])])
def test_a_quantised_cache_changes_nothing(kind: str, bits: int, models: list[str], start: int, number: int) -> None:
    # start=20 is crossed in the middle of the drafts of most prompts.
    options = {"kv_bits": bits, "kv_group_size": 32, "quantized_kv_start": start}
    check_all(kind, None, number, 32, ["oracle", "spoilt oracle", *models], **options)


@pytest.mark.parametrize("number", [1, *nightly(4)])
def test_the_draft_length_changes_nothing(number: int) -> None:
    for length in (1, 3, 16):
        check_all("llama", None, number, 24, ["spoilt oracle", "noisy model"], num_draft_tokens=length)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["gemma3_text", "ministral3"])
def test_windows_wrap_in_the_middle_of_drafts_and_go_on(kind: str) -> None:
    model = tiny_model(kind)
    noisy = perturbed(model, kind=kind, noise=0.01)
    # Prompts that end before, at and after the edge of the window, alone and in chunks.
    for length, options in ((3, {}), (23, {}), (47, {}), (80, {"prefill_step_size": 7})):
        prompt = [(7 * number) % 256 for number in range(3, 3 + length)]
        expected = plain(model, prompt, 60, **options)
        for drafter in (Reference(expected), Reference(expected, wrong=0.3), Guesser(), ModelDrafter(noisy)):
            total = DraftStatistics()
            got = drafted(model, prompt, drafter, 60, statistics=total, **options)
            assert not total.failures, "a drafter that is switched off would be compared no more"
            assert compare(model, prompt, expected, got, TIE[None]) == 0
            # Drafts go on to the end of the text.
            assert isinstance(drafter, Guesser) or total.drafted_passes >= total.passes - 2


@pytest.mark.parametrize("window", [8, *nightly(24)])
@pytest.mark.parametrize("prompt", [[5, 6, 7], *nightly(prompts(4)[3])])
def test_windows_that_keep_their_first_tokens(prompt: list[int], window: int) -> None:
    # qwen2 leaves the choice of cache to mlx-lm, which keeps the first 4 tokens.
    model = tiny_model("qwen2")
    expected = plain(model, prompt, 50, max_kv_size=window)
    assert expected != plain(model, prompt, 50)
    for drafter in (Reference(expected), Reference(expected, wrong=0.3), Guesser()):
        assert drafted(model, prompt, drafter, 50, max_kv_size=window) == expected


def test_drafts_end_where_positions_depend_on_the_pass() -> None:
    model, prompt = tiny_model("internlm2"), list(range(3, 33))
    expected = plain(model, prompt, 80)
    for drafter in (Reference(expected), Reference(expected, wrong=0.3)):
        with pytest.warns(RuntimeWarning, match="drafts end where the text is 64 tokens long"):
            steps = list(generate_step(prompt, model, drafter=drafter, num_draft_tokens=8, max_tokens=80))
        assert [token for token, _, _ in steps] == expected
        drafted = [len(prompt) + place for place, (_, _, was_drafted) in enumerate(steps) if was_drafted]
        assert 58 < max(drafted) < 64


@pytest.mark.nightly
def test_no_drafts_where_several_tokens_are_read_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    phi = {
        "hidden_size": 64,
        "dense_attention_every_n_layers": 2,
        "ff_intermediate_size": 96,
        "gegelu_limit": 20.0,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "layer_norm_epsilon": 1e-5,
        "blocksparse_block_size": 32,
        "blocksparse_num_local_blocks": 1,
        "blocksparse_vert_stride": 2,
    }
    monkeypatch.setitem(LONE, "phi3small", phi)
    model = tiny_model("phi3small", vocabulary=100_352)  # the ids that it leaves out are fixed
    expected, total = plain(model, [5, 6, 7], 40), DraftStatistics()
    with pytest.warns(RuntimeWarning, match="decoding goes on without drafts"):
        steps = generate_step([5, 6, 7], model, drafter=Reference(expected), max_tokens=40, statistics=total)
    assert [token for token, _, _ in steps] == expected
    assert total.proposed == 0 and not total.failures
