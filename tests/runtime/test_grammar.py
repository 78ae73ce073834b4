"""Answers that follow a grammar: drafters against constrained plain decoding, and what is refused."""

import copy
import json
import re
from collections.abc import Callable
from datetime import date
from itertools import product
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.tokenizer_utils import TokenizerWrapper
from numpy.typing import NDArray

from spectool import RuntimeUnsupported
from spectool.runtime import batch_generate, generate
from spectool.runtime.decoding.generation import generate_step
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.decoding.streaming import stream_generate
from spectool.runtime.drafters.draft_model import ModelDrafter
from spectool.runtime.drafters.drafter import Drafter, DrafterSet
from spectool.runtime.drafters.lookup import LookupDrafter
from spectool.runtime.grammar import Grammar
from spectool.runtime.sampling.samplers import LogitBias, Sampling
from spectool.tests.runtime.distributions import FALSE_ALARM, check, joint
from spectool.tests.runtime.fake_drafters import Guesser, Reference, dictionary_of
from spectool.tests.runtime.models import perturbed, tiny_model
from spectool.tests.runtime.small_grammars import ROWS, SCHEMAS, bits, committed_to, demo, grammars, letters
from spectool.tests.tiers import nightly


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
    "hybrid": lambda text: DrafterSet([LookupDrafter(history=True), ModelDrafter(demo()[2])]),
}


@pytest.mark.nightly
def test_every_drafter_writes_what_constrained_plain_decoding_writes() -> None:
    model, tokenizer, _ = demo()
    prompt = tokenizer.encode("Wczoraj wieczorem w domu kultury")
    total = {name: DraftStatistics() for name in ["plain", *DRAFTERS]}
    for name, grammar in grammars():
        expected = constrained(grammar, model, prompt, 16)
        common = {"max_tokens": 16, "stop_tokens": tokenizer.eos_token_ids, "grammar": grammar}
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


@pytest.mark.parametrize("step", [8, *nightly(1)])
def test_forced_tokens_and_what_follows_them_end_where_the_generation_does(step: int) -> None:
    model, tokenizer, _ = demo()
    grammar = Grammar(tokenizer, "regex", "(Most w Jaworowcu zamknięty (do|od) [a-z]{5}. ){3}")
    prompt = tokenizer.encode("Most w Jaworowcu zamknięty do końca. Most w Jaworowcu zamknięty do końca.")
    expected, total = constrained(grammar, model, prompt, 18), DraftStatistics()
    for count in range(1, 18, step):
        drafter = LookupDrafter(history=True)
        options: Any = {"drafter": drafter, "num_draft_tokens": 8, "grammar": grammar, "statistics": total}
        assert [token for token, *_ in generate_step(prompt, model, max_tokens=count, **options)] == expected[:count]
    assert any(source.startswith("grammar+history") for source in total.proposed_by), total.proposed_by


FITS: list[Callable[[Any], object]] = [
    lambda found: found.keys() == {"nazwisko"} and len(found["nazwisko"]) <= 12,
    lambda found: 3 <= len(found) <= 5 and all(each in ("czerwony", "niebieski", 7, None) for each in found),
    lambda found: len(found) <= 6 and all(3 <= each <= 1200 for each in found),
    lambda found: found in ({"a": [True, "ґ"]}, *range(100)) or re.fullmatch("[a-f]{4}", found),
    lambda found: found.keys() == {"adres", "data", "czynny"} and date.fromisoformat(found["data"]) and fits(found),
]


def fits(found: Any) -> bool:
    street, number = found["adres"]["ulica"], found["adres"]["numer"]
    return len(street) <= 9 and number <= 999 and isinstance(found["czynny"], bool)


@pytest.mark.parametrize(("schema", "fit"), list(zip(SCHEMAS, FITS, strict=True)))
def test_whole_answers_are_json_of_the_schema(schema: Any, fit: Callable[[Any], object]) -> None:
    model, tokenizer, _ = demo()
    grammar = Grammar(tokenizer, "json_schema", schema)
    for seed in range(2):
        options: Any = {"max_tokens": 200, "sampler": Sampling(temp=1.0), "seed": seed}
        responses = list(stream_generate(model, tokenizer, "Tekst:", grammar=grammar, **options))
        assert responses[-1].finish_reason == "stop"
        text = "".join(response.text for response in responses)
        assert fit(json.loads(text)), text


