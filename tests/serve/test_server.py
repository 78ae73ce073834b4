"""The server against OpenAI's own client: the same answers as mlx-lm's."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import mlx.core as mx
import pytest
from openai import APIStatusError, NotFoundError

from spectool.runtime.caches.text_cache import TextCache
from spectool.runtime.demo_models import demo_path
from spectool.runtime.drafters.drafter import Drafter
from spectool.runtime.loading import load_drafter
from spectool.runtime.mlx_lm_compat import maybe_quantize_kv_cache
from spectool.serve.prompt_caches import PromptCaches
from spectool.serve.server import Server
from spectool.tests.runtime.fake_drafters import Fixed
from spectool.tests.runtime.models import tiny_model
from spectool.tests.serve.questions import (
    CHAT,
    LONG,
    MESSAGES,
    PROMPTS,
    TOKENS,
    alone,
    chatting_model,
    complete,
    counted,
)
from spectool.tests.serve.servers import TARGET, client, serving, with_history, without_drafter

pytestmark = pytest.mark.nightly


def with_all(tokenizer: Any) -> Drafter | None:
    return load_drafter(tokenizer, draft_model=str(demo_path("draft")), min_probability=0.0)


@pytest.mark.parametrize("make_drafter", [with_history, with_all, without_drafter])
def test_answers_are_those_of_mlx_lm(make_drafter: Callable[[Any], Drafter | None], tmp_path: Path) -> None:
    with serving(make_drafter, model=chatting_model(tmp_path), served_names=("demo",)) as running:
        for prompt in PROMPTS:
            answer = complete(running, prompt, temperature=0)
            assert answer.choices[0].text == alone(prompt)
            assert answer.choices[0].finish_reason == "length"
            usage = answer.usage
            assert (usage.completion_tokens, usage.total_tokens) == (TOKENS, usage.prompt_tokens + TOKENS)
            figures = answer.metrics["speculative_decoding"]
            assert figures["num_accepted_draft_tokens"] <= figures["num_draft_tokens"]
            assert (figures["num_draft_tokens"] > 0) is (make_drafter is not without_drafter)
        answered = client(running).chat.completions.create(model="demo", messages=MESSAGES, max_tokens=TOKENS)
        assert answered.choices[0].message.content == alone(CHAT).removeprefix(" ")
        passes, tokens = (counted(running)[name] for name in ("target_passes", "generated_tokens"))
        assert tokens == TOKENS * (len(PROMPTS) + 1)
        assert passes == tokens if make_drafter is without_drafter else passes < tokens


def test_a_stream_has_the_same_text_and_figures(chatting: Server) -> None:
    asked: Any = {"model": "demo", "messages": MESSAGES, "max_tokens": TOKENS, "logprobs": True, "top_logprobs": 2}
    whole = client(chatting).chat.completions.create(**asked)
    options: Any = {"stream": True, "stream_options": {"include_usage": True}}
    chunks = list(client(chatting).chat.completions.create(**asked, **options))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-2].choices[0].finish_reason == "length"
    places = [chunk.choices[0].logprobs for chunk in chunks if chunk.choices]
    shown = [each for place in places if place for each in place.content or ()]
    assert whole.choices[0].logprobs is not None
    near = [pytest.approx(place.logprob, abs=1e-3) for place in whole.choices[0].logprobs.content or ()]
    assert [place.logprob for place in shown] == near
    usage = chunks[-1].usage
    assert usage is not None and whole.usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (whole.usage.prompt_tokens, TOKENS)
    assert not [chunk for chunk in client(chatting).chat.completions.create(**asked, stream=True) if not chunk.choices]


@pytest.mark.parametrize("make_drafter", [with_all, without_drafter])
def test_a_prediction_shortens_an_answer_and_is_counted(
    make_drafter: Callable[[Any], Drafter | None], tmp_path: Path
) -> None:
    expected = alone(CHAT).removeprefix(" ")
    parts: Any = [{"type": "text", "text": expected[:20]}, {"type": "text", "text": expected[20:]}]
    with serving(make_drafter, model=chatting_model(tmp_path), served_names=("demo",)) as running:

        def ask(content: Any, **options: Any) -> Any:
            prediction: Any = {"type": "content", "content": content}
            asked: Any = {"model": "demo", "messages": MESSAGES, "max_tokens": TOKENS, "prediction": prediction}
            return client(running).chat.completions.create(**asked, **options)

        before = counted(running)["target_passes"]
        right = ask(parts)
        assert right.choices[0].message.content == expected
        counts = right.usage.completion_tokens_details
        assert (counts.accepted_prediction_tokens, counts.rejected_prediction_tokens) == (TOKENS, 0)
        assert counted(running)["target_passes"] - before <= 4
        assert counted(running)["accepted_predictions"] > TOKENS / 2
        wrong = ask("Це зовсім інша мова.", n=2)
        assert [choice.message.content for choice in wrong.choices] == [expected, expected]
        counts = wrong.usage.completion_tokens_details
        assert counts.rejected_prediction_tokens > counts.accepted_prediction_tokens
        *_, last = ask(expected, stream=True, stream_options={"include_usage": True})
        assert last.usage.completion_tokens_details.accepted_prediction_tokens == TOKENS
        without = client(running).chat.completions.create(model="demo", messages=MESSAGES, max_tokens=TOKENS)
        assert without.usage is not None and without.usage.completion_tokens_details is None
        with pytest.raises(APIStatusError, match=r"prediction: .* expected at most 256 tokens") as refused:
            ask(LONG * 4)
        assert refused.value.code == "context_length_exceeded"


def test_several_answers_and_several_prompts(server: Server) -> None:
    answer = complete(server, PROMPTS[:2], 8, n=2, temperature=1.5, seed=5)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    texts = [choice.text for choice in answer.choices]
    assert texts[0] != texts[1] and texts[2] != texts[3]
    assert complete(server, PROMPTS[0], 8, temperature=1.5, seed=6).choices[0].text == texts[1]
    assert answer.usage.completion_tokens == 32
    greedy = list(complete(server, PROMPTS[:2], 8, stream=True))
    for index in range(2):
        written = "".join(chunk.choices[0].text for chunk in greedy if chunk.choices[0].index == index)
        assert written == alone(PROMPTS[index], 8)
    ids = list(map(server.engine.model.tokenizer.encode, PROMPTS[:2]))
    assert complete(server, ids[0], 8).choices[0].text == alone(PROMPTS[0], 8)
    assert [each.text for each in complete(server, ids, 8).choices] == [alone(prompt, 8) for prompt in PROMPTS[:2]]


@pytest.mark.parametrize("make_drafter", [with_all, without_drafter])
def test_several_answers_read_their_prompt_once(make_drafter: Callable[[Any], Drafter | None]) -> None:
    with serving(make_drafter) as running:
        prompts = [LONG[:200], PROMPTS[0]]
        for _ in range(2):  # without and with what the first one has left in the prompt cache
            before = counted(running)
            answer = complete(running, prompts, 6, n=3)
            assert [choice.text for choice in answer.choices] == [
                alone(prompt, 6) for prompt in prompts for _ in range(3)
            ]
            after = counted(running)
            names = "prompt_tokens", "cached_prompt_tokens"
            read, cached = (after[name] - before[name] for name in names)
            lengths = [len(running.engine.model.tokenizer.encode(prompt)) for prompt in prompts]
            assert (answer.usage.prompt_tokens, read) == (sum(lengths), 3 * sum(lengths))
            assert cached >= 2 * (sum(lengths) - 2)
            assert answer.usage.completion_tokens == 36
            assert not answer.usage.prompt_tokens_details.cached_tokens, "without keys, nobody is told what is cached"


def test_answers_that_have_ended_hold_no_caches(server: Server) -> None:
    with patch.object(server.engine, "submit", wraps=server.engine.submit) as submitted:
        complete(server, [PROMPTS[0], PROMPTS[1]], 4, n=2)
    (answers,) = submitted.call_args.args
    for answer in (each for first in answers for each in (first, *first.copies)):
        assert answer.tokens and answer.held is answer.drafter is None


def test_the_next_turn_finds_its_prompt_cached_and_the_drafter_sees_all_of_it() -> None:
    with (
        patch.object(Fixed, "start") as started,
        serving(lambda tokenizer: Fixed([]), api_keys=("one", "two")) as running,
        serving(without_drafter) as fresh,
    ):

        def ask(prompt: str, key: str) -> Any:
            return client(running, key).completions.create(
                model=TARGET, prompt=prompt, max_tokens=TOKENS, extra_body={"repetition_penalty": 1.3}
            )

        tokenizer = running.engine.model.tokenizer
        text = PROMPTS[0] + ask(PROMPTS[0], "one").choices[0].text
        # The whole text once more, the text and more, and the same again: longer, shorter and equal to what is kept.
        for prompt in (text, text + " a potem", PROMPTS[0], text + " a potem"):
            answer = ask(prompt, "one")
            expected = complete(fresh, prompt, extra_body={"repetition_penalty": 1.3})
            assert answer.choices[0].text == expected.choices[0].text
            assert list(started.call_args.args[0]) == tokenizer.encode(prompt)
            assert answer.usage is not None and answer.usage.prompt_tokens_details is not None
            cached = answer.usage.prompt_tokens_details.cached_tokens or 0
            assert len(tokenizer.encode(PROMPTS[0])) - 2 <= cached < answer.usage.prompt_tokens
        stranger = ask(text, "two").usage
        assert stranger is not None and stranger.prompt_tokens_details is not None
        assert stranger.prompt_tokens_details.cached_tokens == 0, "a client sees what another one has asked"


def test_a_kept_cache_lacks_at_least_one_token_of_any_prompt() -> None:
    model, said = tiny_model(), list(range(3, 15))
    held = TextCache(model)
    held.prefill(said[:-1])  # what the loop leaves: all tokens but the last
    for prompt in (said[:5], said[:-1], said, [*said, 20], [3], [200, 201]):
        kept = PromptCaches(2, 10**9)
        kept.keep("", held, None)
        assert not kept.take("another client", prompt, model)[0].tokens
        cache, tokens = kept.take("", prompt, model)[0].content()
        assert cache[0].offset == len(tokens) <= len(prompt) - 1
        assert len(tokens) == (0 if prompt[0] == 200 else min(len(prompt) - 1, 11))
        assert held.content()[0][0].offset == 11, "a cache that others may need was cut"
    held.follow(said[:4])
    kept.keep("", held, None)
    assert len(kept._kept) <= 1, "a cache of other tokens than its text's was kept"


def test_a_text_with_the_beginning_of_a_longer_one_takes_its_own_memory_and_precision() -> None:
    model, said = tiny_model(), [*range(3, 203)] * 10
    held = TextCache(model)
    held.prefill(said)
    kept = PromptCaches(2, 10**9, quantised_from=1000)
    kept.keep("", held, None)
    fresh, prompt = TextCache(model), [*said[:300], 5, 6]
    fresh.prefill(prompt[:-1])
    taken = kept.take("", prompt, model)[0]
    assert len(taken.tokens) == 300 and taken.nbytes < held.nbytes / 3
    logits = [cache.feed(mx.array(cache.unfed(prompt)))[-1] for cache in (taken, fresh)]
    assert mx.abs(logits[0] - logits[1]).max() < 1e-3
    maybe_quantize_kv_cache(held.content()[0], 0, 32, 8)
    assert len(kept.take("", [*said[:1200], 5, 6], model)[0].tokens) == 1200
    assert not kept.take("", prompt, model)[0].tokens, "a text of this length is not quantised yet"


def test_caches_are_dropped_oldest_first() -> None:
    model = tiny_model()
    kept = PromptCaches(2, 10**9)
    for first in (10, 20, 30):
        held = TextCache(model)
        held.prefill([first, 5, 6])
        kept.keep("", held, None)
    assert [len(kept.take("", [first, 5, 6, 7], model)[0].tokens) for first in (10, 20, 30)] == [0, 3, 3]
    small = PromptCaches(2, 1)
    small.keep("", held, None)
    assert not small._kept


def test_models_go_by_the_names_they_are_given(server: Server) -> None:
    assert [model.id for model in client(server).models.list()] == [Path(TARGET).name]
    assert client(server).models.retrieve(TARGET).id == Path(TARGET).name
    assert client(server).models.retrieve("default_model").id == Path(TARGET).name
    for asked in (TARGET, "default_model"):
        assert client(server).completions.create(model=asked, prompt="a", max_tokens=1).model == Path(TARGET).name
    with pytest.raises(NotFoundError):
        client(server).models.retrieve("gpt-4")
    with pytest.raises(NotFoundError, match="expected target or default_model") as refused:
        client(server).completions.create(model="mlx-community/Qwen3-4B-4bit", prompt="a")
    assert refused.value.code == "model_not_found"
    with serving(served_names=("bielik", "gpt-4")) as running:
        assert [model.id for model in client(running).models.list()] == ["bielik", "gpt-4"]
        assert client(running).completions.create(model="gpt-4", prompt="a", max_tokens=1).model == "gpt-4"
        assert client(running).completions.create(model="default_model", prompt="a", max_tokens=1).model == "bielik"
        with pytest.raises(NotFoundError, match="bielik, gpt-4"):
            client(running).completions.create(model=TARGET, prompt="a")


def test_the_example_of_the_documentation_runs(chatting: Server) -> None:
    page = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    here = code.replace("http://127.0.0.1:8080", chatting.url)
    assert here != code
    done = subprocess.run([sys.executable, "-c", here], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout
