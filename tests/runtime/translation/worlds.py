"""A pair of tokenizers with its alignment and the slow twin, and what the twin says of a proposal."""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

from spectool.artifacts.alignment import NONE, Alignment
from spectool.corpora import open_corpus
from spectool.runtime.translation.byte_aligned import ByteAlignedTranslator, whole_characters
from spectool.tests.runtime.translation.translation_twin import TranslationTwin, text_bytes, whole
from spectool.tests.tiers import nightly, slow
from spectool.tokenization.incremental.ids_or_text import reasons_for_text
from spectool.tokenization.tokenizer import Tokenizer

BUNDLED = ("other:target", "target:other")
QUICK = (BUNDLED[0], *nightly(BUNDLED[1], "qwen2.5:bielik-11b-v2.5"))
SLOW = (
    "bielik-11b-v2.5:mistral-7b-v0.1",
    "bielik-11b-v2.5:qwen2.5",
    "llama-3.2:mistral-7b-v0.1",
    "gemma-3:bielik-11b-v2.5",
    "llama-3.2:gemma-3",
    "xlm-roberta-base:bielik-11b-v2.5",
    "qwen2.5:xlm-roberta-base",
    "t5-small:qwen2.5",
    "qwen2.5:t5-small",
    "bielik-11b-v2.5:falcon-7b",
    "falcon-7b:qwen2.5",
)
PAIRS = [*QUICK, *slow(*SLOW)]
SENTENCES = (
    "Зажурилась Україна, 2024 рік. Zażółć gęślą jaźń!",
    "Къырымтатар тили — Qırımtatar tili; 1234567,89 і ще «лапки»",
    " it's   two\n\n\nlines\t\tand 🙂🙂 end ",
    "aaaaaaaaaa ааааааа ________ ......",
)


@dataclass(frozen=True)
class World:
    """A pair of tokenizers, its alignment and the oracle."""

    draft: Tokenizer
    target: Tokenizer
    alignment: Alignment
    twin: TranslationTwin

    @cached_property
    def draft_bytes(self) -> list[int]:
        """Draft ids of single bytes."""
        return [i for i, raw in enumerate(self.draft.token_bytes) if len(raw) == 1]

    def translator(self) -> ByteAlignedTranslator:
        return ByteAlignedTranslator(self.alignment, self.draft, self.target)

    def committed(self, text: str) -> list[int]:
        """Return the target's ids of a text that it gives back, or of what it makes of it; empty if unstable."""
        ids = self.twin.target.encode(text)
        again = text_bytes(self.target, ids).decode("utf-8", "ignore")
        ids = self.twin.target.encode(again)
        return ids if text_bytes(self.target, ids) == again.encode() else []

    def present(self, committed: Sequence[int]) -> list[int]:
        """Return the ids after the last special one."""
        ends = [place for place, token in enumerate(committed, 1) if is_special(self.target, token)]
        return list(committed[ends[-1] if ends else 0 :])

    def view(self, committed: Sequence[int]) -> list[int]:
        """Return what the draft should see: the twin's view of each text, and counterparts of special tokens."""
        counterpart = self.alignment.target.counterpart
        view: list[int] = []
        text: list[int] = []
        for token in [*committed, None]:
            if token is not None and not is_special(self.target, token):
                text.append(token)
                continue
            view += self.twin.context(text)
            text = []
            if token is not None and token < self.target.size and counterpart[token] != NONE:
                view.append(int(counterpart[token]))
        return view


def is_special(tokenizer: Tokenizer, token: int) -> bool:
    return token >= tokenizer.size or not tokenizer.token_bytes[token]


def spelled(tokenizer: Tokenizer, ids: Sequence[int]) -> bytes:
    return b"".join(map(tokenizer.token_bytes.__getitem__, ids))


def sample(rng: random.Random, count: int, length: int = 90) -> list[str]:
    """Return pieces of real text and odd strings, the fixed sentences first."""
    from spectool.tests.conftest import SHARED

    found = list(SENTENCES)
    if (SHARED / "corpora").is_dir():
        pieces = [text for _, text in json.loads((SHARED / "tokenizers" / "test_strings.json").read_text()) if text]
        for language in ("uk", "pl", "crh"):
            corpus = open_corpus(str(SHARED / "corpora" / f"{language}.valid.txt.zst"))
            for document in islice(corpus, 60):
                start = rng.randrange(max(1, len(document) - length))
                pieces.append(document[start:])
        # A literal U+2581 is a space to SentencePiece, so such a text is not the one that was given.
        found += [piece[:length].replace("\u2581", "_") for piece in rng.sample(pieces, max(0, count - len(found)))]
    return found[:count]


