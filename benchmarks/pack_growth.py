"""Time and memory of ``spectool pack`` for text of 20 MB to 1 GB.

    python benchmarks/pack_growth.py

The text is what there is in Polish, Ukrainian and Crimean Tatar. Where that is not enough, it is repeated with one word
in four changed, differently each time, so that repeats are not all alike. Each pack is built in a process of its own,
whose processor time and largest memory are taken. Adds lines to ``benchmarks/results/pack_growth.jsonl``.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import click
from real_data import real_corpus
from saving import save

FOLDER = Path(__file__).parent.parent / ".scratch" / "packs"
_ONE_IN = 4
_WORD = re.compile(r"\w{4,}")


def changed(text: str, repeat: int) -> str:
    """A text with some of its words turned around, others at each repeat."""
    if not repeat:
        return text
    return _WORD.sub(lambda found: found[0][::-1] if (found.start() + repeat) % _ONE_IN == 0 else found[0], text)


def lines() -> Iterator[str]:
    """Text without end."""
    for repeat in count():
        for language in ("pl", "uk", "crh"):
            for document in real_corpus(language, "train"):
                yield changed(document, repeat) + "\n"


@click.command()
@click.option("--megabytes", "sizes", multiple=True, type=int, default=(20, 100, 300, 1000), show_default=True)
@click.option("--max-bytes", default="2MB", show_default=True)
def main(sizes: tuple[int, ...], max_bytes: str) -> None:
    """Measure, print and keep."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for size in sizes:
        text, out = FOLDER / "growth.txt", FOLDER / "growth.pack"
        written = 0
        with text.open("w", encoding="utf-8") as stream:
            for line in lines():
                written += len(line.encode())
                stream.write(line)
                if written >= size * 1_000_000:
                    break
        out.unlink(missing_ok=True)
        command = [sys.executable, "-m", "spectool.cli", "pack", str(text), "--language", "mul", "-o", str(out)]
        began = time.perf_counter()
        process = subprocess.Popen([*command, "--max-bytes", max_bytes])
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = status
        facts = {
            "text_bytes": written,
            "status": status,
            "seconds": round(time.perf_counter() - began, 1),
            "processor_seconds": round(usage.ru_utime + usage.ru_stime, 1),
            "peak_mb": usage.ru_maxrss // 1024,
            "pack_bytes": out.stat().st_size if out.exists() else None,
        }
        click.echo(json.dumps(facts))
        save("pack_growth", facts)
        text.unlink()


if __name__ == "__main__":
    main()
