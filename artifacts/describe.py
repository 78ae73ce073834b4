"""Artifacts in words: what one is, for whom, and its figures, as aligned lines or JSON."""

from collections.abc import Mapping
from typing import Any

from spectool import ArtifactError
from spectool.artifacts import alignment, dictionary
from spectool.artifacts.console import repairs
from spectool.artifacts.fingerprint import short
from spectool.artifacts.manifest import Manifest


def describe(manifest: Manifest) -> dict[str, Any]:
    """Return what a person wants to know of an artifact, in reading order.

    Raises:
        ArtifactError: The manifest lacks a figure that its format has.
    """
    try:
        return _describe(manifest)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ArtifactError(
            f"the manifest of this {manifest.format} lacks a figure ({error}). Build the artifact again"
        ) from error


def _describe(manifest: Manifest) -> dict[str, Any]:
    facts: dict[str, Any] = {"format": f"{manifest.format} {manifest.version}", "written by": manifest.tool}
    for role, tokenizer in manifest.tokenizers.items():
        facts[f"{role} tokenizer"] = (
            f"{tokenizer['name']} ({tokenizer['size']:,} ids, {short(tokenizer['fingerprint'])})"
        )
    facts["corpus"] = _corpus(manifest.inputs)
    if manifest.format == dictionary.FORMAT:
        facts |= _dictionary(manifest)
    elif manifest.format == alignment.FORMAT:
        facts |= _alignment(manifest)
    facts["bytes"] = f"{manifest.total_bytes:,}"
    return facts


def _corpus(inputs: Mapping[str, Any]) -> str:
    repaired = repairs(inputs.get("repaired", {}))
    text = (
        f"{inputs.get('corpus')}: {inputs.get('documents', 0):,} documents, {inputs.get('characters', 0):,} characters"
    )
    return text + (f"; repaired: {repaired}" if repaired else "")


def _dictionary(manifest: Manifest) -> dict[str, Any]:
    s, arguments = manifest.statistics, manifest.arguments
    return {
        "method": ", ".join(f"{key} {value}" for key, value in arguments.items() if key != "method").join(
            [f"{arguments['method']} (", ")"]
        ),
        "words counted": f"{s['words']:,}",
        "n-grams taken": f"{s['ngrams']:,} (the rarest occurs {s['smallest_count']:,} times)",
        "entries": f"{s['entries']:,} ({s['entries_before_pruning']:,} before dropping redundant ones)",
        "continuations": f"{s['continuations']:,} different, at most {s['max_continuation']} tokens",
        "contexts": f"at most {s['max_context']} tokens, of {s['symbols']:,} different ones",
    }


def _alignment(manifest: Manifest) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for side in ("draft", "target"):
        figures = manifest.statistics[side]
        cover = figures["coverage"]
        other = "target" if side == "draft" else "draft"
        facts[f"{side} kind"] = figures["kind"]
        facts[f"{side} limits"] = "; ".join(figures["limits"]) or "none: every text survives"
        facts[f"{side} ids shared with {other}"] = (
            f"{cover['shared']:,} of {cover['size']:,} ({cover['by_vocabulary']:.1%} of the vocabulary)"
        )
        facts[f"{side} tokens shared in the text"] = (
            f"{cover['shared_occurrences']:,} of {cover['occurrences']:,} ({cover['by_occurrence']:.1%} by occurrence)"
        )
        roles = figures["roles"]
        facts[f"{side} roles"] = f"bos {roles['bos']}, eos {roles['eos']}, pad {roles['pad']}, unk {roles['unk']}"
    return facts
