"""Translators by the name of their strategy."""

from spectool.artifacts.alignment import Alignment
from spectool.runtime.translation.protocol import Translator
from spectool.tokenization.tokenizer import Tokenizer

STRATEGIES = ("none", "naive", "context", "intersection", "byte-aligned")


def current_name(strategy: str) -> str:
    """The present name of a strategy: ``byte-aligned`` was called ``anchored`` before version 1."""
    return "byte-aligned" if strategy == "anchored" else strategy


def make_translator(
    strategy: str, alignment: Alignment, draft: Tokenizer, target: Tokenizer, **windows: int
) -> Translator:
    """The translator of a strategy (one of `STRATEGIES`); ``windows`` are those of `ContextTranslator`.

    Raises:
        FingerprintMismatch: The alignment is for other tokenizers, or for the other direction.
    """
    alignment.require(draft, target)
    strategy = current_name(strategy)
    if strategy == "byte-aligned":
        from spectool.runtime.translation.byte_aligned import ByteAlignedTranslator

        return ByteAlignedTranslator(alignment, draft, target)
    from spectool.runtime.translation.intersection import IntersectionTranslator
    from spectool.runtime.translation.strings import ContextTranslator, NaiveTranslator, PassThrough

    match strategy:
        case "none":
            return PassThrough(draft, target)
        case "naive":
            return NaiveTranslator(draft, target)
        case "context":
            return ContextTranslator(draft, target, **windows)
        case "intersection":
            spell = alignment.target.spellings.inside.__getitem__
            return IntersectionTranslator(alignment.draft.counterpart, alignment.target.counterpart, spell)
    raise ValueError(f"strategy: expected one of {', '.join(STRATEGIES)}, got {strategy!r}")
