"""The command ``prune-draft``."""

from pathlib import Path

from spectool.commands.shared.console import open_text, print_result, say, say_next
from spectool.commands.shared.options import Whole, command, draft_option, option, path_option


@command("prune-draft")
@draft_option(metavar="M", help="Draft model to prune, in MLX format: a directory or a hub id.")
@option(
    "--corpus",
    "corpora",
    required=True,
    multiple=True,
    metavar="C",
    help="Text in a language to keep, as for build-dict; may be repeated. All have the same weight.",
)
@path_option("-o", "--out", required=True, metavar="DIR", help="Directory to write.")
@option("--ids", type=Whole(1), help="Maximum number of tokens; by default, enough to cover 99.9% of every corpus.")
def prune_draft(draft: str, corpora: tuple[str, ...], out: Path, ids: int | None, as_json: bool) -> None:
    """Make a draft model faster by removing the tokens that your languages do not use.

    Writes a copy of the model with only the tokens that your text needs, and prints what that changes. The copy can
    still read and write any text, but other languages take more tokens, so use it for drafting only.

    The copy has its own tokenizer, so align it with the target model (`spectool align`), even if the original has the
    target's tokenizer.

    \b
    Example:
        spectool prune-draft --draft ./gemma-3-270m --corpus wiki-pl --corpus wiki-uk -o gemma-pl-uk
    """
    from spectool.artifacts.atomic import require_new
    from spectool.build.pruning.stage import prune_model
    from spectool.commands.shared.tokenizers import tokenizer_with_notes

    sources = [open_text(corpus) for corpus in corpora]
    require_new(out)
    directory = model_directory(draft)
    whole = tokenizer_with_notes(directory)
    manifest = prune_model(directory, whole, sources, out, say, ids)
    facts = dict(manifest.statistics)
    facts["ids to cover"] = {f"{100 * share:g}%": count for share, count in facts.pop("curve")}
    print_result(out, manifest, as_json, **facts)
    if not as_json:
        say_next(["align", "--draft", str(out)], "--target TARGET")


def model_directory(draft: str) -> Path:
    """The directory of a model, which is downloaded if it is given by its hub id."""
    from spectool.runtime.loading import local_model

    if (directory := local_model(draft)) is not None:
        return directory
    from huggingface_hub import snapshot_download

    from spectool.build.pruning.stage import LEGAL
    from spectool.tokenization.hub_names import cached_snapshot, require_on_hub

    if (cached := cached_snapshot(draft, "*.safetensors")) is not None:
        return cached
    require_on_hub(draft)
    say(f"{draft}: fetching from the hub what is not here yet")
    return Path(snapshot_download(draft, allow_patterns=["*.json", "*.jinja", "*.model", "model*.safetensors", *LEGAL]))
