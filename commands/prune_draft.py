"""The command ``prune-draft``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from spectool import RuntimeUnsupported, expanded
from spectool.artifacts.default_paths import draft_path, slug
from spectool.build.packs import bundled_packs
from spectool.commands.shared.console import open_text, print_result, say, say_next
from spectool.commands.shared.options import (
    Whole,
    command,
    corpora_option,
    draft_option,
    option,
    out_option,
    pack_option,
)


@command("prune-draft")
@draft_option(metavar="M", help="Draft model to prune, in MLX format: a directory or a hub id.")
@pack_option(help=f"Counts of a language to keep: {', '.join(bundled_packs())}, or a file; may be repeated.")
@corpora_option(help="Text in a language to keep, as for build-dict; may be repeated.")
@out_option
@option("--ids", type=Whole(1), help="Most tokens to keep; by default all of each pack, and 99.9% of each corpus.")
@option("--bits", type=click.Choice([32, 16, 8, 4]), help="Form of the weights (16: bfloat16); by default as it is.")
def prune_draft(
    draft: str,
    packs: tuple[str, ...],
    corpora: tuple[str, ...],
    out: Path | None,
    ids: int | None,
    bits: int | None,
    as_json: bool,
) -> None:
    """Make a draft model faster by removing the tokens that your languages do not use.

    Writes a copy of the model with only the tokens that your languages need, which a pack or some text says, and prints
    what that changes. The copy can still read and write any text, but other languages take more tokens, so use it for
    drafting only.

    The copy has its own tokenizer, so align it with the target model (`spectool align`), even if the original has the
    target's tokenizer. Without -o, other commands find it by its name.

    \b
    Examples:
        spectool prune-draft --draft ./gemma-3-270m --pack pl --pack uk
        spectool prune-draft --draft ./gemma-3-270m --corpus texts/ --bits 8 -o gemma-texts
    """
    from spectool.artifacts.atomic import require_new
    from spectool.build.packs.stage import described, open_pack
    from spectool.build.pruning.stage import prune_model
    from spectool.commands.shared.tokenizers import tokenizer_with_notes
    from spectool.corpora import sample_names
    from spectool.measure.first_guesses import passages

    if not (packs or corpora):
        raise click.UsageError("nothing says which tokens to keep: give --pack NAME, or --corpus TEXT")
    sources, counted = [open_text(corpus) for corpus in corpora], [open_pack(name) for name in packs]
    path = out or draft_path(draft_name(draft, [*(pack.path.stem for pack in counted), *map(slug, corpora)], bits))
    require_new(path)
    directory = model_directory(draft)
    whole = tokenizer_with_notes(directory)
    codes = [pack["language"].partition("-")[0] for pack in described(counted)]
    texts = [f"sample:{code}" for code in codes if code in sample_names()]
    tried = [passage for spec in [*texts, *corpora] for passage in passages(spec)]

    def finish(made: Path) -> dict[str, Any]:
        return (in_form(made, bits) if bits else {}) | (guesses_of(made, tried) if tried else {})

    manifest = prune_model(directory, whole, sources, path, say, ids, counted, finish)
    print_result(path, manifest, as_json, **manifest.statistics)
    say_next(["align", "--draft", str(out or path.name)], "--target TARGET")


def draft_name(draft: str, languages: Sequence[str], bits: int | None = None) -> str:
    """The name of a pruned draft model in the user's cache, such as ``gemma-3-270m-pl-8bit``."""
    return "-".join([slug(str(expanded(draft))), *languages, *([f"{bits}bit"] if bits else [])])


def guesses_of(directory: Path, texts: Sequence[str]) -> dict[str, Any]:
    """How a new model guesses on texts; see `prune_model` for what this returns."""
    from spectool.measure.first_guesses import guesses
    from spectool.runtime.loading import load_model
    from spectool.tokenization.opening import open_tokenizer

    say("trying its guesses")
    try:
        model, loaded = load_model(str(directory))
    except RuntimeUnsupported as error:  # the copy is kept: another version of mlx-lm may load it
        say(f"its guesses were not tried: {error}")
        return {}
    return {"guesses": guesses(model, open_tokenizer(loaded), texts)}


def in_form(directory: Path, bits: int) -> dict[str, Any]:
    """Give a model's directory weights of that many bits; see `prune_model` for what this returns."""
    from spectool.measure.forms import convert, save_weights
    from spectool.runtime.loading import load_model

    say(f"giving the weights {bits} bits")
    model = load_model(str(directory))[0]
    return {"bits": bits, "bytes": save_weights(model, convert(model, bits), directory)}


def model_directory(draft: str) -> Path:
    """The directory of a model, which is downloaded if it is given by its hub id."""
    from spectool.runtime.loading import local_model
    from spectool.tokenization.hub_names import cached_snapshot, fetch

    if here := local_model(draft) or cached_snapshot(draft, "*.safetensors"):
        return here
    say(f"{draft}: fetching from the hub what is not here yet")
    return fetch(draft)
