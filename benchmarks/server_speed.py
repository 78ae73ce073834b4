"""Tokens per second and seconds to the first token through HTTP, of ``spectool serve`` and ``mlx_lm.server``.

    LD_PRELOAD=/usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblas.so.0 \\
        python benchmarks/server_speed.py --model gemma3-270m --clients 1 --clients 8 --temperature 0

Both servers run, and one of them is asked at a time, in turns. Each client asks for continuations of Polish MT-Bench,
from the folder named by SPECTOOL_SHARED, one after the other; no prompt comes twice. The ratio is ours divided by
theirs: tokens per second, the median of the rounds with the lowest and the highest. Drafts come from the history and a
dictionary.

Prints a line of JSON for each setting and appends it to ``benchmarks/results/server_speed.jsonl``.
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


class Measured(NamedTuple):
    """What one round with one server came to."""

    speed: float  # tokens per second
    first: float  # seconds to the first token, on average


def ask(url: str, prompt: str, tokens: int, temperature: float) -> tuple[int, float]:
    """Stream one answer; return its tokens and the seconds until the first text."""
    asked = {"prompt": prompt, "max_tokens": tokens, "temperature": temperature, "stream": True}
    body = json.dumps({**asked, "stream_options": {"include_usage": True}}).encode()
    request = urllib.request.Request(f"{url}/v1/completions", body, {"Content-Type": "application/json"})
    began, first, count = time.perf_counter(), 0.0, 0
    with urllib.request.urlopen(request, timeout=600) as answer:
        for line in answer:
            if line.startswith(b"data: {"):
                event = json.loads(line[6:])
                if not first and any(choice.get("text") for choice in event.get("choices", ())):
                    first = time.perf_counter() - began
                count = (event.get("usage") or {}).get("completion_tokens", count)
    return count, first or time.perf_counter() - began


def measure(url: str, prompts: Sequence[Sequence[str]], tokens: int, temperature: float) -> Measured:
    """Ask for the answers to a list of prompts for each client, all clients at the same time."""
    began = time.perf_counter()
    with ThreadPoolExecutor(len(prompts)) as pool:
        asked = pool.map(lambda own: [ask(url, prompt, tokens, temperature) for prompt in own], prompts)
        answers = [answer for client in asked for answer in client]
    count, firsts = zip(*answers, strict=True)
    return Measured(sum(count) / (time.perf_counter() - began), mean(firsts))


@contextmanager
def serving(*command: str) -> Iterator[str]:
    """The address of a server, started by ``command`` with a port at its end."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen([sys.executable, "-m", *command, "--port", str(port)], stdout=log, stderr=log)
        try:
            while True:
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
    model: str, dictionary: Path | None, rounds: int, each: int, tokens: int, **settings: tuple[float, ...]
) -> None:
    """Compare the two servers."""
    path = model if Path(model).is_dir() else str(real_model(model))
    lines = (SHARED / "prompts" / "pl_mt_bench.jsonl").read_text().splitlines()
    left = [f"{turn}\n" for line in lines for turn in json.loads(line)["turns"]]
    with ExitStack() as stack:
        known = str(dictionary or dictionary_of(model, "pl"))
        ours = stack.enter_context(serving("spectool.cli", "serve", "--model", path, "--dict", known))
        theirs = stack.enter_context(serving("mlx_lm", "server", "--model", path))
        for server in ours, theirs:
            measure(server, [["Dzień dobry."]], 16, 0.0)
        for heat, clients in ((heat, int(count)) for heat in settings["temperature"] for count in settings["clients"]):
            runs: list[list[Measured]] = []
            for number in range(rounds):
                prompts = [[left.pop(0) for _ in range(each)] for _ in range(clients)]
                left += [f"{number}. {prompt}" for own in prompts for prompt in own]
                order = (ours, theirs) if number % 2 else (theirs, ours)
                measured = {server: measure(server, prompts, tokens, heat) for server in order}
                runs.append([measured[ours], measured[theirs]])
            ratios = sorted(mine.speed / other.speed for mine, other in runs)
            result = {
                "model": model,
                "clients": clients,
                "temperature": heat,
                "ratio": [round(ratio, 3) for ratio in (median(ratios), ratios[0], ratios[-1])],
                "tokens_per_second": [round(median(run[at].speed for run in runs), 1) for at in (0, 1)],
                "first_token_seconds": [round(median(run[at].first for run in runs), 3) for at in (0, 1)],
                "answers": rounds * clients * each,
                "machine": platform.platform(),
            }
            print(json.dumps(result), flush=True)
            with RESULTS.open("a") as file:
                file.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
