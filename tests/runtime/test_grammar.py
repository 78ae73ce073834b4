"""Answers that follow a grammar: masks against brute force, and drafters against constrained plain decoding."""

import json
import random
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
import regex
from mlx_lm import load
from mlx_lm.tokenizer_utils import TokenizerWrapper
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from spectool import RuntimeUnsupported
from spectool.runtime.decoding.drafter import Drafter
from spectool.runtime.decoding.generation import generate_step
from spectool.runtime.decoding.sampling import LogitBias, Sampling
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.decoding.streaming import stream_generate
from spectool.runtime.demo_models import demo_path
from spectool.runtime.drafters.draft_model import ModelDrafter
from spectool.runtime.drafters.hybrid import HybridDrafter
from spectool.runtime.drafters.lookup import LookupDrafter
from spectool.runtime.grammar import Grammar, GrammarConstraint
from spectool.tests.runtime.distributions import FALSE_ALARM, check, joint
from spectool.tests.runtime.fake_drafters import Guesser, Reference, dictionary_of
from spectool.tests.runtime.models import perturbed, tiny_model
from spectool.tokenization.opening import open_tokenizer

ROWS = 1536  # of the demo models
PATTERNS = [
    r'\{"imię": "[A-ZŻ][a-ząęłńóśź]{2,8}", "wiek": [1-9][0-9]?\}',
    r"(tak|nie|nie wiem)(, bo [a-zà-ż ]{5,30})?\.",
    r"[0-9]{4}-(0[1-9]|1[0-2])-[0-3][0-9](T[0-9]{2}:[0-9]{2})?",
    r"( ?(мова|міст|дім)){3,6}!*",
    r"most",
]
SCHEMAS: list[Any] = [
    {
        "type": "object",
        "properties": {"nazwisko": {"type": "string", "maxLength": 12}},
        "required": ["nazwisko"],
        "additionalProperties": False,
    },
    {"type": "array", "items": {"enum": ["czerwony", "niebieski", 7, None]}, "minItems": 3, "maxItems": 5},
    {
        "$defs": {"n": {"type": "integer", "minimum": 3, "maximum": 1200}},
        "type": "array",
        "items": {"$ref": "#/$defs/n"},
        "maxItems": 6,
    },
    {
        "anyOf": [
            {"type": "string", "pattern": "^[a-f]{4}$"},
            {"type": "integer", "minimum": 0, "maximum": 99},
            {"const": {"a": [True, "ґ"]}},
        ]
    },
    {
        "type": "object",
        "properties": {
            "adres": {
                "type": "object",
                "properties": {
                    "ulica": {"type": "string", "maxLength": 9},
                    "numer": {"type": "integer", "maximum": 999},
                },
                "required": ["ulica", "numer"],
                "additionalProperties": False,
            },
            "data": {"type": "string", "format": "date"},
            "czynny": {"type": "boolean"},
        },
        "required": ["adres", "data", "czynny"],
        "additionalProperties": False,
        "x-guidance": {"whitespace_flexible": False},
    },
]


@cache
def demo() -> tuple[Any, Any, Any]:
    """The demo target, its tokenizer, and the demo draft."""
    model, tokenizer, *_ = load(str(demo_path("target")))
    return model, tokenizer, load(str(demo_path("draft")))[0]


def grammars() -> Iterator[tuple[str, Grammar]]:
    tokenizer = demo()[1]
    for pattern in PATTERNS:
        yield pattern, Grammar(tokenizer, "regex", pattern)
    for schema in SCHEMAS:
        yield json.dumps(schema), Grammar(tokenizer, "json_schema", schema)


def matched(pattern: str, token_bytes: list[bytes], written: bytes, ends: frozenset[int]) -> NDArray[np.bool_]:
    """By brute force, the tokens after which a text of ``pattern`` is whole or can become so."""
    whole = regex.compile("".join(map(chr, pattern.encode())))  # bytes as characters: half of one can match, too

    def fits(raw: bytes, partial: bool) -> bool:
        return whole.fullmatch("".join(map(chr, raw)), partial=partial) is not None

    return np.array(
        [
            fits(written, partial=False) if token in ends else bool(raw) and fits(written + raw, partial=True)
            for token, raw in enumerate(token_bytes)
        ]
    )


