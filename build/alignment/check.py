"""Compares joined ids with the ids that the tokenizers themselves write.

Generation joins committed text in ids of the draft, and proposals in ids of the target, so that is what is compared:

    draft     | O |'| Ne | ill |       target tokens, committed one by one: after each, the ids joined so far are those
              [O]['][Ne]               that the draft's tokenizer writes for "O'Ne"
    target    [O] | ['][Neill]         committed ids stay; a draft's tokens joined to them go on as the target does

The texts are pieces of the sample and texts that are made to be hard to join. Where a tokenizer does not keep the bytes
of a text, there is nothing to compare.
"""

import random
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from spectool import ArtifactError
from spectool.artifacts.alignment import SIDES, Spellings
from spectool.artifacts.manifest import Manifest
from spectool.build.alignment.replayed_text import Reference, is_whole, translate_text
from spectool.tokenization.incremental.adversarial import adversarial_texts
from spectool.tokenization.incremental.by_text import TailReencoder
from spectool.tokenization.incremental.common_prefix import common_prefix
from spectool.tokenization.incremental.encoder import IncrementalEncoder
from spectool.tokenization.tokenizer import Tokenizer

LOST = 0.01  # share of places that may differ before drafts count as lost
_DRAFTED = 4  # source tokens that are joined behind committed ids
_TEXTS = 400  # made from each tokenizer
_LONGEST = 160  # characters of one: each of its prefixes is encoded
_SHOWN, _BEFORE = 2, 24  # ids of an example on either side of the first difference, and characters before them


@dataclass
class JoinCheck:
    """Places at which joined ids of one side were compared with its tokenizer's own."""

    places: int = 0
    different: int = 0
    example: str = ""  # the first difference, in words; empty where there is none
    texts: int = 0  # texts compared
    left_out: int = 0  # texts of which nothing could be compared, mostly because a tokenizer does not keep them

    @property
    def share(self) -> float:
        """Places that differ / places."""
        return self.different / self.places if self.places else 0.0

    def compare(self, found: Sequence[int] | str, expected: Sequence[int], token_bytes: Sequence[bytes]) -> None:
        """Count one place; ``found`` are ids, or the error that was raised instead of them."""
        self.places += 1
        if isinstance(found, str) or list(found) != list(expected):
            self.different += 1
            self.example = self.example or _difference(found, expected, token_bytes)

    def __str__(self) -> str:
        """The result in words, and how much could not be compared if that is most of the texts."""
        if not self.places:
            return f"nothing could be compared: none of {self.left_out:,} texts is kept by both tokenizers"
        found = f"equal to the tokenizer at {self.places:,} places of {self.texts:,} text{'s' * (self.texts != 1)}"
        if self.different:
            found = f"unlike the tokenizer at {self.unlike}, such as {self.example}"
        if self.left_out > self.texts:
            every = self.texts + self.left_out
            found += f"; {self.left_out:,} of {every:,} texts ({self.left_out / every:.1%}) could not be compared"
        return found

    @property
    def unlike(self) -> str:
        """How many places differ, in words."""
        return f"{self.different:,} of {self.places:,} places ({self.share:.1%})"


def _difference(found: Sequence[int] | str, expected: Sequence[int], token_bytes: Sequence[bytes]) -> str:
    """The tokens around the first difference of two lists of ids, and the text before them."""
    if isinstance(found, str):
        return found
    place = common_prefix(found, expected)
    first, end = max(0, place - _SHOWN), place + _SHOWN + 1

    def show(ids: Sequence[int]) -> str:
        shown = (f"{token} {token_bytes[token].decode('utf-8', 'backslashreplace')!r}" for token in ids[first:end])
        return "[" + ", ".join(shown) + (", …" if len(ids) > end else "") + "]"

    before = b"".join(token_bytes[token] for token in expected[:first]).decode("utf-8", "replace")[-_BEFORE:]
    return f"after {before!r} the tokenizer writes {show(expected)}, joined are {show(found)}"


def hard_texts(draft: Tokenizer, target: Tokenizer, seed: int, lines: Sequence[str] = ()) -> list[str]:
    """Lines, and texts that are hard to join for either tokenizer; equal arguments give equal texts."""
    made = (adversarial_texts(tokenizer, random.Random(seed), lines) for tokenizer in (draft, target))
    return [text[:_LONGEST] for texts in (lines, *made) for text in islice(texts, _TEXTS)]


class _Text(NamedTuple):
    """A text: its bytes, ids of the source and the byte at which each ends, and those of the other tokenizer."""

    data: bytes
    ids: list[int]
    ends: list[int]
    other_ids: list[int]
    other_ends: list[int] | None


