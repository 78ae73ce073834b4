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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, NamedTuple

from spectool import ArtifactError
from spectool.artifacts.alignment import SIDES, Alignment, Spellings
from spectool.artifacts.manifest import Manifest
from spectool.tokenization.incremental.adversarial import adversarial_texts
from spectool.tokenization.incremental.by_ids import CanonicalIds
from spectool.tokenization.incremental.by_text import REACH, CanonicalText
from spectool.tokenization.surfaces import text_of
from spectool.tokenization.tokenizer import Tokenizer

Engine = CanonicalIds | CanonicalText
_BATCH = 4096  # texts encoded at once
_DRAFTED = 4  # source tokens that are joined behind a floor
_TEXTS = 400  # made from each tokenizer
_LONGEST = 160  # characters of one: each of its prefixes is encoded
_SHOWN, _BEFORE = 2, 24  # ids of an example on either side of the first difference, and characters before them
LOST = 0.01  # share of places that may differ before drafts count as lost


@dataclass
class Compared:
    """Places at which joined ids were compared with the tokenizer's own."""

    places: int = 0
    different: int = 0
    example: str = ""  # the first difference, in words; empty where there is none

    @property
    def share(self) -> float:
        """Places that differ / places."""
        return self.different / self.places if self.places else 0.0

    def __str__(self) -> str:
        """Say how many differ."""
        return f"{self.different:,} of {self.places:,} places ({self.share:.1%})"

    def compare(self, found: Sequence[int] | str, expected: Sequence[int], surfaces: Sequence[bytes]) -> None:
        """Count one place, where ``found`` are ids of tokens with these surfaces, or say what went wrong instead."""
        self.places += 1
        if isinstance(found, str) or list(found) != list(expected):
            self.different += 1
            self.example = self.example or _difference(found, expected, surfaces)


@dataclass
class Proof:
    """What was compared of one side: the ids of texts up to a place, and those of proposals after committed ids.

    Generation joins committed text for a draft, and proposals for a target.
    """

    texts: int = 0  # texts compared
    left_out: int = 0  # texts that one of the two tokenizers does not keep, so that nothing of them could be compared
    commits: Compared = field(default_factory=Compared)
    proposals: Compared = field(default_factory=Compared)

    @classmethod
    def of(cls, statistics: Mapping[str, Any]) -> "Proof":
        """Read what `asdict` has written."""
        parts = [statistics[name] for name in ("commits", "proposals")]
        compared = [Compared(int(part["places"]), int(part["different"]), str(part["example"])) for part in parts]
        return cls(int(statistics["texts"]), int(statistics["left_out"]), *compared)

    @property
    def mismatches(self) -> int:
        """Number of places that differ."""
        return self.commits.different + self.proposals.different

    @property
    def frontiers(self) -> int:
        """Number of places compared."""
        return self.commits.places + self.proposals.places

    def used(self, side: str) -> Compared:
        """Return what generation relies on where this is the proof of the draft's or of the target's side."""
        return self.commits if side == "draft" else self.proposals

    def __str__(self) -> str:
        """Say what was found, and how much could not be compared if that is most of it."""
        if not self.frontiers:
            return f"nothing could be compared: none of {self.left_out:,} texts is kept by both tokenizers"
        found = f"equal to the tokenizer at {self.frontiers:,} places of {self.texts:,} text{'s' * (self.texts != 1)}"
        if self.mismatches:
            example = self.commits.example or self.proposals.example
            found = (
                f"unlike the tokenizer at {self.commits} of committed text, {self.proposals} of proposals, such as "
                f"{example}"
            )
        if self.left_out > self.texts:
            every = self.texts + self.left_out
            found += f"; {self.left_out:,} of {every:,} texts ({self.left_out / every:.1%}) could not be compared"
        return found


def _difference(found: Sequence[int] | str, expected: Sequence[int], surfaces: Sequence[bytes]) -> str:
    """Show the tokens around the first difference of two lists of ids, after the text before them."""

    def show(ids: Sequence[int]) -> str:
        shown = (f"{token} {surfaces[token].decode('utf-8', 'backslashreplace')!r}" for token in ids[first:end])
        return "[" + ", ".join(shown) + (", …" if len(ids) > end else "") + "]"

    if isinstance(found, str):
        return found
    place = _equal_length(found, expected)
    first, end = max(0, place - _SHOWN), place + _SHOWN + 1
    before = b"".join(surfaces[token] for token in expected[:first]).decode("utf-8", "replace")[-_BEFORE:]
    return f"after {before!r} the tokenizer writes {show(expected)}, joined are {show(found)}"


def _equal_length(found: Sequence[int], expected: Sequence[int]) -> int:
    """Return how many leading ids of two lists are equal."""
    pairs = zip(found, expected, strict=False)
    return next((place for place, (one, other) in enumerate(pairs) if one != other), min(len(found), len(expected)))