def bits(masks: mx.array) -> NDArray[np.bool_]:
    return np.array(masks)


def committed_to(grammar: Grammar, tokens: list[int], rows: int = ROWS) -> GrammarConstraint:
    constraint = grammar.constraint(rows)
    constraint.commit(tokens)
    return constraint


def draw(rng: random.Random, mask: NDArray[np.bool_]) -> int:
    return int(rng.choice(np.flatnonzero(mask).tolist()))


@pytest.mark.parametrize("pattern", [r"a[b-d]{2,5}(, x|;)?", r"(ab|abc)*d", "most|moda|na moście", r"[a-z ]{0,12}"])
def test_masks_are_those_of_brute_force(pattern: str) -> None:
    tokenizer, seed = demo()[1], random.randrange(2**32)
    print("seed", seed)
    rng, opened = random.Random(seed), open_tokenizer(tokenizer)
    token_bytes, ends = list(opened.token_bytes), frozenset(tokenizer.eos_token_ids)
    grammar, forced = Grammar(tokenizer, "regex", pattern), 0
    for _ in range(6):
        constraint, written = grammar.constraint(ROWS), b""
        for _ in range(12):
            mask = bits(constraint.masks())[0]
            expected = matched(pattern, token_bytes, written, ends)
            if not np.array_equal(mask, expected):  # only one text can follow, in the tokenizer's own tokens
                (only,) = np.flatnonzero(mask).tolist()
                texts = sorted((token_bytes[token] for token in np.flatnonzero(expected)), key=len)
                assert expected[only] and all(texts[-1].startswith(text) for text in texts), written
                assert constraint.forced(1) == [only]
                forced += 1
            token = draw(rng, mask)
            constraint.commit([token])
            if token in ends:
                break
            written += token_bytes[token]
        after = bits(constraint.masks())[0]
        assert token not in ends or set(np.flatnonzero(after)) == ends
    assert forced or "mo" not in pattern


@pytest.mark.system
@pytest.mark.parametrize("name", ["qwen2.5", "mistral-7b-v0.1", "llama-3.2", "gemma-3"])
def test_masks_of_real_tokenizers(name: str, shared: Path) -> None:
    from transformers import AutoTokenizer

    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    tokenizer = TokenizerWrapper(AutoTokenizer.from_pretrained(str(shared / "tokenizers" / name)))
    opened = open_tokenizer(tokenizer)
    token_bytes, ends = list(opened.token_bytes), frozenset(tokenizer.eos_token_ids)
    rows = len(token_bytes) + 7  # padded
    pattern = r'\{"(name|nazwisko|ім’я)": ?"[^"\\]{1,20}"(, "x": [0-9]{2,4})?\}'
    grammar = Grammar(tokenizer, "regex", pattern)
    constraint, written, mask = grammar.constraint(rows), b"", np.zeros(rows, bool)
    while not mask[list(ends)].any():
        mask = bits(constraint.masks())[0]
        assert not mask[len(token_bytes) :].any() and not mask[list(opened.specials - ends)].any()
        # By characters, the text may not end within one: only tokens that end with one are compared.
        whole = [token for token, raw in enumerate(token_bytes) if raw and _is_text(written + raw)]
        expected = {token for token in whole if _begins(pattern, (written + token_bytes[token]).decode())}
        allowed = set(whole) & set(np.flatnonzero(mask).tolist())
        assert allowed == expected or (len(allowed) <= 1 and allowed <= expected), (written, allowed ^ expected)
        token = rng.choice(sorted(allowed or np.flatnonzero(mask).tolist()))
        constraint.commit([token])
        written += token_bytes[token] if token not in ends else b""
    assert regex.fullmatch(pattern, written.decode())


def _is_text(raw: bytes) -> bool:
    try:
        return bool(raw.decode())
    except UnicodeDecodeError:
        return False


def _begins(pattern: str, text: str) -> bool:
    return regex.fullmatch(pattern, text, partial=True) is not None


