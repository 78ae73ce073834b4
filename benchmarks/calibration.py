"""How often dictionaries and repeats are right, by stated probability: the tables of `drafters/lookup.py`.

    python benchmarks/calibration.py --target bielik-11b-v2.5 --dictionary pl.dict
    python benchmarks/calibration.py --target bielik-11b-v2.5 --dictionary pl.dict --answers bielik-11b-v2.6

At every place of a text that no dictionary has counted, people's or a model's. Prints, by tenths of the probability
that the dictionary states, how often its token was right as a share of that; by the length of a repeat, how often the
text went on as before; and by tenths of what the drafter makes of both, how often proposed tokens were right.
"""

from collections import defaultdict
from itertools import islice
from pathlib import Path

import click
from draft_policy import answers
from real_data import encoded, real_corpus, real_tokenizer

from spectool.artifacts.dictionary import START, Dictionary
from spectool.runtime.drafters.drafter import accepted_length
from spectool.runtime.drafters.history import History
from spectool.runtime.drafters.lookup import LookupDrafter, tenth
from spectool.runtime.loading import LEAST_OF_LOOKUPS

_SHOWN = 50  # places from which on a row is printed
_PROPOSED = 4  # tokens at each place


@click.command()
@click.option("--target", required=True, help="A tokenizer of those in SPECTOOL_SHARED.")
@click.option("--dictionary", required=True, type=Path)
@click.option("--answers", "name", help="Of a model, in SPECTOOL_SHARED; without it, people's held-out text.")
@click.option("--language", default="pl", show_default=True)
@click.option("--texts", "most", default=200, show_default=True)
def main(target: str, dictionary: Path, name: str | None, language: str, most: int) -> None:
    """Count and print."""
    tokenizer, opened = real_tokenizer(target), Dictionary(dictionary)
    texts = islice(encoded(tokenizer, real_corpus(language, "valid"), 10**6), most)
    cells = defaultdict[tuple[str, int], list[float]](lambda: [0, 0.0, 0])  # places, what was said, and right
    drafter = LookupDrafter(opened, True, LEAST_OF_LOOKUPS)
    for ids in texts if name is None else tokenizer.encode_batch(answers(name)[:most]):
        history, state = History(), START
        drafter.start(())
        for at, token in enumerate(ids):
            proposal = drafter.propose(_PROPOSED)
            right = accepted_length(proposal.tokens, ids[at:])
            for place, believed in enumerate(proposal.probabilities[: min(right + 1, len(ids) - at)]):
                _count(cells["believed", tenth(believed)], believed, place < right)
            drafter.commit((token,))
            found, (place, length) = opened.look_up(state), history.repeat
            copied = history.tokens[place] if length > 1 else None
            if copied is not None:
                says = "confirmed" if found and found[0] == copied else "contradicted" if found else "alone"
                _count(cells[f"repeat, {says}", length], 1.0, copied == token)
            if found is not None and found[0] != copied:
                kind = "dictionary" if copied is None else "dictionary against a repeat"
                _count(cells[kind, tenth(found[1])], found[1], found[0] == token)
            history.append(token)
            state = opened.advance(state, token)
    for (kind, level), (places, said, good) in sorted(cells.items()):
        if places >= _SHOWN:
            shares = f"right in {good / places:.2f}, {good / said:.2f} of what is said"
            click.echo(f"{kind:28} {level:2}  {places:6,} places, {shares}")


def _count(cell: list[float], said: float, right: bool) -> None:
    for at, each in enumerate((1, said, right)):
        cell[at] += each


if __name__ == "__main__":
    main()
