"""The loop's edges: limits, bad drafters, early ends, and the state of the caches after each."""

from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.generate import generate_step as host_generate_step
from mlx_lm.models.cache import KVCache, make_prompt_cache
from mlx_lm.sample_utils import make_logits_processors

from spectool import RuntimeUnsupported
from spectool.runtime.decoding.generation import generate_step
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.drafters.drafter import Cycle, DrafterSet
from spectool.tests.runtime.caches.holding import assert_holds
from spectool.tests.runtime.decoding.tiny_texts import PROMPT, generated
from spectool.tests.runtime.fake_drafters import Failing, Fixed, Reference
from spectool.tests.runtime.models import drafted, plain, prompts, tiny_model


def test_yields_what_mlx_lm_yields(model: Any, text: list[int]) -> None:
    steps = list(generate_step(mx.array(PROMPT), model, drafter=Reference(text), num_draft_tokens=8, max_tokens=12))
    assert [token for token, _, _ in steps] == text[:12]
    for token, logprobs, _ in steps:
        assert logprobs.shape == (256,)
        assert mx.argmax(logprobs).item() == token
        assert abs(mx.logsumexp(logprobs).item()) < 1e-4
    # 8 drafts and one of the target's own, then 2 drafts and one.
    assert [drafted for _, _, drafted in steps] == [True] * 8 + [False] + [True] * 2 + [False]


@pytest.mark.parametrize("count", [1, 2, 3, 9, 10])
def test_never_proposes_beyond_max_tokens(model: Any, text: list[int], count: int) -> None:
    drafter, total = Reference(text), DraftStatistics()
    assert generated(model, drafter, count, statistics=total) == text[:count]
    # The last cycle adds a token of the target's own.
    assert drafter.committed == text[:count]
    assert all(limit <= count - 1 for limit in drafter.limits)
    assert total.tokens == count
    assert total.passes == (count + 8) // 9


def test_no_tokens_and_no_limit(model: Any, text: list[int]) -> None:
    cache = make_prompt_cache(model)
    assert generated(model, Reference(text), 0, prompt_cache=cache) == []
    assert_holds(model, cache, PROMPT[:-1])
    endless = generate_step(mx.array(PROMPT), model, drafter=Reference(text), num_draft_tokens=8, max_tokens=-1)
    assert [next(endless)[0] for _ in range(30)] == text[:30]
    endless.close()


@pytest.mark.parametrize("drafts", [0, 8])
def test_no_drafts_is_plain_decoding(model: Any, text: list[int], drafts: int) -> None:
    total, drafter = DraftStatistics(), Reference(text)
    asked = drafter if drafts == 0 else None
    assert generated(model, asked, 10, num_draft_tokens=drafts, statistics=total) == text[:10]
    assert (total.passes, total.proposed) == (10, 0)
    assert (drafter.started, drafter.committed, drafter.limits) == ([], [], []), "never asked, it reads nothing"


def test_proposals_are_cut_at_the_limit(model: Any, text: list[int]) -> None:
    cycles: list[Cycle] = []
    generated(model, Fixed(text), 12, num_draft_tokens=3, on_cycle=cycles.append)
    assert max(len(cycle.proposal) for cycle in cycles) == 3


@pytest.mark.parametrize("method", ["start", "propose", "commit"])
@pytest.mark.parametrize("call", [1, 2])
def test_a_failing_drafter_is_switched_off(
    model: Any, text: list[int], method: str, call: int, caplog: pytest.LogCaptureFixture
) -> None:
    drafter = Failing(text, method, call)
    assert generated(model, drafter, 30) == text[:30]
    if (method, call) == ("start", 2):
        assert not caplog.text
    else:
        assert "drafter 'failing' is switched off for this generation: OSError: disk gone" in caplog.text
        assert drafter.calls == call, "asked again after it had failed"


def test_every_failure_is_reported_and_counted(model: Any, text: list[int], caplog: pytest.LogCaptureFixture) -> None:
    total = DraftStatistics()
    hybrid = DrafterSet([Failing(text, "commit", 1), Reference(text), Failing(text, "start", 1)])
    for drafter in (Failing(text, "propose", 1), Failing(text, "propose", 1), hybrid):
        assert generated(model, drafter, 9, statistics=total) == text[:9]
    assert caplog.text.count("'failing' is switched off") == len(caplog.records) == 4
    assert total.failures == ["failing: OSError: disk gone"] * 4


