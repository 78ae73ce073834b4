"""The command ``setup``: from a model to a dictionary, a draft model, and what to type from now on."""

from typing import Any

import click

from spectool.commands.shared.model_options import draft_model_option
from spectool.commands.shared.options import Finite, command, corpora_option, language_option, option, pack_option


@command("setup")
@click.argument("model")
@language_option(help="Language that the model will write, such as pl or uk.")
@corpora_option(help="Text of your own, as for build-dict; may be repeated.")
@pack_option(help="Counts of the language; may be repeated. By default the bundled one, if there is one.")
@draft_model_option(help="Draft model to try: directory or hub id; auto takes the best in your Hugging Face cache.")
@option("--seconds", type=Finite(0.1), default=120.0, help="Time for the benchmark; it takes a few answers at least.")
def setup(as_json: bool, **asked: Any) -> None:
    """Set up drafting for a model and a language, measure it, and print the command to use.

    Makes a dictionary from the counts that come with spectool (--pack), and another one from your own text. Prunes a
    draft model with another tokenizer to the tokens of the language, gives its weights the form that is fastest here,
    and aligns it. Then all of this is measured against plain decoding, which is recommended if drafting does not pay.
    Without --draft-model, it says whether one is expected to pay.

    `generate`, `chat` and `serve` find what was made, for every model with this tokenizer. The same command keeps it,
    for example after Ctrl-C, and measures again.

    \b
    Examples:
        spectool setup ./Bielik-11B --language pl
        spectool setup ./Bielik-11B --language pl --draft-model google/gemma-3-270m-it
        spectool setup ./Bielik-11B --language pl --corpus texts/
    """
    from spectool.commands.setup_steps import Setup

    Setup(**asked).run(as_json)
