"""Tokens per second and seconds to the first token through HTTP, of ``spectool serve`` and ``mlx_lm.server``.

    LD_PRELOAD=/usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblas.so.0 \\
        python benchmarks/server_speed.py --model gemma3-270m --clients 1 --clients 8 --temperature 0

All servers run, and one of them is asked at a time, in turns. Each client asks for continuations of Polish MT-Bench,
from the folder named by SPECTOOL_SHARED, one after the other; no prompt comes twice. The ratios are ours divided by
theirs: tokens per second, the median of the rounds with the lowest and the highest, and their geometric mean with its
95% interval; and the same of tokens per second of processor time where /proc shows it, which other programs disturb
less. Drafts come from the history and a dictionary; ``plain`` is our server without drafts, which shows what the
server itself costs. With ``--draft-model``, a server with that model takes its place, and with ``--before`` one more
of another version, in ``FOLDER/spectool``. The first round of each setting does not count, because passes of new sizes
compile, and draft lengths are tried. Where three servers of a model do not fit into memory, ``--leave-out`` compares
the other two.

Prints a line of JSON for each setting and appends it to ``benchmarks/results/server_speed.jsonl``.
"""

import json
import os
import platform
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple
from unittest.mock import patch

import click
from real_data import dictionary_of
from real_models import SHARED, real_model
from saving import json_lines, save

from spectool.measure.intervals import speedup_interval

FIGURES = "speed", "processor_speed"


class Running(NamedTuple):
    """A server."""

    url: str
    process: int
    others: tuple[int, ...] = ()  # processes of its ring

    def signal(self, number: int) -> None:
        """Send a signal to all of its processes."""
        for process in (self.process, *self.others):
            os.kill(process, number)

    def processor_seconds(self) -> float:
        """Seconds of the processor that it has used; NaN where /proc does not show them."""
        stat = Path(f"/proc/{self.process}/stat")
        if not stat.exists():
            return float("nan")
        fields = stat.read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Measured(NamedTuple):
    """What one round with one server came to."""

    speed: float  # tokens per second
    processor_speed: float  # tokens per second of the processor
    first: float  # seconds to the first token, on average
    drafts: int  # tokens that were proposed, where a server says it
    texts: list[str]


def ask(url: str, prompt: str, tokens: int, temperature: float) -> tuple[int, float, int, str]:
    """Stream one answer; return its tokens, the seconds until the first one, the tokens proposed, and the text."""
    asked = {"prompt": prompt, "max_tokens": tokens, "temperature": temperature, "stream": True}
    body = json.dumps({**asked, "stream_options": {"include_usage": True}}).encode()
    request = urllib.request.Request(f"{url}/v1/completions", body, {"Content-Type": "application/json"})
    began, first, text, count, drafts = time.perf_counter(), 0.0, "", 0, 0
    with urllib.request.urlopen(request, timeout=600) as answer:
        for line in answer:
            if line.startswith(b"data: {"):
                event = json.loads(line[6:])
                text += "".join(choice.get("text") or "" for choice in event.get("choices", ()))
                first = first or (time.perf_counter() - began if text else 0.0)
                count = (event.get("usage") or {}).get("completion_tokens", count)
                drafts += (event.get("metrics") or {}).get("speculative_decoding", {}).get("num_draft_tokens", 0)
    return count, first or time.perf_counter() - began, drafts, text


def measure(server: Running, prompts: Sequence[Sequence[str]], tokens: int, temperature: float) -> Measured:
    """Ask for the answers to a list of prompts for each client, all clients at the same time."""

    def client(number: int) -> list[tuple[int, float, int, str]]:
        time.sleep(0.02 * number)  # mlx_lm.server resets some of many connections that come in the same instant
        return [ask(server.url, prompt, tokens, temperature) for prompt in prompts[number]]

    began, before = time.perf_counter(), server.processor_seconds()
    with ThreadPoolExecutor(len(prompts)) as pool:
        answers = [answer for asked in pool.map(client, range(len(prompts))) for answer in asked]
    count, firsts, drafts, texts = zip(*answers, strict=True)
    spent = server.processor_seconds() - before
    return Measured(
        sum(count) / (time.perf_counter() - began), sum(count) / spent, mean(firsts), sum(drafts), list(texts)
    )


def ratios(runs: Sequence[Mapping[str, Measured]], name: str, base: str, of: str) -> list[float]:
    """How a figure of a server compares with another's: median, lowest and highest round, mean and its interval."""
    each = sorted(getattr(run[name], of) / getattr(run[base], of) for run in runs)
    center, low, high, _ = speedup_interval(each)
    return [round(ratio, 3) for ratio in (median(each), each[0], each[-1], center, low, high) if ratio is not None]


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]


