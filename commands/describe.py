"""Artifacts in words: what an artifact is, which tokenizers it is for, and its figures."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from spectool import ArtifactError, SpectoolError
from spectool.artifacts.manifest import MANIFEST, Manifest
from spectool.commands.console import repairs, table
from spectool.tokenization.fingerprint import short
from spectool.tokenization.roles import Roles
from spectool.tokenization.round_trips import NO_LIMITS

READERS = {
    "spectool-dictionary": "spectool.artifacts.dictionary:Dictionary",
    "spectool-alignment": "spectool.artifacts.alignment:Alignment",
    "spectool-counts": "spectool.artifacts.counts:Counts",
    "spectool-benchmark": "spectool.artifacts.benchmark:Benchmark",
    "spectool-pruned-draft": "spectool.build.pruning.stage:PrunedDraft",
}
"""The class that opens each format, imported when it is needed."""
_SIDES = (("draft", "target"), ("target", "draft"))


def describe(manifest: Manifest, path: Path | None = None) -> dict[str, Any]:
    """Facts about the artifact at ``path``, in reading order.

    Raises:
        ArtifactError: The manifest lacks a figure that its format has.
    """
    where = f"{path / MANIFEST}: " if path else ""
    with needing_figures(f"{where}the manifest of this {manifest.format}"):
        return _describe(manifest)


@contextmanager
def needing_figures(whose: str) -> Iterator[None]:
    """Turn errors of missing figures into one that says ``whose`` they are.

    Raises:
        ArtifactError: A figure is missing, or of another type.
    """
    try:
        yield
    except SpectoolError:
        raise
    except Exception as error:  # templates have errors of their own
        reason = f"{type(error).__name__}: {error}"
        raise ArtifactError(
            f"{whose} lacks a figure, or has one of another type ({reason}). Build the artifact again"
        ) from error


def _describe(manifest: Manifest) -> dict[str, Any]:
    facts: dict[str, Any] = {"format": f"{manifest.format} {manifest.version}", "written by": manifest.tool}
    for role, tokenizer in manifest.tokenizers.items():
        file = f", file {short(tokenizer['file'])}" if "file" in tokenizer else ""
        known = f"{tokenizer['size']:,} ids, {short(tokenizer['fingerprint'])}{file}"
        facts[f"{role} tokenizer"] = f"{tokenizer['name']} ({known})"
    figures = _FIGURES[manifest.format](manifest) if manifest.format in _FIGURES else {}
    corpus = {} if manifest.format == "spectool-benchmark" else {"corpus": _corpus(manifest.inputs)}
    return {**facts, **corpus, **figures, "bytes": f"{manifest.total_bytes:,}"}


def _corpus(inputs: Mapping[str, Any]) -> str:
    repaired = repairs(inputs.get("repaired", {}))
    text = f"{inputs['corpus']}: {inputs.get('documents', 0):,} documents, {inputs.get('characters', 0):,} characters"
    encoding = f"; read as {inputs['encoding']}" if "encoding" in inputs else ""
    return text + encoding + (f"; repaired: {repaired}" if repaired else "")


def _benchmark(manifest: Manifest) -> dict[str, Any]:
    arguments, s = manifest.arguments, manifest.statistics
    drafters = [drafter["name"] for model in arguments["models"] for drafter in model["drafters"]]
    machine = s["machine"]
    prompts, times, tokens = s["prompts"], arguments["repetitions"], arguments["tokens"]
    different = "" if s["different"] is None else f", {s['different']:,} of them not plain decoding's output"
    return {
        "experiment": arguments["name"],
        "drafters": ", ".join(dict.fromkeys(drafters)),
        "draft lengths": ", ".join(map(str, arguments["num_draft_tokens"])),
        "prompts": f"{prompts:,}, {times} times each, at most {tokens} tokens after each",
        "generations": f"{s['generations']:,}{different}",
        "machine": f"{machine['processor']}, {machine['cores']} cores, {machine['system']}, {machine['device']}",
        "began": s["began"],
    }


def _dictionary(manifest: Manifest) -> dict[str, Any]:
    s, arguments = manifest.statistics, manifest.arguments
    settings = ", ".join(f"{key} {value}" for key, value in arguments.items() if key != "method" and value is not None)
    facts: dict[str, Any] = {"method": f"{arguments['method']} ({settings})"}
    if arguments["method"] == "dictspec":
        facts["words counted"] = f"{s['words']:,}"
        facts["n-grams taken"] = f"{s['ngrams']:,} (the rarest occurs {s['smallest_count']:,} times)"
        facts["entries"] = f"{s['entries']:,} ({s['entries_before_pruning']:,} before dropping redundant ones)"
    elif arguments["method"] == "backoff":
        facts["tokens counted"] = f"{s['tokens']:,}"
        facts["entries"] = f"{s['entries']:,} (of {s['contexts']:,} contexts)"
        if "held_out" in s:
            facts["held-out text"] = held_out(s["held_out"])
    else:
        facts["entries"] = f"{s['entries']:,}"
    return facts | {
        "continuations": f"{s['continuations']:,} different, at most {s['max_continuation']} tokens",
        "contexts": f"at most {s['max_context']} tokens, of {s['symbols']:,} different ones",
        "proposals": "chained: one look-up after the other" if s["chained"] else "one continuation each",
    }


def _pruned_draft(manifest: Manifest) -> dict[str, Any]:
    return pruning(manifest.statistics)


def pruning(s: Mapping[str, Any]) -> dict[str, Any]:
    """Figures of a pruned draft model, in words."""
    return {
        "ids": "{before:,} before, {after:,} after".format(**s["ids"]),
        "weights": "{before:,} bytes before, {after:,} after".format(**s["weights"]),
        "curve": [f"{size:,} ids cover {level:.1%} of every corpus" for level, size in s["curve"]],
        "text": [
            f"{text['corpus']}: {text['before']:,} tokens before, {text['after']:,} after "
            f"({text['after'] / text['before'] - 1:+.1%}); {text['covered']:.2%} of those before are kept"
            for text in s["text"]
        ],
    }


def held_out(drafted: Mapping[str, Any]) -> list[str]:
    """Figures of a dictionary on held-out text of its corpus, in words."""
    every_guess = f"{drafted['tokens_per_pass']:.2f} tokens per pass with every guess drafted"
    if "min_probability" in drafted:  # older dictionaries lack it
        least, found = drafted["min_probability"], drafted["tokens_per_pass_at_min_probability"]
        every_guess = f"{found:.2f} tokens per pass at the default threshold of {least:.0%}; {every_guess}"
    return [
        every_guess,
        f"on {drafted['tokens']:,} tokens of the same corpus that were not counted. Other text gains less; measure it: "
        "spectool emulate --dict DICT --corpus OTHER",
    ]


def _counts(manifest: Manifest) -> dict[str, Any]:
    arguments, orders = manifest.arguments, manifest.statistics["orders"]
    unit = "words" if arguments["kind"] == "words" else "tokens"
    header = [f"n-grams of {unit}", "in the text", "different", "once", "twice", "kept", "of the text"]
    rows = [
        [
            order,
            f"{figures['occurrences']:,}",
            *(
                "not counted" if n is None else f"{n:,}"
                for n in (figures["distinct"], *figures["counts_of_counts"][:2])
            ),
            f"{figures['kept']:,}",
            f"{figures['kept_occurrences'] / max(1, figures['occurrences']):.1%}",
        ]
        for order, figures in sorted(orders.items(), key=lambda item: int(item[0]))
    ]
    return {
        f"{unit} counted": f"{manifest.statistics['total']:,}",
        "smallest count": f"{arguments['min_count']:,}; what occurs less often is left out",
        "orders": table(header, rows).splitlines(),
    }


def _alignment(manifest: Manifest) -> dict[str, Any]:
    from spectool.build.alignment.proof import Proof

    facts: dict[str, Any] = {}
    for side, other in _SIDES:
        figures = manifest.statistics[side]
        cover = figures["coverage"]
        facts[f"{side} kind"] = figures["kind"]
        facts[f"{side} limits"] = _limits(figures["limits"])
        facts[f"{side} ids shared with {other}"] = (
            f"{cover['shared']:,} of {cover['size']:,} ({cover['by_vocabulary']:.1%} of the vocabulary)"
        )
        facts[f"{side} tokens shared in the text"] = (
            f"{cover['shared_occurrences']:,} of {cover['occurrences']:,} ({cover['by_occurrence']:.1%} by occurrence)"
        )
        facts[f"{side} roles"] = str(Roles(**figures["roles"]))
        facts[f"{side} joins"] = (
            "ids: boundaries are repaired by merges, without strings"
            if figures["lemma"]
            else f"text, encoded anew in every cycle: {figures['reason']}"
        )
        facts[f"{side} proof"] = str(Proof.of(figures["proof"]))
    if counted := manifest.statistics.get("counted"):  # older alignments counted all of the corpus
        facts["shares counted on"] = _extent(counted)
    return facts | _replayed(manifest.statistics)


def _replayed(statistics: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures that were counted on a sample of the text."""
    sample, absorption = statistics["sample"], statistics["absorption"]
    facts: dict[str, Any] = {"sample": _extent(sample)}
    for side, other in _SIDES:
        counts = statistics[f"{side}_to_{other}"]
        replayed = f"{counts['texts']:,} texts, {counts['tokens']:,} tokens"
        if counts["lossy_texts"]:
            share = counts["lossy_texts"] / (counts["texts"] + counts["lossy_texts"])
            replayed += f"; {counts['lossy_texts']:,} texts ({share:.1%}) left out, whose bytes one side does not keep"
        if counts["different_texts"]:
            replayed += (
                f"; {counts['different_texts']:,} texts came out otherwise than {other} writes them, "
                f"{counts['different_tokens']:,} of {counts['other_tokens']:,} tokens"
            )
        facts[f"{side} to {other}"] = [
            replayed,
            f"{_percent(counts['several'])} of the {side}'s tokens are several {other} tokens",
            f"{_percent(counts['merge_sites'])} of neighbours are merge sites: side by side they are not canonical",
            f"{_percent(counts['string_free'])} of runs of 4 tokens are joined without strings",
        ]
    for side, _ in _SIDES:
        facts[f"{side} absorption"] = _absorption(absorption[side])
    if (head := absorption["head"]) is not None:
        refused = f"{head:.1%} of right first draft tokens, alone, would merge into the last target token"
        facts["target absorption"].append(refused)
    if "ceiling" in statistics:
        facts["ceiling"] = _ceiling(statistics)
    return facts