def test_cycles_and_statistics_agree(model: Any, text: list[int]) -> None:
    total, cycles = DraftStatistics(), list[Cycle]()
    got = generated(model, Reference(text, wrong=0.3), 40, statistics=total, on_cycle=cycles.append)
    assert got == text
    assert [token for cycle in cycles for token in cycle.committed] == got
    for cycle in cycles:
        assert cycle.committed[:-1] == cycle.proposal[: cycle.accepted]
        if cycle.accepted < len(cycle.proposal):
            assert cycle.committed[-1] != cycle.proposal[cycle.accepted]
    assert total.passes == len(cycles)
    assert total.tokens == len(got)
    assert total.proposed == sum(len(cycle.proposal) for cycle in cycles) == total.proposed_by["oracle"]
    assert total.accepted == sum(cycle.accepted for cycle in cycles) == total.accepted_by["oracle"]


def test_logits_processors_see_the_true_history(model: Any, text: list[int]) -> None:
    histories: list[list[int]] = []

    def spy(tokens: mx.array, logits: mx.array) -> mx.array:
        assert logits.shape == (1, 256)
        histories.append(tokens.tolist())
        return logits

    drafter = Reference(text, wrong=0.4)
    assert generated(model, drafter, 30, logits_processors=[spy]) == text[:30]
    for length in range(30):
        assert PROMPT + text[:length] in histories


def test_the_same_tokens_as_from_the_whole_prompt(model: Any) -> None:
    prompt = max(prompts(6), key=len)
    processors = make_logits_processors(repetition_penalty=1.5, repetition_context_size=len(prompt))
    expected = plain(model, prompt, 20, logits_processors=processors)
    assert expected != plain(model, prompt[9:], 20, logits_processors=processors)
    cache = make_prompt_cache(model)
    model(mx.array([prompt[:9]]), cache=cache)
    oracle = Reference(expected, wrong=0.3)
    options: dict[str, Any] = {"logits_processors": processors, "prompt_cache": cache, "cached_tokens": prompt[:9]}
    assert drafted(model, prompt[9:], oracle, 20, **options) == expected
    assert oracle.started == prompt


def test_progress_counts_the_prompt_as_mlx_lm_does(model: Any) -> None:
    prompt = mx.array(max(prompts(6), key=len))

    def told(step: Any) -> list[tuple[int, int]]:
        calls: list[tuple[int, int]] = []
        options: Any = {"prompt_progress_callback": lambda fed, total: calls.append((fed, total))}
        list(step(prompt, model, max_tokens=3, prefill_step_size=4, **options))
        return calls

    assert told(generate_step) == told(host_generate_step)
    assert told(generate_step)[0] == (0, prompt.size) and told(generate_step)[-1] == (prompt.size, prompt.size)


def test_a_prompt_cache_of_another_model_is_refused(model: Any) -> None:
    for other in (make_prompt_cache(model)[:-1], make_prompt_cache(tiny_model("mamba2")), [], [None] * 2):
        with pytest.raises(RuntimeUnsupported, match="prompt_cache: expected a cache of this model, 2 KVCache, got"):
            generate_step(PROMPT, model, prompt_cache=other)
    windows = tiny_model("gemma3_text")
    with pytest.raises(RuntimeUnsupported, match="RotatingKVCache"):
        generate_step(PROMPT, windows, prompt_cache=[KVCache() for _ in make_prompt_cache(windows)])
    for own in (
        make_prompt_cache(model, max_kv_size=9),
        [layer.to_quantized(32) for layer in make_prompt_cache(model)],
    ):
        assert len(list(generate_step(PROMPT, model, prompt_cache=own, max_tokens=3))) == 3


def test_generations_with_the_same_drafter_share_a_policy(model: Any) -> None:
    drafter, statistics, policies = Fixed([1]), DraftStatistics(), list[Any]()
    for seed in (None, None, 1):
        steps = generate_step(PROMPT, model, drafter=drafter, statistics=statistics, seed=seed)
        policies.append(statistics.policy)
        steps.close()
    assert policies[0] is not None and policies[0] is policies[1]
    assert policies[2] is not policies[0], "with a seed, what came before does not count"
