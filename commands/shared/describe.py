"""Artifacts in words: what an artifact is, which tokenizers it is for, and its figures."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from textwrap import wrap
from typing import Any

from spectool import ArtifactError, SpectoolError
from spectool.artifacts.manifest import MANIFEST, Manifest
from spectool.commands.shared.console import repairs, table
from spectool.tokenization.fingerprint import short
from spectool.tokenization.roles import Roles
from spectool.tokenization.round_trips import NO_LIMITS


def artifact_facts(manifest: Manifest, path: Path | None = None) -> dict[str, Any]:
    """Facts about the artifact at ``path``, in reading order.

    Raises:
        ArtifactError: The manifest lacks a figure that its format has.
    """
    where = f"{path / MANIFEST}: " if path else ""
    with needing_figures(f"{where}the manifest of this {manifest.format}"):
        return _facts(manifest)


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
            f"{whose} lacks a figure or has one of the wrong type ({reason}). Build it again"
        ) from error


def _facts(manifest: Manifest) -> dict[str, Any]:
    facts: dict[str, Any] = {"format": f"{manifest.format} {manifest.version}", "written by": manifest.tool}
    for role, tokenizer in manifest.tokenizers.items():
        known = f"{tokenizer['size']:,} ids, {short(tokenizer['fingerprint'])}"
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
    machine, times, tokens = s["machine"], arguments["repetitions"], arguments["tokens"]
    often = "once" if times == 1 else f"{times} times"
    different = "" if s["different"] is None else f", {s['different']:,} of them not plain decoding's output"
    return {
        "experiment": arguments["name"],
        "drafters": ", ".join(dict.fromkeys(drafters)),
        "draft lengths": ", ".join(map(str, arguments["num_draft_tokens"])),
        "prompts": f"{s['prompts']:,}, {often} each, at most {tokens} tokens after each",
        "generations": f"{s['generations']:,}{different}",
        "machine": f"{machine['processor']}, {machine['cores']} cores, {machine['system']}, {machine['device']}",
        "began": s["began"],
    }


def _dictionary(manifest: Manifest) -> dict[str, Any]:
    s, arguments = manifest.statistics, manifest.arguments
    settings = ", ".join(f"{key} {value}" for key, value in arguments.items() if key != "method" and value is not None)
    facts: dict[str, Any] = {"method": f"{arguments['method']} ({settings})"}
    if arguments["method"] == "backoff":
        facts["tokens counted"] = f"{s['tokens']:,}"
        facts["entries"] = f"{s['entries']:,} (of {s['contexts']:,} contexts)"
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


def _counts(manifest: Manifest) -> dict[str, Any]:
    arguments, orders = manifest.arguments, manifest.statistics["orders"]
    header = ["n-grams of tokens", "in the text", "different", "once", "twice", "kept", "of the text"]
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
        "tokens counted": f"{manifest.statistics['total']:,}",
        "smallest count": f"{arguments['min_count']:,}; what occurs less often is left out",
        "orders": table(header, rows).splitlines(),
    }


def _alignment(manifest: Manifest) -> dict[str, Any]:
    from spectool.artifacts.alignment import SIDES
    from spectool.build.alignment.check import JoinCheck
    from spectool.commands.shared.align_summary import TEXT_WIDTH, figures_of_pair, judge

    facts: dict[str, Any] = {}
    for side, other in SIDES:
        figures, counts = manifest.statistics[side], manifest.statistics[f"{side}_to_{other}"]
        facts[f"{side} kind"] = figures["kind"]
        facts[f"{side} roles"] = str(Roles(**figures["roles"]))
        facts[f"{side} limits"] = "; ".join(figures["limits"]) or NO_LIMITS
        facts[f"{side} joins"] = (
            "ids: at most the text since the last sure border is encoded, once"
            if figures["by_ids"]
            else f"text, encoded again in every cycle: {figures['reason']}"
        )
        facts[f"{side} check"] = str(JoinCheck(**figures["check"]))
        facts[f"{side} replayed"] = (
            f"{counts['texts']:,} texts, {counts['tokens']:,} tokens; {counts['lossy_texts']:,} texts were left out, "
            f"{counts['different_texts']:,} came out differently from the {other}'s own encoding"
        )
    facts |= figures_of_pair(manifest.statistics)
    return facts | ({"verdict": wrap(judge(manifest).verdict, TEXT_WIDTH)} if "ceiling" in facts else {})


_FIGURES = {
    "spectool-dictionary": _dictionary,
    "spectool-alignment": _alignment,
    "spectool-counts": _counts,
    "spectool-benchmark": _benchmark,
    "spectool-pruned-draft": _pruned_draft,
}
