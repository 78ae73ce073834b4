"""The policy on published cost curves of Apple chips, with real look-ups on held-out text.

    python benchmarks/mac_curves.py     Qwen 2.5's and Gemma 3's tokenizers, Polish and Ukrainian

Look-ups (dictionary and history) are recorded at every position of held-out text, cut into texts of 64 tokens after 64
of prompt, and replayed on each curve. *Fixed* is the best of 12 rules that cut a proposal where the probability of all
of its tokens falls below a threshold, chosen on these very texts. Speeds are times plain decoding. Nobody here has a
Mac: the curves are what others have published (docs/results.md names them), with lines between their points. Prints a
table and appends to ``benchmarks/results/mac_curves.jsonl``.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, islice, pairwise
from operator import mul

import click
from real_data import dictionary_of, encoded, real_corpus, real_tokenizer
from saving import save

from spectool.artifacts.dictionary import Dictionary
from spectool.lab.hindsight import Machine, Saved, play, policy_for, record
from spectool.runtime.drafters.drafter import Proposal, accepted_length
from spectool.runtime.drafters.lookup import LookupDrafter

CURVES: dict[str, dict[int, float]] = {  # plain passes by rows
    "M1, M2, 4-bit affine": {1: 1, 2: 1.8, 4: 3.1, 8: 6.2},
    "M1, M2, mxfp4": {1: 1, 4: 2.1, 8: 4.2},
    "M3 Max, 4-bit": {1: 1, 2: 1.0, 4: 1.28, 6: 2.04, 8: 2.5, 10: 3.9},
    "M3 Ultra, 31B, 4-bit": {1: 1, 16: 3.55},
    "M4 Pro, 4-bit": {1: 1, 2: 1.03, 3: 1.22, 4: 1.47, 6: 2.07, 8: 2.69, 10: 4.5},
    "M4 Pro, 4B, 8-bit": {1: 1, 2: 1.05, 3: 1.05, 4: 1.10, 5: 1.14, 6: 1.43, 8: 1.71},
    "M4 Max, 27B, mixed 4-bit": {1: 1, 2: 1.17, 3: 1.34, 4: 1.55, 5: 1.79, 7: 2.5, 9: 3.7},
    "M5 Max, 70B, 4-bit": {1: 1, 3: 1.11, 5: 1.45, 8: 2.2, 12: 3.2, 16: 3.9},
    "M5 Max, 27B, 4-bit": {1: 1, 3: 1.15, 4: 1.25, 8: 2.47},
    "mixture of experts": {1: 1, 4: 2.3, 8: 4.0},
}
THRESHOLDS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
PROMPT, TOKENS = 64, 64


def machine_of(points: Mapping[int, float]) -> Machine:
    """A machine whose passes cost what was published, and beyond that as the last points say."""

    def passes(rows: int) -> float:
        lines = list(pairwise(points.items()))
        (low, start), (high, end) = next((line for line in lines if rows <= line[1][0]), lines[-1])
        return start + (end - start) * (rows - low) / (high - low)

    return Machine(passes, {}, noise=0.05)


def recorded(model: str, language: str, count: int) -> Iterator[Saved]:
    """Texts of held-out documents, with what look-ups propose at every position."""
    dictionary = Dictionary(dictionary_of(model, language))
    pieces = (
        ids[at : at + PROMPT + TOKENS]
        for ids in encoded(real_tokenizer(model), real_corpus(language, "valid"), 40 * count * TOKENS)
        for at in range(0, len(ids) - PROMPT - TOKENS, 2 * TOKENS)
    )
    for ids in islice(pieces, count):
        drafter = LookupDrafter(dictionary, True, 0.01)
        yield record(ids[:PROMPT], ids[PROMPT:], {"look-ups": drafter}, 16)


def fixed(texts: Sequence[Saved], machine: Machine, threshold: float) -> float:
    """Seconds of a rule that drafts until all tokens are right with less than ``threshold``."""
    seconds = 0.0
    for text in texts:
        at = 0
        while at < len(text.output):
            proposal: Proposal = text.proposals["look-ups"][at]
            length = sum(likely >= threshold for likely in accumulate(proposal.probabilities, mul))
            length = min(length, len(text.output) - at - 1)
            seconds += machine.passes(length + 1)
            at += accepted_length(proposal.tokens[:length], text.output[at:]) + 1
    return seconds


@click.command()
@click.option("--texts", "count", default=200, show_default=True, help="Texts of each tokenizer and language.")
def main(count: int) -> None:
    """Replay, print and save."""
    logging.disable()
    for model in ("qwen2.5", "gemma-3"):
        for language in ("pl", "uk"):
            texts = list(recorded(model, language, count))
            for name, points in CURVES.items():
                machine = machine_of(points)
                plain = sum(len(text.output) for text in texts) * machine.passes(1)
                speed = plain / sum(play(texts, ["look-ups"], machine, policy_for(machine)))
                best, threshold = max((plain / fixed(texts, machine, each), each) for each in THRESHOLDS)
                row = {"tokenizer": model, "language": language, "curve": name, "texts": len(texts)}
                row |= {"policy": round(speed, 3), "fixed": round(max(1.0, best), 3), "threshold": threshold}
                click.echo("  ".join(f"{key} {value}" for key, value in row.items()))
                save("mac_curves", row)


if __name__ == "__main__":
    main()