DRAWN = product(("forced tokens alone", "draft model", "guesses"), ("exact", "rejection"), (200,))


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(("drafting", "verify", "runs"), [("draft model", "rejection", 30), *nightly(*DRAWN)])
def test_the_distribution_is_the_models_over_allowed_tokens(drafting: str, verify: Any, runs: int) -> None:
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
    total, draws = DraftStatistics(), np.zeros((runs, 3), dtype=np.int64)
    mx.random.seed(11)
    for run in draws:
        steps = generate_step(
            prompt,
            model,
            drafter=drafter,
            num_draft_tokens=3,
            max_tokens=3,
            sampler=sampling if verify == "rejection" else sampling.__call__,  # whose distribution nobody knows
            logits_processors=[bias],
            grammar=grammar,
            statistics=total,
        )
        run[:] = [token for token, _, _ in steps]
    assert check(f"{drafting}, {verify}", draws, exact) > FALSE_ALARM
    assert total.accepted > 0 and not total.failures


@pytest.mark.nightly  # ten seconds
def test_a_parser_that_gives_up_ends_the_draft_or_the_generation() -> None:
    model, tokenizer, _ = demo()
    grammar = Grammar(tokenizer, "regex", "[b-d]?(a{1000}){1000}")
    constraint, text = grammar.constraint(ROWS), list[int]()
    with pytest.raises(RuntimeUnsupported, match="regex: cannot continue after"):
        while len(text) < 50:
            text.append(int(bits(constraint.masks())[0].argmax()))
            constraint.commit(text[-1:])
    again = committed_to(grammar, text[:-1])
    before = bits(again.masks())
    assert np.array_equal(bits(again.masks([*text[-1:], 100])), before)
    assert again.allowed([*text[-1:], 100]) >= 1
    assert np.array_equal(bits(again.masks()), before)
    with pytest.raises(RuntimeUnsupported, match="regex: cannot continue after"):
        list(generate_step([1], model, drafter=Reference(text, vocabulary=ROWS), num_draft_tokens=4, grammar=grammar))


LISTED: Any = {"type": "object", "properties": {"a": {}}, "required": ["a"]}
CLOSED: Any = LISTED | {"additionalProperties": False}
PRIME = '{"type": "integer", "\\u006dultipleOf": 10000019}'  # of which the parser would follow each remainder
CLOSED_PATTERN: Any = {"type": "object", "patternProperties": {"^a$": {"type": "null"}}, "additionalProperties": False}


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda t: Grammar(t, "json_schema", {"type": "strin"}), "json_schema: .*strin"),
        (lambda t: Grammar(t, "json_schema", {"propertyNames": {"pattern": "a"}}), "propertyNames"),
        (lambda t: Grammar(t, "json_schema", {"$ref": "http://127.0.0.1:1/x"}), "127.0.0.1"),
        (lambda t: Grammar(t, "json_schema", {"enum": [float("nan")]}), "JSON can express"),
        (lambda t: Grammar(t, "json_schema", Grammar), "JSON can express"),
        (lambda t: Grammar(t, "json_schema", "{"), "json_schema: .*read"),
        (lambda t: Grammar(t, "json_schema", {"allOf": [{"multipleOf": 9.97}, {"multipleOf": 991}]}), "multipleOf"),
        (lambda t: Grammar(t, "grammar", f"start: %json\n{PRIME}"), "multipleOf 10000019"),
        *nightly((lambda t: Grammar(t, "json_schema", {"properties": {str(i): {} for i in range(20_000)}}), "schema")),
        (lambda t: Grammar(t, "regex", "a("), "regex: .*unclosed group"),
        (lambda t: Grammar(t, "regex", "(" * 9_000 + ")" * 9_000), "regex: "),
        (lambda t: Grammar(t, "grammar", "start: word"), "grammar: .*word"),
        (lambda t: Grammar(t, "grammar", "start: start"), "grammar: "),
        (lambda t: Grammar(t, "grammar", r'root ::= "\\" [\u0430-\u044f]'), "write the characters themselves"),
        (lambda t: Grammar(letters(), "regex", "[x-z]"), "regex: .*no text of it can be written"),
    ],
)
def test_what_cannot_be_enforced_is_refused(make: Callable[[Any], Grammar], problem: str) -> None:
    with pytest.raises(RuntimeUnsupported, match=problem) as refusal:
        make(demo()[1])
    assert len(str(refusal.value)) < 500


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "object", "patternProperties": {"": False}}, "{}"),
        ({"allOf": [CLOSED, {"patternProperties": {"^a$": {"type": "null"}}}]}, '{"a":null}'),
        ({"allOf": [CLOSED, CLOSED_PATTERN]}, '{"a":null}'),
        (LISTED | {"allOf": [{**CLOSED_PATTERN, "patternProperties": {"^[ab]$": {}}}]}, '{"a":null,"b":1}'),
        (CLOSED | {"patternProperties": {"^[ab]$": {"type": "null"}}}, '{"a":null,"b":null}'),
        (CLOSED | {"patternProperties": {"^a$": {}}, "additionalProperties": {}}, '{"a":[],"b":null}'),
        (CLOSED | {"properties": {"a": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}}, '{"a":{"a":null}}'),
        ({"type": "array", "items": {"$ref": "#"}}, "[[],[[]]]"),
        ({"properties": {"enum": {"$ref": "#/properties/a"}, "a": {"const": {"$ref": "#"}}}}, '{"enum":{"$ref":"#"}}'),
    ],
)
def test_what_can_be_finished_is_accepted(schema: Any, text: str) -> None:
    grammar = Grammar(demo()[1], "json_schema", schema)
    last = bits(committed_to(grammar, spelled(grammar, text)).masks())[0]
    assert last[list(demo()[1].eos_token_ids)].any()


