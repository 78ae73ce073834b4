"""The command ``align``, and what it and ``inspect`` say of a pair of tokenizers."""

import shlex
from pathlib import Path
from typing import Any

import click

from spectool import SpectoolError
from spectool.artifacts.default_paths import default_path, find_draft
from spectool.artifacts.manifest import Manifest
from spectool.commands.shared.console import model_of, open_text, print_result, say, say_next
from spectool.commands.shared.options import command, draft_option, option, out_option, target_option


@command("align")
@draft_option(metavar="D", help="Tokenizer of the draft model: directory, tokenizer.json or hub id.")
@target_option(metavar="T", help="Tokenizer of the target model, likewise.")
@option("--corpus", default="sample:all", metavar="C", help="Text in the language that the model will write.")
@out_option
def align(draft: str, target: str, corpus: str, out: Path | None, as_json: bool) -> None:
    """Prepare a draft model with another tokenizer for a target, and report on the pair.

    Only the tokenizers are read, so you can judge a pair before you download its models. Without -o, `generate`, `chat`
    and `serve` find the alignment in your cache folder.

    The report ends with a verdict. The exit status is 1 if more than 1% of the translated tokens differ from the
    tokenizer's own encoding. Then drafts are lost, but the output stays the same.

    \b
    lossy texts  passages that a tokenizer changes; they are not counted
    lost joins   share of translated tokens that differ

    \b
    Example:
        spectool align --draft ./Qwen2.5-1.5B --target ./Bielik-11B
    """
    from spectool.artifacts.alignment import Alignment, require_checked
    from spectool.build.alignment.stage import build_alignment
    from spectool.commands.shared.tokenizers import open_tokenizers

    source = open_text(corpus)
    drafting, verifying = open_tokenizers(Alignment.format, out, draft=find_draft(draft), target=target)
    if drafting.fingerprint == verifying.fingerprint:
        raise click.UsageError(
            "draft and target have the same tokenizer: no alignment is needed. Give the draft alone: "
            f"spectool generate --model {shlex.quote(target)} --draft-model {shlex.quote(draft)}"
        )
    path = out or default_path(f"{drafting.fingerprint[:8]}-{verifying.fingerprint[:8]}.align")
    manifest = build_alignment(drafting, verifying, source, path, say)
    judged = judgement(manifest)
    print_result(path, manifest, as_json, **judged)
    require_checked(path, manifest, say)
    if judged["usable"]:
        models = ["--model", model_of(target, "MODEL"), "--draft-model", model_of(draft, "DRAFT")]
        say_next(["generate", *models, *(["--alignment", str(path)] if out else [])])


def judgement(manifest: Manifest) -> dict[str, Any]:
    """The figures of an alignment that decide about it, and the verdict: ``usable`` is None where nothing tells."""
    from spectool.artifacts.alignment import SIDES, checked_sides

    try:
        s, lost = manifest.statistics, {side: check.share for side, _, check in checked_sides(manifest)}
        draft, target = (s[f"{side}_to_{other}"] for side, other in SIDES)
        limits = [f"the {side}'s {', '.join(s[side]['limits'])}" for side, _ in SIDES if s[side]["limits"]]
        usable, verdict = _verdict(draft, target["tokens"], max(lost.values()), limits)
        lossy = {"draft": draft["lossy_texts"], "target": target["lossy_texts"]}
    except (SpectoolError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
        return {"usable": None, "verdict": "none, because the report of this alignment lacks a figure: align again"}
    return {"lossy texts": lossy, "lost joins": lost, "usable": usable, "verdict": verdict}


def _verdict(draft: Any, tokens: int, lost: float, limits: list[str]) -> tuple[bool | None, str]:
    from spectool.artifacts.alignment import LOST

    if lost > LOST:
        return False, "do not use this pair: too many translated tokens differ from the tokenizer's own encoding"
    if draft["lossy_texts"] > draft["texts"]:
        return None if draft["texts"] else False, (  # without any, no text of the sample survives in both tokenizers
            f"do not use this pair for such text, which a tokenizer does not keep ({'; '.join(limits)}): a draft that "
            "differs from the target's text is never accepted. Choose another draft, or text that both keep"
        )
    if not draft["texts"]:
        return None, "nothing can be said about this pair: no passage of the text is kept by both tokenizers"
    return True, (
        f"this pair is fine to use: on this text, a draft token is as long as {tokens / draft['tokens']:.2f} target "
        "tokens. `spectool bench` measures how often a real draft is right"
    )
