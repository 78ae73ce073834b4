"""A server with a draft model: nobody waits, and the next turn of a conversation costs the draft that turn."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import mlx.core as mx
import pytest

from spectool.runtime.caches.text_cache import TextCache
from spectool.runtime.demo_models import demo_path
from spectool.runtime.drafters.draft_model import ModelDrafter
from spectool.runtime.drafters.history import History
from spectool.runtime.drafters.together import SharedTexts
from spectool.runtime.loading import load_drafter, load_model
from spectool.serve.server import Server
from spectool.tests.serve.questions import PROMPTS, alone
from spectool.tests.serve.servers import client, serving


def with_itself(tokenizer: Any) -> Any:
    """The target as its own draft model."""
    return load_drafter(tokenizer, draft_model=demo_path("target"))


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(with_itself, batch=4) as running:
        yield running


def written(server: Server, prompt: str, tokens: int = 48) -> str:
    return client(server).completions.create(model="default_model", prompt=prompt, max_tokens=tokens).choices[0].text


@pytest.mark.nightly
def test_several_clients_share_the_passes_of_the_draft_model(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    together, feed = list[int](), SharedTexts.feed

    def noted(self: SharedTexts, wanted: Any) -> Any:
        together.append(len(wanted))
        return feed(self, wanted)

    monkeypatch.setattr(SharedTexts, "feed", noted)
    with ThreadPoolExecutor(len(PROMPTS)) as pool:
        texts = list(pool.map(lambda prompt: written(server, prompt), PROMPTS))
    assert texts == [alone(prompt, 48) for prompt in PROMPTS]
    assert max(together) > 1
    assert server.engine.counts["target_passes"] < server.engine.counts["generated_tokens"] / 2  # type: ignore[attr-defined]


def test_two_conversations_in_turns_read_only_what_is_new(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    read, added = list[int](), list[int]()
    prefill, append = TextCache.prefill, History.append

    def noted(self: TextCache, tokens: Any) -> None:
        read.append(len(tokens))
        prefill(self, tokens)

    def counted(self: History, token: int) -> None:
        added.append(token)
        append(self, token)

    monkeypatch.setattr(TextCache, "prefill", noted)
    monkeypatch.setattr(History, "append", counted)
    texts, longest = [6 * PROMPTS[0], 4 * PROMPTS[1]], 0
    for turn in range(3):
        for at in range(2):
            read.clear(), added.clear()
            texts[at] += written(server, texts[at], 8) + " Wczoraj wieczorem"
            if turn:
                assert sum(read) <= 24 and len(added) <= 40, "its answer and the next question"
            else:
                longest = max(longest, sum(read))
    assert longest > 60


def test_what_drafters_know_counts_as_memory() -> None:
    model, _ = load_model(str(demo_path("target")))
    mx.eval(model.parameters())
    drafter = ModelDrafter(model)
    before = drafter.cache.nbytes
    drafter.start([5] * 300)
    assert drafter.cache.nbytes >= before + 300 * 2 * 32  # keys and values of a small model, in 32 bits or fewer


@pytest.mark.nightly
@pytest.mark.usefixtures("interpreted")
def test_drafts_of_a_model_are_verified_by_rejection_sampling() -> None:
    made: dict[str, Any] = {"draft_model": demo_path("target"), "history": False}
    with serving(lambda tokenizer: load_drafter(tokenizer, **made), num_draft_tokens=4) as running:
        asked: Any = {"model": "default_model", "prompt": PROMPTS[0], "max_tokens": 24, "temperature": 1.5}
        answers = [client(running).completions.create(**asked, seed=seed) for seed in (*range(3, 11), 3)]
    assert answers[0].choices[0].text == answers[-1].choices[0].text
    figures: list[Any] = [each.metrics["speculative_decoding"] for each in answers]  # type: ignore[attr-defined]
    drafted, accepted = (sum(each[f"num_{name}_tokens"] for each in figures) for name in ("draft", "accepted_draft"))
    print(f"{accepted} of {drafted} drafts accepted")
    assert drafted >= 24 and accepted / drafted > 0.9, "a perfect draft, of which exact match accepts less than half"
