"""The metrics as text: names, types, labels and numbers that Prometheus can read."""

import re
from threading import Thread

from spectool.runtime.drafters.drafter import Cycle
from spectool.serve.metrics import Metrics

LINE = re.compile(
    r'(# (HELP|TYPE) [a-z_:]+ .+|[a-z_:]+(\{[a-z]+="(\\["\\n]|[^"\\\n])*"(,[a-z]+="[^"\n]*")*\})? [0-9.e+-]+)'
)


def test_the_text_is_well_formed_and_complete() -> None:
    metrics = Metrics()
    metrics.add("requests_total", path='/a"b\\c\nd', status="200")
    metrics.add("drafted_tokens_total", 12_345_678, source="dictionary+history")
    metrics.add("prompt_seconds_total", 0.25)
    text = metrics.exposition({"requests_running": 1})
    assert all(LINE.fullmatch(line) for line in text.splitlines()), text
    assert r'spectool_requests_total{path="/a\"b\\c\nd",status="200"} 1.0' in text
    assert 'spectool_drafted_tokens_total{source="dictionary+history"} 1.2345678e+07\n' in text
    assert "spectool_prompt_seconds_total 0.25\n" in text
    assert "spectool_requests_running 1.0\n" in text
    assert "spectool_target_passes_total 0.0\n" in text
    names = re.findall(r"# TYPE ([\w:]+)", text)
    assert len(names) == len(set(names)) == len(re.findall(r"# HELP", text))


def test_cycles_have_the_names_that_vllm_gives_them() -> None:
    metrics = Metrics()
    for proposal, accepted in (((1, 2, 3), 2), ((4,), 0), ((5, 6), 2)):
        metrics.add_cycle(Cycle(proposal, "history", accepted, (*proposal[:accepted], 9)))
    lines = metrics.exposition({}).splitlines()
    assert [line for line in lines if line.startswith("vllm:")] == [
        "vllm:spec_decode_num_drafts_total 3.0",
        "vllm:spec_decode_num_draft_tokens_total 6.0",
        "vllm:spec_decode_num_accepted_tokens_total 4.0",
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 2.0',
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{position="1"} 2.0',
    ]


def test_threads_lose_no_count() -> None:
    metrics = Metrics()

    def count() -> None:
        for _ in range(2_000):
            metrics.add("generated_tokens_total")

    threads = [Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "spectool_generated_tokens_total 16000.0\n" in metrics.exposition({})