def check_joins(
    role: str,
    source: Tokenizer,
    other: Tokenizer,
    encoder: IncrementalEncoder,
    spellings: Spellings,
    texts: Iterable[str],
) -> JoinCheck:
    """Where joined ids of ``other`` differ from its own encoding, at every place of texts.

    Args:
        role: Which side ``other`` is: ``draft`` compares committed text, ``target`` proposals.
        source: The tokenizer of the other side.
        other: The tokenizer whose ids are joined.
        encoder: What joins them.
        spellings: Tokens of ``source`` in ids of ``other``.
        texts: Short ones, because each of their prefixes is encoded.
    """
    found, reference = JoinCheck(), Reference(other)
    written = list(texts)
    kept = [
        _Text(text.encode(), ids, ends, *theirs)
        for text, (ids, ends), theirs in zip(
            written, Reference(source).read(written), reference.read(written), strict=True
        )
        if ids and ends is not None
    ]
    so_far = dict.fromkeys(text.data[:end] for text in kept for end in text.ends)
    prefixes = [data.decode() for data in so_far if is_whole(data)]
    known = zip(prefixes, reference.read(prefixes), strict=True)
    expected = {prefix: ids for prefix, (ids, ends) in known if ends is not None}
    for text in kept:
        before = found.places
        try:
            if role == "draft":
                for step in translate_text(source, other, encoder, spellings, text[:3]):
                    # Of nothing but an artificial space there is no text to encode.
                    if step.ids is not None and step.end and (prefix := text.data[: step.end].decode()) in expected:
                        found.compare(step.ids, expected[prefix], other.token_bytes)
            else:
                _check_proposals(found, expected, text, encoder, spellings, other)
        except Exception as error:  # any of them means that the side does not work
            found.compare(f"{text.data.decode()!r}: {type(error).__name__}: {error}", [], other.token_bytes)
        found.texts += found.places > before
    found.left_out = len(written) - found.texts
    return found


def _check_proposals(
    found: JoinCheck,
    expected: Mapping[str, list[int]],
    text: _Text,
    encoder: IncrementalEncoder,
    spellings: Spellings,
    other: Tokenizer,
) -> None:
    """Compare drafts joined after each of the other's ids with its ids of the text, where the earlier ids stay."""
    data, ids, ends, committed, places = text
    for count, start in enumerate(places[:-1] if places else (), 1):
        first = bisect_right(ends, start)
        last = min(first + _DRAFTED, len(ends)) - 1
        if not start or not all(is_whole(data[:end]) for end in (start, *ends[first : last + 1])):
            continue
        whole = expected.get(data[: ends[last]].decode(), [])
        if not whole or whole[:count] != committed[:count]:
            continue
        if isinstance(encoder, TailReencoder):
            joined = (
                committed[:count] + encoder.encode_after(committed[:count], data[:start], data[start : ends[last]])[0]
            )
        else:
            joined = committed[:count]
            drafted = (spellings.inside[token] for token in ids[first + 1 : last + 1])
            for spelling in (encoder.spell(data[start : ends[first]]), *drafted):
                place, tail = encoder.join(joined, spelling, count)
                joined[place:] = tail
        found.compare(joined[count:], whole[count:], other.token_bytes)


def require_checked(path: Path, manifest: Manifest, note: Callable[[str], object] = lambda message: None) -> None:
    """Refuse an alignment whose joined ids differed from the tokenizers' own at more than a share of `LOST`.

    Smaller differences are passed to ``note``, one sentence each.

    Raises:
        ArtifactError: One of the two sides differed at more than that share of places.
    """
    for side, name, found in checked_sides(manifest):
        if not found.different:
            continue
        what = "committed text translated to the draft" if side == "draft" else "proposals translated to the target"
        example = f", for example {found.example}" if found.example else ""
        message = f"{path}: {what} ({name}): ids differ from the tokenizer's own at {found.unlike}{example}"
        if found.share > LOST:
            raise ArtifactError(
                f"{message}. Expected at most {LOST:.0%}. The output stays the target's own, but drafts are lost "
                "there. Use a draft with another tokenizer, or report this one"
            )
        note(f"{message}. The output stays the target's own; at these places drafts are lost")


def checked_sides(manifest: Manifest) -> list[tuple[str, str, JoinCheck]]:
    """Each side of an alignment: its role, its name and what was found; of the draft the worse of check and sample.

    Raises:
        ArtifactError: The manifest lacks a figure.
    """
    sides, statistics = [], manifest.statistics
    try:
        for side, other in SIDES:
            replayed, recorded = statistics[f"{other}_to_{side}"], statistics[side]["check"]
            counts = {name: int(recorded[name]) for name in ("places", "different", "texts", "left_out")}
            found = JoinCheck(**counts, example=str(recorded["example"]))
            if side == "draft":  # the sample was joined as committed text is
                sample = JoinCheck(int(replayed["other_tokens"]), int(replayed["different_tokens"]))
                found = max(found, sample, key=lambda check: check.share)
            sides.append((side, manifest.tokenizers[side]["name"], found))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ArtifactError(
            f"the manifest of this alignment lacks a figure of its check ({error}). Align again"
        ) from error
    return sides