@contextmanager
def serving(*command: str, processes: int = 1) -> Iterator[Running]:
    """A server: ``command`` with a port added, started as one process or as several in MLX's ring."""
    port, *ring = free_ports(1 + processes)
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryFile() as log, tempfile.NamedTemporaryFile("w", suffix=".json") as hosts:
        json.dump([[f"127.0.0.1:{each}"] for each in ring], hosts)
        hosts.flush()
        started = [
            subprocess.Popen(
                [sys.executable, "-m", *command, "--port", str(port)],
                env=os.environ | ({"MLX_RANK": str(rank), "MLX_HOSTFILE": hosts.name} if processes > 1 else {}),
                stdout=log,
                stderr=log,
            )
            for rank in range(processes)
        ]
        process = started[0]
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
            yield Running(url, process.pid, tuple(each.pid for each in started[1:]))
        finally:
            for each in started:
                each.send_signal(signal.SIGCONT)
                each.terminate()
            for each in started:
                each.wait()


@click.command()
@click.option("--model", required=True, help="Name of a real model, or a directory.")
@click.option("--dict", "dictionary", type=Path, help="Dictionary; by default one of 5 MB from the Polish corpus.")
@click.option("--draft-model", help="Directory of a draft model for one more server, which also has the dictionary.")
@click.option("--alignment", help="From its tokenizer to the model's.")
@click.option("--before", type=Path, help="Folder with another version of ours, for one more server.")
@click.option("--before-options", help="Its options, by default those of the server with a draft model.")
@click.option("--clients", type=int, multiple=True, default=(1, 2, 4, 8), show_default=True)
@click.option("--temperature", type=float, multiple=True, default=(0.0, 0.7), show_default=True)
@click.option("--rounds", type=int, default=3, show_default=True)
@click.option("--each", type=int, default=2, show_default=True, help="Prompts of each client in a round.")
@click.option("--tokens", type=int, default=64, show_default=True)
@click.option("--leave-out", type=click.Choice(["drafts", "mlx_lm", "plain"]), help="A server, to save memory.")
@click.option("--processes", type=int, default=1, show_default=True, help="That each server is spread over.")
def main(
    model: str,
    dictionary: Path | None,
    draft_model: str | None,
    alignment: str | None,
    before: Path | None,
    before_options: str | None,
    rounds: int,
    each: int,
    tokens: int,
    processes: int,
    leave_out: str | None,
    **settings: tuple[float, ...],
) -> None:
    """Compare the servers."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the servers end as well
    path = real_model(model)
    asked = json_lines(SHARED / "prompts" / "pl_mt_bench.jsonl")
    left = [f"{turn}\n" for line in asked for turn in line["turns"]]
    with ExitStack() as stack:
        known = str(dictionary or dictionary_of(model, "pl"))
        own = "spectool.cli", "serve", "--model", path
        commands = {
            "drafts": (*own, "--dict", known),
            "mlx_lm": ("mlx_lm", "server", "--model", path),
        }
        if draft_model is None:
            commands["plain"] = *own, "--no-dict", "--no-history"
        else:
            more = "--dict", known, "--draft-model", draft_model, *(("--alignment", alignment) if alignment else ())
            commands["draft_model"] = *own, *more
        servers = {
            name: stack.enter_context(serving(*command, processes=processes))
            for name, command in commands.items()
            if name != leave_out
        }
        if draft_model is not None and before is not None:
            of_before = more if before_options is None else shlex.split(before_options)
            with patch.dict(os.environ, PYTHONPATH=str(before)):
                servers["before"] = stack.enter_context(serving(*own, *of_before, processes=processes))
        base = "drafts" if leave_out == "mlx_lm" else "mlx_lm"
        ours = [name for name in servers if name != base]

        def measured(name: str, *asked: Any) -> Measured:
            """Measure a server while the others, whose rings would wait with a processor each, are halted."""
            for other, server in servers.items():
                if processes > 1:
                    server.signal(signal.SIGCONT if other == name else signal.SIGSTOP)
            return measure(servers[name], *asked)

        for name in servers:
            measured(name, [["Dzień dobry."]], 16, 0.0)
        for heat, clients in ((heat, int(count)) for heat in settings["temperature"] for count in settings["clients"]):
            runs: list[dict[str, Measured]] = []
            for number in range(1 + rounds):
                prompts = [[left.pop(0) for _ in range(each)] for _ in range(clients)]
                left += [f"{number}. {prompt}" for own in prompts for prompt in own]
                order = list(servers)[number % len(servers) :] + list(servers)[: number % len(servers)]
                runs.append({name: measured(name, prompts, tokens, heat) for name in order})
            del runs[0]
            texts = [[text.strip() for run in runs for text in run[name].texts] for name in (ours[-1], base)]
            result = {
                "model": model,
                "clients": clients,
                "processes": processes,
                "tokens": tokens,
                "temperature": heat,
                "against": base,
                **{f"{name}_{of}": ratios(runs, name, base, of) for name in ours for of in FIGURES},
                "tokens_per_second": {name: round(median(run[name].speed for run in runs), 1) for name in servers},
                "first_token_seconds": {name: round(median(run[name].first for run in runs), 3) for name in servers},
                "draft_tokens": {name: sum(run[name].drafts for run in runs) for name in servers},
                "same_texts": sum(a == b for a, b in zip(*texts, strict=True)),
                "texts": len(texts[0]),
                "machine": platform.platform(),
            }
            print(json.dumps(result), flush=True)
            save("server_speed", result)


if __name__ == "__main__":
    main()