def _absorption(figures: Mapping[str, Any]) -> list[str]:
    """Say how often following text replaces a side's last token, and which frequent ones it replaces most often."""
    last, replaced = figures["last"], figures["replaced"]
    if not last:
        return ["not counted: no text of the sample is kept by both tokenizers"]
    facts = [
        f"{replaced / last:.1%} of last tokens are replaced once the next token's bytes follow "
        f"({replaced:,} of {last:,}; {figures['tokens']:,} different tokens)"
    ]
    rows = [
        [f"{each['id']} {each['text']!r}", f"{each['last']:,}", f"{each['replaced']:,}", f"{each['risk']:.0%}"]
        for each in figures["riskiest"]
    ]
    return facts + (table(["riskiest frequent tokens", "last", "replaced", "risk"], rows).splitlines() if rows else [])


def _extent(texts: Mapping[str, int]) -> str:
    return f"{texts['texts']:,} texts, {texts['characters']:,} characters"


def _percent(share: float | None) -> str:
    return "not counted:" if share is None else f"{share:.1%}"


def _limits(limits: Sequence[str]) -> str:
    if not limits:
        return NO_LIMITS
    return f"{'; '.join(limits)}. Texts that this touches come out changed on this side"


def _ceiling(statistics: Mapping[str, Any]) -> list[str]:
    """Lay out tokens per pass with a perfect draft by strategy: the default, then the others, the best first."""
    ceiling, default = statistics["ceiling"], statistics["default"]
    if any(None in by_length.values() for by_length in ceiling.values()):
        return ["not counted: no text of the sample is kept by both tokenizers"]
    lengths = sorted(ceiling[default], key=int)
    others = sorted(ceiling.keys() - {default}, key=lambda name: ([-ceiling[name][k] for k in reversed(lengths)], name))
    rows = [
        [
            f"{name} (default)" if name == default else name,
            *(f"{ceiling[name][k]:.2f}" for k in lengths),
            f"{statistics['strings'][name]:.1f}",
        ]
        for name in (default, *others)
    ]
    header = ["tokens per pass, perfect draft of k tokens", *(f"k = {k}" for k in lengths), "strings per pass"]
    lines = table(header, rows).splitlines()
    for name in others:
        ahead = {k: ceiling[name][k] / ceiling[default][k] - 1 for k in lengths}
        if any(round(by, 3) > 0 for by in ahead.values()):
            by = ", ".join(f"{more:+.1%} at k = {k}" for k, more in ahead.items())
            lines.append(f"{name} is ahead of {default} in this count ({by}); --strategy {name} chooses it")
    if "unfiltered" in statistics:
        reached = ", ".join(f"{statistics['unfiltered'][k]:.2f}" for k in lengths)
        lines += [
            f"Why: {default} skips first draft tokens that would merge into the last target token. A draft that is",
            f"always right can only lose by that (without it: {reached}), but a real draft errs and can gain",
        ]
    return lines


# A dictionary of formats, because importing all their readers takes longer than reading a manifest.
_FIGURES = {
    "spectool-dictionary": _dictionary,
    "spectool-alignment": _alignment,
    "spectool-counts": _counts,
    "spectool-benchmark": _benchmark,
    "spectool-pruned-draft": _pruned_draft,
}