def test_drafts_leave_no_trace_and_have_the_masks_of_committed_text() -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    for name, grammar in grammars():
        text: list[int] = []
        constraint = grammar.constraint(ROWS)
        for _ in range(25):
            draft: list[int] = []
            for _ in range(rng.randrange(6)):
                mask = bits(committed_to(grammar, [*text, *draft]).masks())[0]
                draft.append(draw(rng, mask if rng.random() < 0.8 else np.ones(ROWS, bool)))
                if not mask[draft[-1]]:
                    break
            expected: list[NDArray[np.bool_]] = []
            for end in range(len(draft) + 1):
                expected.append(bits(committed_to(grammar, [*text, *draft[:end]]).masks())[0])
                if end < len(draft) and (draft[end] in demo()[1].eos_token_ids or not expected[-1][draft[end]]):
                    break
            got = bits(constraint.masks(draft))
            assert np.array_equal(got, np.array(expected)), (name, text, draft)
            assert constraint.allowed(draft) >= min(len(got) - (len(got) <= len(draft)), len(draft))
            forced = constraint.forced(8)
            assert len(constraint.masks(forced)) == len(forced) + 1
            token = draw(rng, got[0])
            constraint.commit([token])
            text.append(token)


def constrained(grammar: Grammar, model: Any, prompt: list[int], count: int) -> list[int]:
    """Constrained plain decoding, by hand: a pass over the whole text, and a parser of its own for each token."""
    tokens: list[int] = []
    while len(tokens) < count and not (tokens and tokens[-1] in demo()[1].eos_token_ids):
        logits = np.array(model(mx.array([[*prompt, *tokens]]))[0, -1].astype(mx.float32))
        mask = bits(committed_to(grammar, tokens).masks())[0]
        tokens.append(int(np.where(mask, logits, -np.inf).argmax()))
    return tokens


Make = Callable[[list[int]], Drafter | None]
DRAFTERS: dict[str, Make] = {
    "forced tokens alone": lambda text: None,
    "history": lambda text: LookupDrafter(history=True),
    "dictionary": lambda text: dictionary_of(text, vocabulary=ROWS),
    "oracle": lambda text: Reference(text, wrong=0.2, vocabulary=ROWS),
    "guesser": lambda text: Guesser(vocabulary=ROWS),
    "draft model": lambda text: ModelDrafter(demo()[2]),
    "hybrid": lambda text: HybridDrafter([LookupDrafter(history=True), ModelDrafter(demo()[2])], draft_cost=0.1),
}


def test_every_drafter_writes_what_constrained_plain_decoding_writes() -> None:
    model, tokenizer, _ = demo()
    prompt = tokenizer.encode("Wczoraj wieczorem w domu kultury")
    total = {name: DraftStatistics() for name in ["plain", *DRAFTERS]}
    for name, grammar in grammars():
        expected = constrained(grammar, model, prompt, 24)
        common = {"max_tokens": 24, "stop_tokens": tokenizer.eos_token_ids, "grammar": grammar}
        for drafting, make in {"plain": lambda text: None, **DRAFTERS}.items():
            drafter = make(expected)
            length = 0 if drafting == "plain" else 4
            statistics = total[drafting]
            steps = generate_step(
                prompt, model, drafter=drafter, num_draft_tokens=length, statistics=statistics, **common
            )
            assert [token for token, _, _ in steps] == expected, (name, drafting)
    assert not total["plain"].proposed and not any(each.failures for each in total.values())
    for name in DRAFTERS:
        print(name, total[name], dict(total[name].accepted_by))
        assert total[name].accepted_by["grammar"] > 0


def test_forced_tokens_and_what_follows_them_end_where_the_generation_does() -> None:
    model, tokenizer, _ = demo()
    grammar = Grammar(tokenizer, "regex", "(Most w Jaworowcu zamknięty (do|od) [a-z]{5}. ){3}")
    prompt = tokenizer.encode("Most w Jaworowcu zamknięty do końca. Most w Jaworowcu zamknięty do końca.")
    expected, total = constrained(grammar, model, prompt, 20), DraftStatistics()
    for count in range(1, 20):
        drafter = LookupDrafter(history=True)
        options: Any = {"drafter": drafter, "num_draft_tokens": 8, "grammar": grammar, "statistics": total}
        assert [token for token, *_ in generate_step(prompt, model, max_tokens=count, **options)] == expected[:count]
    assert any(source.startswith("grammar+history") for source in total.proposed_by), total.proposed_by


