"""Tokens per second and seconds to the first token through HTTP, of ``spectool serve`` and ``mlx_lm.server``.

    LD_PRELOAD=/usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblas.so.0 \\
        python benchmarks/server_speed.py --model gemma3-270m --clients 1 --clients 8 --temperature 0

Both servers run at the same time, and only one of them is asked at a time. With each number of clients, every client
asks for the continuations of prompts of its own, Polish MT-Bench from the folder named by SPECTOOL_SHARED, one after
the other; the servers take turns, and every other round in the opposite order. No prompt is repeated in a run, so that
no prompt cache helps. The result is the ratio of tokens per second, ours divided by theirs: the median of the rounds,
and the lowest and highest. The drafts come from the history and a dictionary.

Prints a table and appends to ``benchmarks/results/server_speed.jsonl``.
"""

import json
import platform
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import mean, median
from typing import NamedTuple

import click
from real_data import dictionary_of
from real_models import SHARED, real_model

RESULTS = Path(__file__).parent / "results" / "server_speed.jsonl"
OURS, THEIRS = "spectool serve", "mlx_lm.server"


class Answer(NamedTuple):
    """What a client saw of one answer."""

    tokens: int
    first: float  # seconds until the first of them
    text: str


def ask(url: str, prompt: str, tokens: int, temperature: float) -> Answer:
    """Stream one answer."""
    asked = {"prompt": prompt, "max_tokens": tokens, "temperature": temperature, "stream": True}
    body = json.dumps({**asked, "stream_options": {"include_usage": True}}).encode()
    request = urllib.request.Request(f"{url}/v1/completions", body, {"Content-Type": "application/json"})
    began, first, text, count = time.perf_counter(), 0.0, "", 0
    with urllib.request.urlopen(request, timeout=600) as answer:
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            piece = "".join(choice.get("text") or "" for choice in event.get("choices", ()))
            first = first or (time.perf_counter() - began if piece else 0.0)
            text += piece
            count = (event.get("usage") or {}).get("completion_tokens", count)
    return Answer(count, first or time.perf_counter() - began, text)


def measure(url: str, prompts: Sequence[Sequence[str]], tokens: int, temperature: float) -> tuple[float, list[Answer]]:
    """Tokens per second of as many clients as there are lists of prompts, and their answers in order."""
    began = time.perf_counter()
    with ThreadPoolExecutor(len(prompts)) as pool:

        def client(own: Sequence[str]) -> list[Answer]:
            return [ask(url, prompt, tokens, temperature) for prompt in own]

        answers = [answer for each in pool.map(client, prompts) for answer in each]
    return sum(answer.tokens for answer in answers) / (time.perf_counter() - began), answers


@contextmanager
def serving(*command: str) -> Iterator[str]:
    """The address of a server, started by ``command`` with a port at its end."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen([sys.executable, "-m", *command, "--port", str(port)], stdout=log, stderr=log)
        try:
            for _ in range(1200):
                try:
                    urllib.request.urlopen(f"{url}/health", timeout=10).close()
                    break
                except OSError:
                    if process.poll() is not None:
                        log.seek(0)
                        raise click.ClickException(log.read().decode()) from None
                    time.sleep(0.1)
            yield url
        finally:
            process.terminate()
            process.wait()


@click.command()
@click.option("--model", required=True, help="Name of a real model, or a directory.")
@click.option("--dict", "dictionary", type=Path, help="Dictionary; by default one of 5 MB from the Polish corpus.")
@click.option("--clients", type=int, multiple=True, default=(1, 2, 4, 8), show_default=True)
@click.option("--temperature", type=float, multiple=True, default=(0.0, 0.7), show_default=True)
@click.option("--rounds", type=int, default=3, show_default=True)
@click.option("--each", type=int, default=2, show_default=True, help="Prompts of each client in a round.")
@click.option("--tokens", type=int, default=64, show_default=True)
def main(
    model: str,
    dictionary: Path | None,
    clients: tuple[int, ...],
    temperature: tuple[float, ...],
    rounds: int,
    each: int,
    tokens: int,
) -> None:
    """Compare the two servers."""
    path = model if Path(model).is_dir() else str(real_model(model))
    known = dictionary or dictionary_of(model, "pl")
    lines = (SHARED / "prompts" / "pl_mt_bench.jsonl").read_text().splitlines()
    turns = [turn for line in lines for turn in json.loads(line)["turns"]]
    with ExitStack() as stack:
        ours = stack.enter_context(serving("spectool.cli", "serve", "--model", path, "--dict", str(known)))
        theirs = stack.enter_context(serving("mlx_lm", "server", "--model", path))
        urls, asked = {OURS: ours, THEIRS: theirs}, 0
        for warm in urls.values():
            measure(warm, [["Dzień dobry."]], 16, 0.0)
        for heat in temperature:
            for count in clients:
                speeds: dict[str, list[float]] = {name: [] for name in urls}
                firsts: dict[str, list[float]] = {name: [] for name in urls}
                same = answered = 0
                for number in range(rounds):
                    prompts = [
                        [
                            f"{asked + at}. {turns[(asked + at) % len(turns)]}\n"
                            for at in range(client, count * each, count)
                        ]
                        for client in range(count)
                    ]
                    asked += count * each
                    texts = {}
                    for name in sorted(urls, reverse=bool(number % 2)):
                        speed, answers = measure(urls[name], prompts, tokens, heat)
                        speeds[name].append(speed)
                        firsts[name].append(mean(answer.first for answer in answers))
                        texts[name] = [answer.text.strip() for answer in answers]
                    same += sum(a == b for a, b in zip(*texts.values(), strict=True))
                    answered += count * each
                ratios = [a / b for a, b in zip(speeds[OURS], speeds[THEIRS], strict=True)]
                result = {
                    "model": model,
                    "clients": count,
                    "temperature": heat,
                    "ratio": round(median(ratios), 3),
                    "ratios": [round(min(ratios), 3), round(max(ratios), 3)],
                    "tokens_per_second": {name: round(median(each), 1) for name, each in speeds.items()},
                    "first_token_seconds": {name: round(median(each), 3) for name, each in firsts.items()},
                    "same_texts": f"{same}/{answered}",
                    "machine": platform.platform(),
                }
                print(json.dumps(result), flush=True)
                with RESULTS.open("a") as file:
                    file.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
