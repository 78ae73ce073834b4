"""How much of a prompt is read where a cache cannot be trimmed: no more than mlx-lm's server reads."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import patch

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

from spectool.commands.conversation import Conversation
from spectool.runtime.caches.own import prefill
from spectool.runtime.caches.text_cache import TextCache
from spectool.runtime.chat_template import branches, rendered
from spectool.runtime.demo_models import demo_path
from spectool.runtime.loading import load_model
from spectool.serve.prompt_caches import PromptCaches
from spectool.tests.runtime.models import KINDS, plain, tiny_model
from spectool.tests.serve.servers import client, serving, without_drafter
from spectool.tests.tiers import nightly

VOCABULARY = 1544
SPECIAL = ("<think>", "</think>", "<|im_start|>", "<|im_end|>")
# As Qwen's: the answer begins with reasoning, and that of answers before the last question is left out.
TEMPLATE = """
{%- set ns = namespace(last=-1) -%}
{%- for message in messages if message.role == 'user' -%}{%- set ns.last = messages.index(message) -%}{%- endfor -%}
{{- bos_token -}}
{%- for message in messages -%}
{%- set dropped = message.role == 'assistant' and loop.index0 < ns.last -%}
{{- '<|im_start|>' + message.role + '\n' -}}
{{- message.content.split('</think>')[-1] if dropped else message.content -}}
{{- '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n<think>\n' -}}{%- endif -%}
"""
SYSTEM = {"role": "system", "content": "Jesteś pomocnikiem miejskim w Jaworowcu i odpowiadasz krótko. " * 12}


def said(*texts: str) -> list[dict[str, str]]:
    """A conversation after the system prompt."""
    return [SYSTEM, *({"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(texts))]


ONE = ["Kiedy otworzą most w Jaworowcu?"]
TWO = [*ONE, "Myślę.</think>Jutro rano.", "A kiedy zamkną go znowu?"]
THREE = [*TWO, "Nie wiem.</think>W przyszłym roku, może dopiero za dwa lata.", "Dlaczego?"]
TRIMMED = [*TWO, "W przyszłym roku, może", "Dlaczego?"]
# The first question, again, the next two turns, by a client that trims answers, another question, an earlier turn.
ASKED = [ONE, ONE, TWO, THREE, TRIMMED, ["Ile kosztuje bilet?"], TWO]
# Tokens that are read, and all of the prompt. mlx-lm's version of transformers opens tokenizers of Qwen in another way.
RECURRENT = [(356, 356), (1, 356), (40, 393), (43, 433), (35, 425), (24, 352), (1, 393)]
READ = {
    "qwen3_5": [(369, 369), (1, 369), (32, 400), (37, 436), (28, 427), (18, 364), (1, 400)],
    "falcon_h1": RECURRENT,
    "mamba2": RECURRENT,
    "gemma3_text": [(356, 356), (1, 356), (40, 393), (43, 433), (26, 425), (24, 352), (1, 393)],
}


def thinking_model(folder: Path, kind: str, **changes: int) -> str:
    """A tiny random model whose template drops the reasoning of earlier turns."""
    folder.mkdir()
    with patch.dict(KINDS, {kind: {**KINDS[kind], **changes}}):
        model: Any = tiny_model(kind, vocabulary=VOCABULARY)
    mx.save_safetensors(str(folder / "model.safetensors"), dict(tree_flatten(model.parameters())), {"format": "mlx"})
    config = {"model_type": kind, "vocab_size": VOCABULARY, "eos_token_id": 2, **KINDS[kind], **changes}
    (folder / "config.json").write_text(json.dumps(config))
    tokenizer = json.loads((demo_path("target") / "tokenizer.json").read_text())
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    tokenizer["added_tokens"] += [{"id": 1536 + at, "content": text, **flags} for at, text in enumerate(SPECIAL)]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    settings = json.loads((demo_path("target") / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "chat_template": TEMPLATE}))
    return str(folder)


def ask(server: Any, model: str, texts: list[str]) -> Any:
    messages: Any = said(*texts)
    return server.chat.completions.create(model=model, messages=messages, max_tokens=20, temperature=0)


def read_of(answer: Any) -> tuple[int, int]:
    """Tokens of its prompt that were read, and all of them."""
    usage = answer.usage
    return usage.prompt_tokens - (usage.prompt_tokens_details.cached_tokens or 0), usage.prompt_tokens


def text_of(answer: Any) -> tuple[Any, str]:
    message = answer.choices[0].message
    return message.content, message.reasoning_content


@pytest.mark.nightly
@pytest.mark.parametrize("kind", list(READ))
def test_what_comes_next_is_read_and_no_more(tmp_path: Path, kind: str) -> None:
    model = thinking_model(tmp_path / kind, kind)
    options: dict[str, Any] = {"model": model, "api_keys": ("key",), "num_draft_tokens": 0}
    with (
        serving(without_drafter, **options) as running,
        serving(without_drafter, **options, prompt_cache_size=0) as cold,
    ):
        expected = [ask(client(cold, "key"), model, texts) for texts in ASKED]
        answers = [ask(client(running, "key"), model, texts) for texts in ASKED]
        assert [read_of(answer)[0] for answer in expected] == [whole for _, whole in READ[kind]]
        assert [read_of(answer) for answer in answers] == READ[kind]
        assert list(map(text_of, answers)) == list(map(text_of, expected))
        with ThreadPoolExecutor(len(ASKED)) as clients:  # in shared passes, in any order
            again = list(clients.map(lambda texts: ask(client(running, "key"), model, texts), ASKED))
        assert max(read_of(answer)[0] for answer in again) <= 43
        assert list(map(text_of, again)) == list(map(text_of, expected))


def test_where_other_prompts_part_from_this_one(tmp_path: Path) -> None:
    tokenizer = load_model(thinking_model(tmp_path / "model", "mamba2"))[1]

    def ends(messages: list[dict[str, str]]) -> list[str]:
        """What stands before each place, after the last special token."""
        prompt = rendered(tokenizer, messages, {})
        places = branches(tokenizer, messages, {}, prompt)
        return [tokenizer.decode(prompt[:place]).rpartition("|>")[2].lstrip(" ") for place in places]

    assert ends(said(*ONE)) == ["user\n", "assistant\n"]
    # A new question drops the reasoning before the call, and the next step goes on after the result.
    called = [*said(*ONE, "Sprawdzę.</think>[…]"), {"role": "tool", "content": "jutro"}]
    assert ends(called) == ["user\n", "assistant\n", "\n"]
    assert ends(said(*ONE, "Jutro")) == ["user\n", "assistant\n"], "an answer that has begun is no place to part"
    assert ends(said(*ONE)[1:]) == [], "too little to mark"
    tokenizer.chat_template = "{% if messages|length > 2 %}{{ raise_exception('one') }}{% endif %}" + TEMPLATE
    assert ends(said(*ONE)) == ["user\n"], "a template may refuse the other prompts"


@pytest.mark.parametrize("kind", [*list(READ)[:1], *nightly(*list(READ)[1:])])
def test_chat_reads_its_next_turn_and_no_more(tmp_path: Path, kind: str) -> None:
    model, tokenizer = load_model(thinking_model(tmp_path / kind, kind))
    chat = Conversation(model, tokenizer, SYSTEM["content"], max_tokens=20)
    for question in (ONE[0], "A kiedy zamkną go znowu?", "Dlaczego?"):
        prompt = rendered(tokenizer, [*chat.messages, {"role": "user", "content": question}], {})
        parts = list(chat.answer(question))
        fresh = plain(model, prompt, 20)
        written = [part.token for part in parts]
        assert written == fresh[: len(written)] and (len(written) == 20 or written[-1] in tokenizer.eos_token_ids)
        assert parts[-1].prompt_tokens < (80 if len(chat.messages) > 3 else 400)


def test_marks_count_as_memory_and_are_four_at_most() -> None:
    model = tiny_model("mamba2")
    held = TextCache(model)
    cache, _ = held.content()
    for at in range(1, 9):
        prefill(model, cache, [3, 4, 5])
        held.follow([3, 4, 5] * at, mark=True)
        state = sum(entry.nbytes for entry in cache)
        assert held.nbytes == state * (1 + min(at, 4)), at
    for most, kept in ((5 * state, 24), (5 * state - 1, 0)):
        caches = PromptCaches(10, most)
        caches.keep("", held.copy(), None)
        # Of the marks after 3, 6, 9, … tokens, the first and the latest three have stayed.
        for asked, reached in ((24, 21), (20, 18), (17, 3), (3, 0), (27, 24)):
            assert len(caches.take("", ([3, 4, 5] * 9)[:asked], model)[0].tokens) == (kept and reached), asked
