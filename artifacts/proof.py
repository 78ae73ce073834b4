"""A proof that an alignment's tables and repair write what the tokenizer itself writes.

Texts are cut into tokens by one tokenizer and spelled, token by token, in ids of the other:

    source tokens    | O |'| Ne | ill |         committed one by one
    joined so far    [O]['][Ne]   = what the other tokenizer encodes for "O'Ne" ?       at every token's end
    behind a floor   [O] | ['][Neill]           committed ids stay, the draft's tokens are joined behind them

The other tokenizer's own encoding of every such prefix is the oracle; no table has a part in it. Where it does not
keep the bytes of a prefix (its `limits`), there is nothing to compare.
"""

import random
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from pathlib import Path
from typing import NamedTuple

from spectool import ArtifactError
from spectool.artifacts.canonical.adversarial import adversarial_texts
from spectool.artifacts.canonical.by_ids import CanonicalIds
from spectool.artifacts.canonical.by_text import REACH, CanonicalText
from spectool.artifacts.formats.alignment import SIDES, Alignment, Spellings
from spectool.artifacts.manifest import Manifest
from spectool.artifacts.tokenizer.surfaces import text_of
from spectool.artifacts.tokenizer.tokenizer import Tokenizer

Engine = CanonicalIds | CanonicalText
_BATCH = 4096  # texts encoded at once
_DRAFTED = 4  # source tokens that are joined behind a floor
_TEXTS = 400  # made from each tokenizer
_LONGEST = 160  # characters of one: each of its prefixes is encoded


@dataclass
class Proof:
    """What was compared in one direction."""

    texts: int = 0  # texts compared
    left_out: int = 0  # texts that the source does not keep, so that it never says them
    frontiers: int = 0  # places at which ids were compared with the other tokenizer's own
    mismatches: int = 0  # those where they differ
    example: str = ""  # the first of these, in words; empty where there is none

    def __str__(self) -> str:
        """Say what was found."""
        if not self.frontiers:
            return "not proven: none of the texts is kept by both tokenizers"
        if not self.mismatches:
            return f"equal to the tokenizer at {self.frontiers:,} places of {self.texts:,} texts"
        return f"unlike the tokenizer at {self.mismatches:,} of {self.frontiers:,} places, such as {self.example}"

    def compare(self, found: Sequence[int] | str, expected: Sequence[int], text: str) -> None:
        """Count one frontier, where ``found`` are ids, or says what went wrong instead."""
        self.frontiers += 1
        if isinstance(found, str) or list(found) != list(expected):
            self.mismatches += 1
            said = found if isinstance(found, str) else list(found)[-6:]
            self.example = self.example or f"{text!r}: ids {list(expected)[-6:]}, joined {said}"


@dataclass(frozen=True, slots=True)
class Step:
    """A text after one more token of the source."""

    token: int  # that token
    end: int  # bytes of the text up to its end
    spelling: tuple[int, ...]  # its ids by table
    ids: list[int] | None  # ids of the text up to there, which the next step changes; None inside a character
    repaired: bool  # whether these are not those of the step before and the spelling side by side


@dataclass(frozen=True, slots=True)
class Oracle:
    """Whole texts as a tokenizer writes them; special tokens are not read out of text."""

    tokenizer: Tokenizer

    def read(self, texts: Sequence[str]) -> Iterator[tuple[list[int], list[int] | None]]:
        """Encode texts.

        Yields:
            The ids, and the byte of the text at which each ends; None for those where the ids do not spell it.
        """
        for begin in range(0, len(texts), _BATCH):
            batch = texts[begin : begin + _BATCH]
            encodings = self.tokenizer.plain_backend.encode_batch_fast(batch, add_special_tokens=False)
            for encoding, text in zip(encodings, batch, strict=True):
                yield encoding.ids, self._ends(encoding.ids, text.encode())

    def _ends(self, ids: Sequence[int], data: bytes) -> list[int] | None:
        """Return the byte of a text at which each of its ids ends, None where they do not spell it."""
        surfaces, artificial = [self.tokenizer.surfaces[token] for token in ids], self.tokenizer.edges
        joined = b"".join(surfaces)
        shift = int(artificial.leading_space and joined.startswith(b" "))
        if joined[shift:] != data and not (artificial.trailing_space and joined[shift:] == data + b" "):
            return None
        return [end - shift for end in accumulate(map(len, surfaces))]


def respell(
    source: Tokenizer,
    other: Tokenizer,
    engine: Engine,
    spellings: Spellings,
    text: tuple[bytes, Sequence[int], Sequence[int]],
) -> Iterator[Step]:
    """Spell a text of ``source`` token by token in ids of ``other``, as commits are taken over.

    Args:
        source: Whose tokens are translated.
        other: Into whose vocabulary.
        engine: Joins ids of ``other``.
        spellings: Of the tokens of ``source``.
        text: Bytes, ids of ``source``, and the byte at which each of these ends.
    """
    data, tokens, ends = text
    prefix = b" " * other.edges.leading_space
    ids: list[int] = []
    done, begun = 0, False
    for token, end in zip(tokens, ends, strict=True):
        spelling = (spellings.inside if begun else spellings.text_start)[token]
        fresh = data[done:end]
        if not is_whole(fresh):  # wait for the rest of the character
            yield Step(token, end, spelling, None, False)
            continue
        if isinstance(engine, CanonicalText):
            start, tail = engine.join(ids, data[max(0, done - REACH) : done], fresh)
        elif spelling and (done == end or is_whole(source.surfaces[token])):
            start, tail = engine.join(ids, spelling)
        else:
            start, tail = engine.join_bytes(ids, fresh if begun else prefix + fresh)
        repaired = start < len(ids) or tuple(tail) != spelling
        ids[start:] = tail
        done, begun = end, True
        yield Step(token, end, spelling, ids, repaired)