@dataclass(frozen=True, slots=True)
class Step:
    """A text after one more token of the source."""

    token: int  # that token
    end: int  # bytes of the text up to its end
    spelling: tuple[int, ...]  # its ids by table
    ids: list[int] | None  # ids of the text up to there, which the next step changes; None inside a character
    repaired: bool  # whether these are not those of the step before and the spelling side by side
    replaced: int | None = None  # the last id of the step before where these have it no more


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
        replaced = ids[-1] if start < len(ids) and not _still_ends(ids[start:], tail, other.surfaces) else None
        ids[start:] = tail
        done, begun = end, True
        yield Step(token, end, spelling, ids, repaired, replaced)


def _still_ends(before: Sequence[int], after: Sequence[int], surfaces: Sequence[bytes]) -> bool:
    """Return whether the last of some ids is where it was in those that take their place, which spell more."""
    if list(after[: len(before)]) == list(before):
        return True
    end = sum(len(surfaces[token]) for token in before)
    ends = accumulate(len(surfaces[token]) for token in after)
    return any(token == before[-1] for token, reached in zip(after, ends, strict=True) if reached == end)


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
    said_so_far = dict.fromkeys(text.data[:end] for text in said for end in text.ends)
    prefixes = [data.decode() for data in said_so_far if is_whole(data)]
    # What the other tokenizer does not keep cannot be compared.
    known = zip(prefixes, oracle.read(prefixes), strict=True)
    expected = {prefix: ids for prefix, (ids, ends) in known if ends is not None}
    for text in said:
        before = proof.frontiers
        _prove_commits(proof.commits, expected, text, respell(source, other, engine, spellings, text[:3]), other)
        _prove_proposals(proof.proposals, expected, text, engine, spellings, other)
        proof.texts += proof.frontiers > before
    proof.left_out = len(written) - proof.texts
    return proof


def _prove_commits(
    found: Compared, expected: Mapping[str, list[int]], text: _Said, steps: Iterator[Step], other: Tokenizer
) -> None:
    """Compare the ids after every token with those of the text up to there."""
    try:
        for step in steps:
            if step.ids is None or not step.end:  # of nothing but an artificial space there is no text to encode
                continue
            prefix = text.data[: step.end].decode()
            if prefix in expected:
                found.compare(step.ids, expected[prefix], other.surfaces)
    except Exception as error:  # whatever it is, the side does not do its work
        found.compare(f"{text.data.decode()!r}: {type(error).__name__}: {error}", [], other.surfaces)


def _prove_proposals(
    compared: Compared,
    expected: Mapping[str, list[int]],
    text: _Said,
    engine: Engine,
    spellings: Spellings,
    other: Tokenizer,
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
            found = f"{prefix!r}: {type(error).__name__}: {error}"
        compared.compare(found, expected[prefix][count:], other.surfaces)


def is_whole(data: bytes) -> bool:
    """Return whether bytes are whole characters."""
    return not data or bool(text_of(data))


def require_proven(path: Path, manifest: Manifest, note: Callable[[str], object] = lambda message: None) -> None:
    """Check that what generation relies on was the tokenizers' own when an alignment was built, but for `LOST`.

    Generation writes committed text in the draft's ids and proposals in the target's. Smaller differences are told to
    ``note``, a sentence each.

    Raises:
        ArtifactError: One of the two differed at more than that share of places.
    """
    for side, name, proof, used in relied_on(manifest):
        if side == "draft":
            what, elsewhere = "committed text in ids of the draft", f"as a target: {proof.proposals}"
        else:
            what, elsewhere = "proposals in ids of the target", f"as a draft: {proof.commits}"
        if not used.different:
            continue
        example = f". Such as {used.example}" if used.example else ""
        message = f"{path}: {what} {name} are unlike the tokenizer's at {used}; {elsewhere}{example}"
        if used.share > LOST:
            raise ArtifactError(
                f"{message}. Expected at most {LOST:.0%}. The output stays the target's own, but drafts are lost "
                "there. Use a draft with another tokenizer, or report this one"
            )
        note(f"{message}. The output stays the target's own; at these places drafts are lost")


def relied_on(manifest: Manifest) -> list[tuple[str, str, Proof, Compared]]:
    """Each side of an alignment: its role, name and proof, and the part of what was compared that generation uses.

    Raises:
        ArtifactError: The manifest lacks a figure.
    """
    found, statistics = [], manifest.statistics
    try:
        for other, side in SIDES:
            replayed = statistics[f"{other}_to_{side}"]
            sample = Compared(int(replayed["other_tokens"]), int(replayed["different_tokens"]))
            proof = Proof.of(statistics[side]["proof"])
            used = proof.used(side)
            if side == "draft":  # the sample was joined as committed text is
                used = max(used, sample, key=lambda compared: compared.share)
            found.append((side, manifest.tokenizers[side]["name"], proof, used))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ArtifactError(
            f"the manifest of this alignment lacks a figure of its proof ({error}). Align again"
        ) from error
    return found


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
