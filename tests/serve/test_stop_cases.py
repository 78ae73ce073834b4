"""Stop texts through HTTP, thousands of them, from clients whose answers share passes, streamed and not."""

import json
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from mlx_lm import load, stream_generate

from spectool.serve.server import Server
from spectool.tests.serve.questions import PROMPTS, TOKENS
from spectool.tests.serve.servers import TARGET, exchange, post, serving

CASES = 3336
CLIENTS = 6


def answer(prompt: str) -> str:
    """mlx-lm's answer, without a character that is not whole."""
    model, tokenizer, *_ = load(TARGET)
    tokens = [response.token for response in stream_generate(model, tokenizer, prompt, max_tokens=TOKENS)]
    before = tokenizer.encode(prompt)
    return str(tokenizer.decode([*before, *tokens])).removeprefix(tokenizer.decode(before)).rstrip("\ufffd")


def stops_in(text: str, rng: random.Random) -> list[str]:
    """One to four texts of up to 12 characters: in ``text``, almost in it, or neither."""
    stops = []
    for _ in range(rng.choice([1, 1, 1, 2, 3, 4])):
        place, length = rng.randrange(len(text)), rng.randint(1, 12)
        part = text[place : place + length]
        stops.append(rng.choice([part, part, part, part + "§", "§" + part]))
    return stops


def ended(text: str, stops: Sequence[str]) -> tuple[str, str]:
    """The answer and why it ends: before the stop text that ends first or, of those that end there, begins first."""
    if found := [(place + len(stop), place) for stop in stops if (place := text.find(stop)) >= 0]:
        return text[: min(found)[1]], "stop"
    return text, "length"


def answered(server: Server, prompt: str, stops: list[str], streamed: bool) -> tuple[str, str]:
    asked = {"prompt": prompt, "max_tokens": TOKENS, "stop": stops, "temperature": 0, "stream": streamed}
    status, _, body = exchange(server, post("/v1/completions", asked))
    assert status == 200, body
    lines = [line[6:] for line in body.split(b"\n") if line.startswith(b"data: {")] if streamed else [body]
    choices = [choice for line in lines for choice in json.loads(line)["choices"]]
    return "".join(choice["text"] for choice in choices), choices[-1]["finish_reason"]


@pytest.mark.slow
@pytest.mark.nightly
def test_every_stop_text_ends_the_answer_where_it_is(seed: int = 3336) -> None:
    rng = random.Random(seed)
    answers = {prompt: answer(prompt) for prompt in [*PROMPTS, "Wczoraj wieczorem w domu kultury"]}
    cases = []
    for _ in range(CASES):
        prompt = rng.choice(list(answers))
        cases.append((prompt, stops_in(answers[prompt], rng)))

    def wrong(case: tuple[str, list[str]]) -> list[object]:
        prompt, stops = case
        expected = ended(answers[prompt], stops)
        got = {streamed: answered(server, prompt, stops, streamed) for streamed in (False, True)}
        return [(*case, expected, got)] if set(got.values()) != {expected} else []

    with serving(batch=4) as server, ThreadPoolExecutor(CLIENTS) as clients:
        failures = [failure for each in clients.map(wrong, cases) for failure in each]
    stopped = sum(ended(answers[prompt], stops)[1] == "stop" for prompt, stops in cases)
    print(f"seed {seed}: {len(cases)} cases, {stopped} of them stop; {len(failures)} wrong")
    assert not failures, failures[:5]