def hard_texts(draft: Tokenizer, target: Tokenizer, seed: int, lines: Sequence[str] = ()) -> list[str]:
    """Return lines, and texts that are hard to join for either tokenizer; equal arguments give equal texts."""
    made = (adversarial_texts(tokenizer, random.Random(seed), lines) for tokenizer in (draft, target))
    return [text[:_LONGEST] for texts in (lines, *made) for text in islice(texts, _TEXTS)]


class _Said(NamedTuple):
    """A text: its bytes, ids of the source and the byte at which each ends, and those of the other tokenizer."""

    data: bytes
    ids: list[int]
    ends: list[int]
    other_ids: list[int]
    other_ends: list[int] | None


def prove(source: Tokenizer, other: Tokenizer, engine: Engine, spellings: Spellings, texts: Iterable[str]) -> Proof:
    """Compare tables and repair, as for `respell`, with the tokenizer ``other`` at every frontier of texts.

    The texts are short ones: each of their prefixes is encoded.
    """
    proof, oracle = Proof(), Oracle(other)
    # A mark at a word's end is a space, which the source says after the last word too.
    written = [text + " " * source.edges.trailing_space for text in texts]
    said = [
        _Said(text.encode(), ids, ends, *theirs)
        for text, (ids, ends), theirs in zip(written, Oracle(source).read(written), oracle.read(written), strict=True)
        if ids and ends is not None
    ]
    proof.texts, proof.left_out = len(said), len(written) - len(said)
    said_so_far = dict.fromkeys(text.data[:end] for text in said for end in text.ends)
    prefixes = [data.decode() for data in said_so_far if is_whole(data)]
    # What the other tokenizer does not keep cannot be compared.
    known = zip(prefixes, oracle.read(prefixes), strict=True)
    expected = {prefix: ids for prefix, (ids, ends) in known if ends is not None}
    for text in said:
        _prove_commits(proof, expected, text, respell(source, other, engine, spellings, text[:3]))
        _prove_proposals(proof, expected, text, engine, spellings)
    return proof


def _prove_commits(proof: Proof, expected: Mapping[str, list[int]], text: _Said, steps: Iterator[Step]) -> None:
    """Compare the ids after every token with those of the text up to there."""
    try:
        for step in steps:
            if step.ids is None or not step.end:  # of nothing but an artificial space there is no text to encode
                continue
            prefix = text.data[: step.end].decode()
            if prefix in expected:
                proof.compare(step.ids, expected[prefix], prefix)
    except Exception as error:  # whatever it is, the side does not do its work
        proof.compare(f"{type(error).__name__}: {error}", [], text.data.decode())


def _prove_proposals(
    proof: Proof, expected: Mapping[str, list[int]], text: _Said, engine: Engine, spellings: Spellings
) -> None:
    """Compare what is joined behind each of the other's ids with its ids of the text, where these stay."""
    data, ids, ends, committed, places = text
    for count, start in enumerate(places[:-1] if places else (), 1):
        first = bisect_right(ends, start)
        last = min(first + _DRAFTED, len(ends)) - 1
        if not start or not all(is_whole(data[:end]) for end in (start, *ends[first : last + 1])):
            continue
        prefix = data[: ends[last]].decode()
        if prefix not in expected or expected[prefix][:count] != committed[:count]:
            continue
        drafted = [spellings.inside[token] for token in ids[first + 1 : last + 1]]
        found: list[int] | str
        try:
            if isinstance(engine, CanonicalText):
                found = engine.following(committed[:count], data[:start], data[start : ends[last]])[0]
            else:
                joined = committed[:count]
                for spelling in (engine.spell(data[start : ends[first]]), *drafted):
                    place, tail = engine.join(joined, spelling, count)
                    joined[place:] = tail
                found = joined[count:]
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
        proof.compare(found, expected[prefix][count:], prefix)


def is_whole(data: bytes) -> bool:
    """Return whether bytes are whole characters."""
    return not data or bool(text_of(data))


def require_proven(path: Path, manifest: Manifest) -> None:
    """Check that an alignment's ids were the tokenizers' own when it was built.

    Raises:
        ArtifactError: They were not, in a text made for the proof or in the sample.
    """
    for other, side in SIDES:
        found = Proof(**manifest.statistics[side]["proof"])
        different = manifest.statistics[f"{other}_to_{side}"]["different_texts"]
        if found.mismatches or different:
            raise ArtifactError(
                f"{path}: {side} ids are {found}; {different:,} texts of the sample come out otherwise. The output "
                "stays the target's own, but drafts are lost there. Please report the tokenizer"
            )


def prove_again(alignment: Alignment, draft: Tokenizer, target: Tokenizer, seed: int) -> dict[str, Proof]:
    """Repeat the proof of both sides, ``draft`` and ``target``, on texts made anew by a seed; `align` records its own.

    Raises:
        FingerprintMismatch: It was built for others, or for the other direction.
    """
    alignment.require(draft, target)
    texts = hard_texts(draft, target, seed)
    return {
        "draft": prove(target, draft, alignment.draft.engine(draft), alignment.target.spellings, texts),
        "target": prove(draft, target, alignment.target.engine(target), alignment.draft.spellings, texts),
    }
