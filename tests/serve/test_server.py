"""The server against the official client: the same answers as mlx-lm's own."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.server import convert_chat
from openai import APIStatusError, NotFoundError

from spectool.runtime.decoding.drafter import Drafter
from spectool.runtime.demo_models import demo_path
from spectool.runtime.loading import load_drafter
from spectool.serve.handler import Server
from spectool.serve.requests import AUTOMATIC
from spectool.serve.server import PromptCache
from spectool.tests.runtime.fake_drafters import Guesser
from spectool.tests.runtime.models import tiny_model
from spectool.tests.serve.questions import LONG, MESSAGES, PROMPTS, TOKENS, alone, complete, series
from spectool.tests.serve.servers import TARGET, client, exchange, get, serving, with_history, without_drafter

pytestmark = pytest.mark.system


def with_all(name: str, tokenizer: Any) -> Drafter | None:
    return load_drafter(tokenizer, draft_model=str(demo_path("draft")), min_probability=0.0)


@pytest.mark.parametrize("make_drafter", [with_history, with_all, without_drafter])
def test_answers_are_those_of_mlx_lm(make_drafter: Callable[[str, Any], Drafter | None]) -> None:
    chat = convert_chat([MESSAGES[0], {"role": "user", "content": "Wczoraj wieczorem w domu"}])
    with serving(make_drafter) as running:
        for prompt in PROMPTS:
            answer = complete(running, prompt, temperature=0)
            assert answer.choices[0].text == alone(prompt)
            assert answer.choices[0].finish_reason == "length"
            usage = answer.usage
            assert (usage.completion_tokens, usage.total_tokens) == (TOKENS, usage.prompt_tokens + TOKENS)
            details = usage.completion_tokens_details
            if make_drafter is without_drafter:
                assert details.accepted_prediction_tokens == details.rejected_prediction_tokens == 0
                assert details.target_passes == TOKENS
            else:
                assert details.accepted_prediction_tokens + details.rejected_prediction_tokens > 0
                assert details.target_passes == TOKENS - details.accepted_prediction_tokens
        answered = client(running).chat.completions.create(model=TARGET, messages=MESSAGES, max_tokens=TOKENS)
        assert answered.choices[0].message.content == alone(chat)


def test_a_stream_has_the_same_text_and_usage(server: Server) -> None:
    whole = client(server).chat.completions.create(model=TARGET, messages=MESSAGES, max_tokens=TOKENS)
    chunks = list(
        client(server).chat.completions.create(
            model=TARGET,
            messages=MESSAGES,
            max_tokens=TOKENS,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-2].choices[0].finish_reason == "length"
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    usage = chunks[-1].usage
    assert usage is not None and whole.usage is not None
    assert usage.completion_tokens_details == whole.usage.completion_tokens_details


def test_the_chunks_of_a_text_are_all_of_one_kind(server: Server) -> None:
    chunks = list(complete(server, PROMPTS[0], stream=True, stream_options={"include_usage": True}))
    assert {chunk.object for chunk in chunks} == {"text_completion"}
    assert chunks[-1].usage.completion_tokens == TOKENS


def test_an_answer_without_text_is_an_empty_text(server: Server) -> None:
    (end, *_) = server.generator.model_provider.tokenizer.eos_token_ids
    answer = client(server).chat.completions.create(
        model=TARGET, messages=MESSAGES, max_tokens=TOKENS, logit_bias={str(end): 1000}
    )
    assert (answer.choices[0].finish_reason, answer.choices[0].message.content) == ("stop", "")


class Recording(Drafter):
    """A drafter without guesses that notes the prompts it is told."""

    name = "recording"

    def __init__(self) -> None:
        self.prompts: list[list[int]] = []

    def start(self, prompt: Sequence[int]) -> None:
        self.prompts.append(list(prompt))

    def propose(self, limit: int) -> Any:
        from spectool.runtime.decoding.drafter import Proposal

        return Proposal((), self.name)

    def commit(self, tokens: Sequence[int]) -> None:
        """No state."""


def test_the_next_turn_finds_its_prompt_cached_and_the_drafter_sees_all_of_it() -> None:
    recording = Recording()
    with serving(lambda name, tokenizer: recording) as running:
        tokenizer = running.generator.model_provider.tokenizer
        first = complete(running, PROMPTS[0])
        text = PROMPTS[0] + first.choices[0].text
        # The whole text once more, the text and more, and the same again: longer, shorter and equal to what is kept.
        for prompt in (text, text + " a potem", PROMPTS[0], text + " a potem"):
            answer = complete(running, prompt, extra_body={"repetition_penalty": 1.3})
            with serving(without_drafter) as fresh:
                expected = complete(fresh, prompt, extra_body={"repetition_penalty": 1.3})
            assert answer.choices[0].text == expected.choices[0].text
            assert recording.prompts[-1] == tokenizer.encode(prompt)
            cached = answer.usage.prompt_tokens_details.cached_tokens
            assert len(tokenizer.encode(PROMPTS[0])) - 2 <= cached < answer.usage.prompt_tokens
        assert series(running)["spectool_cached_prompt_tokens_total"] > 0


def test_a_kept_cache_lacks_at_least_one_token_of_any_prompt() -> None:
    model, said = tiny_model(), list(range(3, 15))
    cache = make_prompt_cache(model)
    model(mx.array([said[:-1]]), cache=cache)  # what the loop leaves: all tokens but the last
    kept = PromptCache()
    kept.insert_cache("model", said, cache)
    for prompt in (said[:5], said[:-1], said, [*said, 20], [3], [200, 201]):
        found, rest = kept.fetch_nearest_cache("model", prompt)
        assert rest == prompt[len(prompt) - len(rest) :] and rest
        assert (0 if found is None else found[0].offset) == len(prompt) - len(rest)
    kept.insert_cache("model", said[:4], cache)
    assert len(kept) == 1, "a cache of other tokens than its text's was kept"


def test_sampling_stop_texts_and_probabilities(server: Server) -> None:
    sampled = [complete(server, PROMPTS[0], temperature=3.0, seed=7, top_p=0.9).choices[0].text for _ in range(2)]
    assert sampled[0] == sampled[1]
    assert complete(server, PROMPTS[0], temperature=3.0, seed=8, top_p=0.9).choices[0].text != sampled[0]
    whole = alone(PROMPTS[0])
    word = whole.split()[2]
    stopped = complete(server, PROMPTS[0], stop=[word])
    assert stopped.choices[0].finish_reason == "stop"
    assert whole.startswith(stopped.choices[0].text) and word not in stopped.choices[0].text
    chat = client(server).chat.completions.create(
        model=TARGET, messages=MESSAGES, max_tokens=4, logprobs=True, top_logprobs=3
    )
    logprobs = chat.choices[0].logprobs
    assert logprobs is not None and logprobs.content is not None
    assert [len(entry.top_logprobs) for entry in logprobs.content] == [3] * 4
    everything = complete(server, PROMPTS[0], temperature=0.5, seed=1, extra_body={"top_k": 1_000_000})
    assert everything.choices[0].text


def test_models_are_those_it_was_started_with(server: Server) -> None:
    assert [model.id for model in client(server).models.list()] == [TARGET]
    assert client(server).models.retrieve(TARGET).id == TARGET
    assert complete(server, PROMPTS[0]).model == TARGET
    with pytest.raises(NotFoundError):
        client(server).models.retrieve("gpt-4")
    for name in ("gpt-4", "mlx-community/Qwen3-4B-4bit", str(demo_path("draft"))):
        with pytest.raises(NotFoundError) as refused:
            client(server).completions.create(model=name, prompt="a")
        assert refused.value.code == "model_not_found"
        assert f"expected {TARGET}" in str(refused.value) and "default_model" in str(refused.value)


def test_the_cache_is_logged_for_debugging_alone(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        complete(server, PROMPTS[0])
    assert "Prompt Cache" not in caplog.text
    with caplog.at_level("DEBUG"):
        complete(server, PROMPTS[0])
    assert "Prompt Cache" in caplog.text


def test_another_model_takes_the_place_where_it_is_allowed() -> None:
    names: list[str] = []

    def noting(name: str, tokenizer: Any) -> Drafter | None:
        names.append(name)
        return with_history(name, tokenizer)

    draft = str(demo_path("draft"))
    with serving(noting, other_models=(draft,)) as running:
        first = complete(running, PROMPTS[0]).choices[0].text
        other = client(running).completions.create(model=draft, prompt=PROMPTS[0], max_tokens=TOKENS)
        again = complete(running, PROMPTS[0]).choices[0].text
        assert first == again == alone(PROMPTS[0]) != other.choices[0].text
        assert other.model == draft
        assert names == [TARGET, draft, TARGET]


def test_another_model_that_cannot_be_loaded_is_told_to_who_asks_for_it(tmp_path: Path) -> None:
    with serving(other_models=(str(tmp_path),)) as running:
        with pytest.raises(NotFoundError, match="cannot load this model") as refused:
            client(running).completions.create(model=str(tmp_path), prompt="a")
        assert (refused.value.code, refused.value.param) == ("model_not_found", "model")
        assert complete(running, PROMPTS[0]).choices[0].text == alone(PROMPTS[0])


def test_the_controller_counts_the_wall_time_of_a_token() -> None:
    with serving(lambda name, tokenizer: Guesser(), num_draft_tokens=AUTOMATIC) as running:
        for prompt in PROMPTS:
            complete(running, prompt, 150)
        controller = running.generator.model_provider.controller
        figures = series(running)
        wall = figures["spectool_generation_seconds_total"] / figures["spectool_generated_tokens_total"]
        booked = max(controller.passes.curve[1], controller.caller_seconds)
        print(f"{wall * 1e3:.2f} ms a token by the clock, {booked * 1e3:.2f} ms booked")
        assert 0.7 * wall < booked < 1.5 * wall


def test_requests_share_what_is_learnt_about_draft_lengths_until_another_model_comes() -> None:
    draft = str(demo_path("draft"))
    with serving(other_models=(draft,), num_draft_tokens=AUTOMATIC) as running:
        provider = running.generator.model_provider
        assert not provider.controller.passes.known(1)
        for prompt in (PROMPTS[0], PROMPTS[2]):
            assert complete(running, prompt).choices[0].text == alone(prompt)
            assert provider.controller.passes.known(1)
        learnt = provider.controller
        complete(running, PROMPTS[0])
        assert provider.controller is learnt
        client(running).completions.create(model=draft, prompt=PROMPTS[0], max_tokens=TOKENS)
        assert provider.controller is not learnt


def test_a_prompt_is_as_long_as_the_model_allows(server: Server) -> None:
    with pytest.raises(APIStatusError, match="at most 256 tokens") as refused:
        complete(server, LONG * 4)
    assert (refused.value.status_code, refused.value.code) == (400, "context_length_exceeded")
    with serving(max_prompt_tokens=2_000) as running:
        assert complete(running, LONG * 4).usage.prompt_tokens > 256


def test_the_page_for_people(server: Server) -> None:
    complete(server, PROMPTS[0])
    status, headers, body = exchange(server, get("/"))
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert "tokens per pass" in body.decode() and TARGET in body.decode()
    assert json.loads(exchange(server, get("/health"))[2]) == {"status": "ok"}


def test_the_example_of_the_documentation_runs(server: Server) -> None:
    page = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    here = code.replace("http://127.0.0.1:8080", server.url)
    assert here != code
    done = subprocess.run([sys.executable, "-c", here], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
