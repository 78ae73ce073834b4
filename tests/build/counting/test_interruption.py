"""Ctrl-C while text is counted."""

import time
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from spectool.build.counting.options import CountOptions
from spectool.build.counting.stage import count_text
from spectool.corpora import open_corpus
from spectool.tests.running import TOKENIZER
from spectool.tokenization.opening import open_tokenizer


def test_no_task_goes_on_after_an_interruption_while_its_thread_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = []

    def encode(*arguments: Any) -> dict[str, Any]:
        time.sleep(0.2)
        ended.append(arguments)
        return {}

    def interrupted(thread: Thread, start: Any = Thread.start) -> None:
        start(thread)
        if thread.name.endswith("_0"):  # the first of a pool
            raise KeyboardInterrupt

    monkeypatch.setattr("spectool.build.counting.symbols.encode_tokens", encode)
    monkeypatch.setattr(Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        count_text(open_corpus("sample:pl"), tmp_path / "x", CountOptions(), open_tokenizer(TOKENIZER), print)
    assert ended, "it would write into a folder that is being removed"