@pytest.mark.parametrize("schema", SCHEMAS)
def test_whole_answers_are_json_of_the_schema(schema: Any) -> None:
    model, tokenizer, _ = demo()
    grammar = Grammar(tokenizer, "json_schema", schema)
    for seed in range(2):
        options: Any = {"max_tokens": 200, "sampler": Sampling(temp=1.0), "seed": seed}
        responses = list(stream_generate(model, tokenizer, "Tekst:", grammar=grammar, **options))
        assert responses[-1].finish_reason == "stop"
        text = "".join(response.text for response in responses)
        assert matches(json.loads(text), schema), text


def matches(value: Any, schema: Any) -> bool:
    """Whether JSON is as one of `SCHEMAS` says, by its structure."""
    if "enum" in schema or "const" in schema:
        return value in schema.get("enum", [schema.get("const")])
    if "anyOf" in schema:
        return any(matches(value, each) for each in schema["anyOf"])
    if schema.get("type") == "object":
        parts = schema["properties"]
        return value.keys() == parts.keys() and all(matches(value[name], part) for name, part in parts.items())
    if schema.get("type") == "array":
        fits = schema.get("minItems", 0) <= len(value) <= schema["maxItems"]
        return fits and all("$ref" in schema["items"] or matches(each, schema["items"]) for each in value)
    kinds: dict[str, Any] = {"string": str, "integer": int, "boolean": bool, "number": (int, float)}
    return isinstance(value, kinds[schema["type"]]) and ("maxLength" not in schema or len(value) <= schema["maxLength"])


@cache
def letters() -> TokenizerWrapper:
    """A tokenizer of the bytes a, b, c, two merges of them, and an end: ids 0 to 7."""
    vocabulary = {"a": 0, "b": 1, "c": 2, "ab": 3, "bc": 4, "<s>": 5, "<end>": 6}
    backend = Tokenizer(models.BPE(vocabulary, [("a", "b"), ("b", "c")]))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    backend.add_special_tokens(["<s>", "<end>"])
    return TokenizerWrapper(PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="<end>"))


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("verify", ["exact", "rejection"])
@pytest.mark.parametrize("drafting", ["forced tokens alone", "draft model", "guesses"])
def test_the_distribution_is_the_models_over_allowed_tokens(drafting: str, verify: Any) -> None:
    model, sampling = tiny_model(vocabulary=8, scale=2.0), Sampling(temp=0.9, top_p=0.95)
    drafter: Drafter | None = None
    if drafting == "draft model":
        drafter = ModelDrafter(perturbed(model, vocabulary=8, noise=0.4))
    elif drafting == "guesses":
        drafter = Guesser(vocabulary=8)
    grammar = Grammar(letters(), "regex", "(abc|c)bcabb*")
    prompt, bias = [5, 1], LogitBias({6: 1.5, 3: 0.5})

    def following(prefix: tuple[int, ...]) -> NDArray[np.float64]:
        try:
            mask = bits(committed_to(grammar, list(prefix), rows=8).masks())[0]
        except RuntimeUnsupported:  # this prefix is never drawn
            mask = np.ones(8, bool)
        logits = bias(mx.array([0]), model(mx.array([[*prompt, *prefix]]))[:, -1])[0]
        return np.where(mask, np.array(logits, dtype=np.float64), -np.inf)

    exact = joint(following, sampling, 8)
    total, draws = DraftStatistics(), np.zeros((200, 3), dtype=np.int64)
    mx.random.seed(11)
    for run in draws:
        steps = generate_step(
            prompt,
            model,
            drafter=drafter,
            num_draft_tokens=3,
            max_tokens=3,
            sampler=sampling,
            logits_processors=[bias],
            grammar=grammar,
            verify=verify,
            statistics=total,
        )
        run[:] = [token for token, _, _ in steps]
    assert check(f"{drafting}, {verify}", draws, exact) > FALSE_ALARM
    assert total.accepted > 0 and not total.failures


