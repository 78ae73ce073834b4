"""The command ``predict``: a text replayed as if a model had written it, to say what drafts would gain on it."""

from typing import Any

import click

from spectool.commands.shared.model_options import alignment_option, draft_model_option, min_draft_prob_option
from spectool.commands.shared.options import Finite, Whole, command, option, path_option, tokenizer_option

_MODES = click.Choice(["affine", "mxfp4", "nvfp4", "mxfp8"])


@command("predict")
@option(
    "--corpus",
    metavar="C",
    help="Text to replay; by default a bundled one in the language of the dictionary's pack, if there is one.",
    heading="Text",
)
@tokenizer_option(
    "--target", help="The target's tokenizer; by default the dictionary's, if you have it.", heading="Text"
)
@option(
    "--max-tokens",
    type=Whole(1),
    help="Replay this many tokens; by default 2,000 with a draft model, 20,000 for a machine, and otherwise all.",
    heading="Text",
)
@path_option("--dict", "dictionaries", multiple=True, metavar="FILE", help="May be repeated.", heading="Drafting")
@option("--history/--no-history", default=True, help="Draft from the text too.", heading="Drafting")
@draft_model_option(help="Draft model to try as well: directory or hub id.", heading="Drafting")
@alignment_option(help="Output of `spectool align` for it.", heading="Drafting")
@option("--here", is_flag=True, help="This machine, as `spectool doctor` has measured --model.", heading="Machine")
@option("--on", "chip", metavar="CHIP", help="An Apple chip, such as 'M4 Pro'.", heading="Machine")
@option("--bits", type=Whole(1, 32), default=4, help="Bits of a weight.", heading="Machine")
@option("--mode", type=_MODES, default="affine", help="Form of the weights.", heading="Machine")
@option(
    "--size",
    type=Finite(0.001),
    metavar="B",
    help="Billions of weights, such as 8: leaves out far other sizes, and says what a draft model costs.",
    heading="Machine",
)
@option("--experts", is_flag=True, help="The model is a mixture of experts.", heading="Machine")
@min_draft_prob_option(help="Stop drafting below this probability.", heading="Drafting")
def predict(as_json: bool, **asked: Any) -> None:
    """Say what drafts would gain on a text, without running your model.

    Replays the text as if the model had written it, each document as a generation of its own. Counts passes and, for a
    machine, works out the speed from what passes cost there: --here takes what `doctor` has measured on this machine,
    and --on what others have published of Apple chips. Use a text that the dictionary was not built from, such as chats
    of yours. With --draft-model, that model is asked at every place of the text, and compared with look-ups and both.

    \b
    tokens per pass       1.0 is plain decoding
    coverage              passes with a proposal / passes
    mean accepted length  accepted draft tokens / passes with a proposal
    acceptance            accepted draft tokens / proposed ones
    proposed per pass     draft tokens / passes: what --min-draft-prob limits

    \b
    Examples:
        spectool predict --dict pl.dict --corpus news.txt
        spectool predict --dict pl.dict --corpus news.txt --on "MacBook Pro M4 Pro"
        spectool predict --dict pl.dict --corpus chats.txt --model ./Bielik-11B --here --draft-model ./gemma-3-270m
    """
    from spectool.commands.predict_steps import Prediction

    Prediction(**asked).run(as_json)
