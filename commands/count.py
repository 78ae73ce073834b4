"""The command ``count``."""

from pathlib import Path
from typing import Any

from spectool.artifacts.default_paths import default_path, digest, slug
from spectool.build.counting.options import CountOptions
from spectool.commands.shared.console import check_first, open_text, opened, say, say_next, stage
from spectool.commands.shared.options import (
    Whole,
    command,
    memory_option,
    option,
    out_option,
    text_options,
    tokenizer_option,
)


@command("count")
@option(
    "--corpus", required=True, metavar="C", help="File, directory, hf:OWNER/NAME:CONFIG#COLUMN, preset or sample:pl."
)
@tokenizer_option("--target", required=True, help="Tokenizer whose tokens are counted.")
@out_option
@memory_option
@option("--orders", type=Whole(1, 16), metavar="N", help="Longest window, in tokens; by default 8.")
@option(
    "--min-count",
    type=Whole(1),
    default=CountOptions.min_count,
    show_default=True,
    help="Leave out windows that occur less often; the counts of all others are exact.",
)
@text_options
def count(
    corpus: str,
    tokenizer: str,
    out: Path | None,
    memory: int,
    orders: int | None,
    min_count: int,
    reads: dict[str, Any],
    as_json: bool,
) -> None:
    """Count windows of tokens (n-grams) in a text, exactly and in bounded memory.

    Dictionaries of any size can be built from the counts (`build-dict --counts`). If the command is killed, the same
    command resumes.

    \b
    Example:
        spectool count --corpus wiki-pl --tokenizer ./Bielik-11B --min-count 4 -o pl-bielik.counts
    """
    from spectool.artifacts.counts import Counts
    from spectool.build.counting.stage import count_text

    options = CountOptions(orders=orders, min_count=min_count, memory=memory)
    source = open_text(corpus, **reads)
    check_first(Counts.format, out, tokenizer)
    target = opened(tokenizer)
    path = out or default_path(f"{slug(corpus)}.{target.fingerprint[:8]}-{digest(orders, min_count)}.counts")
    with stage(path, Counts.format, as_json, {"target": target.fingerprint}) as finish:
        finish(count_text(source, path, options, target, say))
    if not as_json:
        say_next(["build-dict", "--tokenizer", tokenizer, "--counts", str(path)], "")