def spelled(grammar: Grammar, text: str) -> list[int]:
    """Tokens of exactly ``text``, without the space that the tokenizer would put before it."""
    return list(grammar.vocabulary.trie.greedy_tokenize(text))


def written(grammar: Grammar, wanted: str, count: int = 90) -> str | None:
    """What a model writes that prefers tokens of the characters ``wanted``; None if it has not ended."""
    constraint, ids = grammar.constraint(ROWS), list[int]()
    alone = [token for each in wanted for token in spelled(grammar, each)]
    while len(ids) < count:
        mask = bits(constraint.masks())[0]
        liked = [token for token in alone if mask[token]]
        token = liked[len(ids) % len(liked)] if liked else int(np.flatnonzero(mask)[0])
        constraint.commit([token])
        if token in demo()[1].eos_token_ids:
            return b"".join(grammar.vocabulary.spelled[each] for each in ids).decode()
        ids.append(token)
    return None


@pytest.mark.parametrize(
    ("schema", "wanted", "text"),
    [
        ({"type": "integer"}, "1", "1" * 20),
        ({"type": "integer", "maximum": 99}, "-1", "-" + "1" * 20),
        ({"type": "integer", "minimum": 10**17}, "5", "5" * 20),
        ({"type": "integer", "minimum": 0, "maximum": 120}, "1", "111"),
        ({"type": "integer", "multipleOf": 10}, "10", "1" + "01" * 9 + "0"),
        ({"type": "number"}, "1.", "1." + "1" * 20),
        ({"type": "number"}, "1e", "1e11"),
        ({"type": "number", "minimum": 0, "maximum": 1}, "0.", "0." + "0" * 20),
        ({"type": "string", "pattern": "^[0-9]{30}$"}, "7", '"' + "7" * 30 + '"'),
        ({"type": "string", "pattern": "^[0-9a-f]{40}$"}, "0", '"' + "0" * 40 + '"'),
        ({"type": "string", "pattern": "^[0-9 ]{26,32}$"}, "7", '"' + "7" * 32 + '"'),
        ({"type": "string", "minLength": 26, "maxLength": 26}, "7", '"' + "7" * 26 + '"'),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 1}, "7", None),
        ("[0-9]{10,40}", "7", "7" * 40),
        ({"const": 10**24}, "1", None),
    ],
)
def test_numbers_end_and_are_of_the_schema(schema: Any, wanted: str, text: str | None) -> None:
    got = written(Grammar(demo()[1], "regex" if isinstance(schema, str) else "json_schema", schema), wanted)
    assert got is not None and (text is None or got == text), got