def test_a_parser_that_gives_up_ends_the_draft_or_the_generation() -> None:
    model, tokenizer, _ = demo()
    grammar = Grammar(tokenizer, "regex", "[b-d]?(a{1000}){1000}")
    constraint, text = grammar.constraint(ROWS), list[int]()
    with pytest.raises(RuntimeUnsupported, match="regex: cannot go on after"):
        while len(text) < 50:
            text.append(int(bits(constraint.masks())[0].argmax()))
            constraint.commit(text[-1:])
    again = committed_to(grammar, text[:-1])
    before = bits(again.masks())
    assert np.array_equal(bits(again.masks([*text[-1:], 100])), before)
    assert again.allowed([*text[-1:], 100]) >= 1
    assert np.array_equal(bits(again.masks()), before)
    with pytest.raises(RuntimeUnsupported, match="regex: cannot go on after"):
        list(generate_step([1], model, drafter=Reference(text, vocabulary=ROWS), num_draft_tokens=4, grammar=grammar))


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda t: Grammar(t, "json_schema", {"type": "strin"}), "json_schema: .*strin"),
        (lambda t: Grammar(t, "json_schema", {"propertyNames": {"pattern": "a"}}), "propertyNames"),
        (lambda t: Grammar(t, "json_schema", {"$ref": "http://127.0.0.1:1/x"}), "127.0.0.1"),
        (lambda t: Grammar(t, "json_schema", {"enum": [float("nan")]}), "JSON can say"),
        (lambda t: Grammar(t, "json_schema", "{"), "json_schema: .*read"),
        (lambda t: Grammar(t, "json_schema", {"properties": {str(i): {} for i in range(20_000)}}), "(?i)schema"),
        (lambda t: Grammar(t, "regex", "a("), "regex: .*unclosed group"),
        (lambda t: Grammar(t, "regex", "(" * 9_000 + ")" * 9_000), "regex: "),
        (lambda t: Grammar(t, "grammar", "start: word"), "grammar: .*word"),
        (lambda t: Grammar(t, "grammar", "start: start"), "grammar: "),
        (lambda t: Grammar(letters(), "regex", "[x-z]"), "regex: .*no text of it can be written"),
    ],
)
def test_what_cannot_be_enforced_is_refused(make: Callable[[Any], Grammar], problem: str) -> None:
    with pytest.raises(RuntimeUnsupported, match=problem) as refusal:
        make(demo()[1])
    assert len(str(refusal.value)) < 500


def test_a_sampler_that_ignores_probabilities_is_an_error() -> None:
    model, tokenizer, _ = demo()
    grammar = Grammar(tokenizer, "regex", "[a-z]+")
    steps = generate_step([1], model, sampler=lambda logprobs: mx.zeros(1, dtype=mx.int32), grammar=grammar)
    with pytest.raises(RuntimeUnsupported, match="chose token 0"):
        list(steps)


def test_an_answer_may_be_preceded_by_reasoning() -> None:
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=letters().backend_tokenizer, eos_token="<end>")
    tokenizer.add_tokens(["<think>", "</think>"], special_tokens=False)
    wrapped = TokenizerWrapper(tokenizer)
    begin, end = tokenizer.convert_tokens_to_ids(["<think>", "</think>"])
    for reasoning, texts in {
        False: ([0, 2], [begin, 1, 4, 2, end, 0, 2]),
        True: ([1, 4, 2, end, 0, 2], [end, 0, 2]),
    }.items():
        grammar = Grammar(wrapped, "regex", "ac", reasoning=reasoning)
        for text in texts:
            constraint = committed_to(grammar, text, rows=16)
            assert np.flatnonzero(bits(constraint.masks())[0]).tolist() == [6]
        assert committed_to(grammar, texts[1][:-1], rows=16).forced(4) == [2]
