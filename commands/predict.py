"""The command ``predict``: a text replayed as if a model had written it, to say what drafts would gain on it."""

from functools import partial
from typing import Any

import click

from spectool.commands.shared.model_options import DRAFT_SOURCES, draft_model_option
from spectool.commands.shared.options import Finite, Whole, command, option, path_option, tokenizer_option

_text, _machine = partial(option, heading="Text"), partial(option, heading="Machine")
_MODES = click.Choice(["affine", "mxfp4", "nvfp4", "mxfp8"])


@command("predict")
@_text("--corpus", metavar="C", help="Text to replay; by default a bundled one in the language of the dictionary.")
@tokenizer_option("--target", help="The target's tokenizer; by default that of the dictionary.", heading="Text")
@_text("--max-tokens", type=Whole(1), help="Tokens to replay: all, for a machine 20,000, with a draft model 2,000.")
@path_option("--dict", "dictionaries", multiple=True, metavar="FILE", help="May be repeated.", heading="Drafting")
@DRAFT_SOURCES["history"]
@draft_model_option(help="Draft model to try as well: directory or hub id.", heading="Drafting")
@DRAFT_SOURCES["alignment"]
@DRAFT_SOURCES["min_probability"]
@_machine("--here", is_flag=True, help="This machine, as `spectool doctor` has measured --model.")
@_machine("--on", "chip", metavar="CHIP", help="An Apple chip, such as 'M4 Pro', with a dense model.")
@_machine("--bits", type=Whole(1, 32), default=4, help="Bits of a weight.")
@_machine("--mode", type=_MODES, default="affine", help="Form of the weights.")
@_machine("--size", type=Finite(0.001), metavar="B", help="Billions of weights; leaves out models of far other sizes.")
def predict(as_json: bool, **asked: Any) -> None:
    """Say what drafts would gain on a text, without running your model.

    Replays the text as if the model had written it, each document as a generation of its own. Counts passes and, for a
    machine, works out the speed from what passes cost there: --here takes what `doctor` has measured on this machine,
    and --on what others have published of Apple chips. Use a text that the dictionary was not built from, such as chats
    of yours. With --draft-model, that model alone and both together are compared with look-ups.

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