def judge(
    world: World, translator: ByteAlignedTranslator, committed: Sequence[int], drafts: Sequence[int]
) -> list[str]:
    """Compare one plain and one healed proposal with the twin; return what is wrong, none where there is no oracle."""
    wrong = []
    constraint = translator.constraint()
    view = world.twin.context(committed)
    if text_bytes(world.draft, view) != whole(text_bytes(world.target, committed)):
        return []  # the draft's tokenizer does not give this text back
    for healed, firsts in ((False, constraint.first), (True, constraint.extensions)):
        if firsts is not None and drafts[0] not in firsts:
            continue
        found = translator.translate(drafts, healed)
        complaint = compare(world, committed, view, drafts, healed, found)
        if complaint:
            names = [world.draft.token_bytes[i] for i in drafts if i < world.draft.size]
            said = [world.target.token_bytes[i] for i in found]
            last = [world.target.token_bytes[i] for i in committed[-4:]]
            wrong.append(f"after {last} draft {names} healed={healed}: got {said}, {complaint}")
    return wrong


def compare(
    world: World, committed: Sequence[int], view: list[int], drafts: Sequence[int], healed: bool, found: list[int]
) -> str:
    """Return what is wrong with a translation."""
    cut = next((place for place, token in enumerate(drafts) if is_special(world.draft, token)), len(drafts))
    visible = drafts[:cut]
    raw = text_bytes(world.draft, [*(view[:-1] if healed else view), *visible])
    before = text_bytes(world.target, committed)
    if not visible or not raw.startswith(before):
        return ""
    if committed and not before and world.draft.leading_space and not raw_begins_with_space(world.draft, visible):
        return ""  # the target has written the space before its text, and so must the draft
    surplus = raw[len(before) :]
    ending: list[int] = []
    if cut < len(drafts) and drafts[cut] < world.draft.size and whole(raw) == raw:
        counterpart = int(world.alignment.draft.counterpart[drafts[cut]])
        ending = [] if counterpart == NONE else [counterpart]
    begun = any(world.target.token_bytes[i] for i in committed if i < world.target.size)
    said = text_bytes(world.target, found) if not begun else spelled(world.target, found)
    slow_path = reasons_for_text(world.target)
    if whole_characters(raw) != len(whole(raw)) or len(whole(raw)) <= len(before):
        # Broken or unfinished characters: nothing may be said that was not drafted.
        return "" if slow_path or surplus.startswith(said) else f"not drafted: {surplus!r}"
    try:
        expected = world.twin.translate(committed, visible, healed)
    except ValueError:
        return ""
    if expected.boundary:
        return "" if found == expected.ids + ending else f"expected {expected.ids + ending}, got {found}"
    spelled_right = said == whole(raw)[len(before) :]
    return "" if spelled_right or slow_path else f"expected bytes {whole(raw)[len(before) :]!r}"


def raw_begins_with_space(draft: Tokenizer, drafts: Sequence[int]) -> bool:
    return draft.token_bytes[drafts[0]].startswith(b" ")


def proposals(
    world: World, translator: ByteAlignedTranslator, committed: list[int], text: str, rng: random.Random
) -> Iterator[list[int]]:
    """Yield right and wrong drafts for the present frontier."""
    draft = world.draft
    view = list(translator.draft_context())
    constraint = translator.constraint()
    data = text.encode()
    end = len(text_bytes(world.target, committed)) + rng.randint(1, 40)
    right = world.twin.draft.encode(whole(data[:end]).decode())
    yield right[len(view) :][:8]
    yield right[max(0, len(view) - 1) :][:8]
    other = world.twin.draft.encode(rng.choice(SENTENCES))
    start = rng.randrange(len(other))
    wrong = [
        other[start : start + 6],
        [rng.randrange(draft.size) for _ in range(4)],
        rng.choices(world.draft_bytes, k=5),
        [*other[start : start + 2], rng.randrange(draft.size), *other[start + 2 : start + 4]],
        [*other[start : start + 2], rng.choice(endings(draft)), *other[start + 2 : start + 4]],
    ]
    for drafts in wrong:
        yield drafts
        for firsts in (constraint.first, constraint.extensions):
            if firsts is not None and len(firsts):
                yield [int(rng.choice(firsts)), *drafts[1:]]


def endings(tokenizer: Tokenizer) -> list[int]:
    """Return ids that end a proposal: of roles, other special ones, and one beyond the tokenizer."""
    specials = sorted(tokenizer.specials)
    return [*tokenizer.roles.eos, *specials[:3], *specials[-3:], tokenizer.size + 7]


def state(world: World, translator: ByteAlignedTranslator) -> tuple[Any, ...]:
    """Return all that can be seen of a translator."""
    constraint = translator.constraint()
    view = list(translator.draft_context())
    firsts = constraint.extensions[:3].tolist()
    plain = world.draft.encode(" kot, 12")
    return (
        view,
        constraint.extensions.tolist(),
        None if constraint.first is None else constraint.first.tolist(),
        translator.translate(plain),
        [translator.translate([first, *plain], healed=True) for first in firsts],
        [constraint.allows(token, False) for token in plain],
        [constraint.allows(token, True) for token in firsts],
    )