def test_drafts_are_cut_where_a_number_has_all_its_digits() -> None:
    grammar = Grammar(demo()[1], "json_schema", {"type": "array", "items": {"type": "integer"}})
    draft = [token for each in "[" + "7" * 25 for token in spelled(grammar, each)]
    constraint = grammar.constraint(ROWS)
    before = bits(constraint.masks(draft))
    assert len(before) == 22  # the bracket, 20 digits, and what may follow these
    assert np.array_equal(bits(constraint.masks(draft)), before)
    (comma,) = spelled(grammar, ",")
    assert before[-1][comma] and not before[-1][draft[1]]


@pytest.mark.parametrize("kind", ["choice", "json_schema"])
def test_thousands_of_choices_and_hundreds_of_optional_properties_work(kind: str) -> None:
    texts = [f'tekst {i * 7919} / "{i}"\x7f𝄞' for i in range(5000)]
    optional = {"type": "object", "properties": {f"p{i}": {"type": "null"} for i in range(500)}}
    grammar = Grammar(demo()[1], kind, texts if kind == "choice" else {**optional, "additionalProperties": False})
    for text in texts[::1000] if kind == "choice" else ['{"p7": null,"p499":null}']:
        ids = spelled(grammar, text)
        constraint = committed_to(grammar, ids)
        assert bits(constraint.masks())[0][list(demo()[1].eos_token_ids)].any(), text


def test_a_grammar_holds_for_the_tokens_that_it_was_compiled_for() -> None:
    model, tokenizer, _ = demo()
    other = Grammar(letters(), "regex", "[a-c]+")
    for write in (lambda: list(stream_generate(model, tokenizer, "Most", grammar=other)),
                  lambda: batch_generate(model, tokenizer, ["Most"], grammar=other)):  # fmt: skip
        with pytest.raises(RuntimeUnsupported, match="grammar: compiled for the tokens of another tokenizer"):
            write()
    own = Grammar(tokenizer._tokenizer, "regex", "[a-c]{3}")
    copied = TokenizerWrapper(copy.deepcopy(tokenizer._tokenizer))
    assert Grammar(tokenizer._tokenizer, "regex", "a").vocabulary is own.vocabulary, "it is computed once"
    for same in (tokenizer, tokenizer._tokenizer, copied):
        assert set(generate(model, same, "Most", grammar=own, max_tokens=8)) <= set("abc")


def test_an_answer_may_be_preceded_by_reasoning() -> None:
    tokenizer = copy.deepcopy(letters()._tokenizer)
    tokenizer.add_tokens(["<think>", "</think>"], special_tokens=False)
    wrapped = TokenizerWrapper(tokenizer, eos_token_ids=["2", None, 99])  # a configuration may say anything
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


def test_an_answer_of_gpt_oss_is_in_its_final_channel() -> None:
    tokenizer = copy.deepcopy(letters()._tokenizer)
    tokenizer.chat_template = "<|channel|>analysis"
    words, markers = ["analysis", "final", "assistant"], ["<|channel|>", "<|message|>", "<|end|>", "<|start|>"]
    tokenizer.add_tokens(words)
    tokenizer.add_tokens(markers, special_tokens=True)
    analysis, final, assistant, channel, message, end, start = tokenizer.convert_tokens_to_ids(words + markers)
    grammar = Grammar(TokenizerWrapper(tokenizer), "regex", "ac", reasoning=False)
    header = [channel, final, message]
    thought = [channel, analysis, message, 1, 4, 2, end, start, assistant]
    for before in ([], header, [*thought, *header]):  # an answer that is continued has its header already
        constraint = committed_to(grammar, [*before, 0, 2], rows=16)
        assert np.flatnonzero(bits(constraint.masks())[0]).tolist() == [6]
    assert np.flatnonzero(bits(committed_to(grammar, thought, rows=16).masks())[0]).tolist() == [channel]
