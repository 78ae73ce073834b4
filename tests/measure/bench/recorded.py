"""Runs of the bundled models, and replays of them."""

from pathlib import Path

from spectool.runtime.demo_models import demo_path
from spectool.runtime.drafters.drafter import Drafter, accepted_length

TARGET = str(demo_path("target"))
TOKENS = 20


def options(work: Path, out: Path, *more: object) -> list[str]:
    """The command that measures a dictionary and a draft model on three prompts."""
    drafters = f"name=dictionary,dict={work / 'pl.dict'},history", f"name=draft,draft-model={demo_path('draft')}"
    given = ["bench", "--model", TARGET, "--drafter", drafters[0], "--drafter", drafters[1], "--tokens", TOKENS]
    given += ["--prompts", work / "prompts.txt", "--num-draft-tokens", 2, "--num-draft-tokens", "auto", *more]
    return [*map(str, given), "-o", str(out)]


def replayed(drafter: Drafter, prompt: list[int], output: list[int]) -> tuple[int, int]:
    """Return passes and accepted drafts with the output in the target's place, two drafts a cycle."""
    drafter.start(prompt)
    passes = position = accepted = 0
    while position < len(output):
        proposal = drafter.propose(min(2, TOKENS - position - 1))
        right = accepted_length(proposal.tokens, output[position:])
        committed = output[position : position + right + 1]
        drafter.commit(committed)
        passes, accepted, position = passes + 1, accepted + right, position + len(committed)
    return passes, accepted
