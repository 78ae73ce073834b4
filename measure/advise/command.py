"""The command ``advise``."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from spectool.artifacts.console import Finite, guarded, json_option, say, show, text_options
from spectool.runtime.commands.model_options import model_option

_LENGTHS = (2, 4, 8)
_SAMPLE = 60_000  # characters of the text
_PATH, _POSITIVE, _BYTES = click.Path(path_type=Path), Finite(0, min_open=True), click.IntRange(1)
_OPTIONS: tuple[Callable[..., Any], ...] = (
    model_option(metavar="T", help="The target: directory of a model, its tokenizer.json, or hub id."),
    click.option(
        "--draft", "--draft-model", "drafts", multiple=True, metavar="D", help="A draft, likewise; may be repeated."
    ),
    click.option(
        "--dict",
        "dictionaries",
        type=_PATH,
        multiple=True,
        metavar="DIR",
        help="A dictionary for the target; may be repeated.",
    ),
    click.option(
        "--alignment",
        "alignments",
        type=_PATH,
        multiple=True,
        metavar="DIR",
        help="Alignment of a draft's tokenizer with the target's; may be repeated, in any order.",
    ),
    click.option("--corpus", metavar="C", help="Text of the language to generate, as for build-dict."),
    click.option("--language", metavar="L", help="Its bundled sample: pl, uk, …; pl by default."),
    click.option(
        "--num-draft-tokens",
        "lengths",
        type=click.IntRange(1, 64),
        multiple=True,
        metavar="K",
        help="Draft length to consider; may be repeated. By default 2, 4 and 8.",
    ),
    click.option(
        "--acceptance",
        "acceptances",
        type=Finite(0, 1),
        multiple=True,
        metavar="A",
        help="Share of draft tokens that is accepted, where you know it: one for each draft, in their order.",
    ),
    click.option("--target-bytes", type=_BYTES, metavar="N", help="Weights of the target; by default its files'."),
    click.option(
        "--draft-bytes", type=_BYTES, multiple=True, metavar="N", help="Weights of each draft; by default their files'."
    ),
    click.option("--bandwidth", type=_POSITIVE, metavar="GB/s", help="Of the memory; by default a copy is timed."),
    click.option("--memory", type=_POSITIVE, metavar="GB", help="By default what the system has."),
    click.option(
        "--context", type=_BYTES, default=4096, show_default=True, metavar="N", help="Tokens that caches hold."
    ),
    click.option(
        "--beta",
        type=Finite(0),
        metavar="B",
        help="What verifying costs: a pass over k drafts takes 1 + B k² plain ones. By default 0.19, of an M2 Pro.",
    ),
    click.option("--run", type=_PATH, metavar="RUN", help="Take that from a run of `spectool bench` instead."),
    click.option(
        "--measure",
        is_flag=True,
        help="Load the models: time their passes here, and replay drafts on text that the target writes.",
    ),
    click.option("--temp", type=Finite(0), default=0.0, show_default=True, help="At which it writes then."),
)


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command("advise")
@_options
@text_options
@json_option
@guarded
def advise(
    model: str,
    drafts: tuple[str, ...],
    dictionaries: tuple[Path, ...],
    corpus: str | None,
    language: str | None,
    run: Path | None,
    measure: bool,
    text_field: str | None,
    on_error: Any,
    as_json: bool,
    **options: Any,
) -> None:
    """Say whether to draft, with what, and how far ahead, before anything is downloaded or benchmarked.

    Tokenizers are enough: they say what translation leaves of a perfect draft, and the acceptance that it takes to
    gain. Directories of models say what passes cost, by their size; with --measure the models are loaded, passes are
    timed, and drafts are compared with what the target writes. A dictionary is replayed on the text: name one that it
    was not built from. Every figure says whether it was measured, stated, assumed or computed from others.

    \b
    Examples:
        spectool advise --target bielik/tokenizer.json --draft qwen/tokenizer.json --language pl
        spectool advise --target T --target-bytes 11320000000 --draft D --draft-bytes 800000000 --bandwidth 200
        spectool advise --target ./Bielik-11B --draft ./Qwen2.5-1.5B --alignment qwen-bielik.align \\
            --dict pl.dict --measure
    """
    sizes, acceptances, beta = options["draft_bytes"], options["acceptances"], options["beta"]
    for option, values in (("--draft-bytes", sizes), ("--acceptance", acceptances)):
        if values and len(values) != len(drafts):
            raise click.UsageError(
                f"{len(values)} {option} for {len(drafts)} drafts: give one for each, in their order"
            )
    if corpus is not None and language is not None:
        raise click.UsageError("--language means its bundled sample: leave it out, or --corpus")
    if sum((beta is not None, run is not None, measure)) > 1:
        raise click.UsageError("--beta, --run and --measure each say what verifying costs: give one of them")
    if options["temp"] and not measure:
        raise click.UsageError("--temp is of the text that the target writes with --measure, which is not given")

    from spectool import SpectoolError
    from spectool.artifacts.tokenizer.opening import open_tokenizer
    from spectool.corpora import open_corpus
    from spectool.measure.advise.advice import Question, check, open_drafts
    from spectool.measure.advise.advice import advise as answer
    from spectool.measure.advise.expect import M2_PRO_BETA, Verification
    from spectool.measure.advise.figures import assumed, stated
    from spectool.measure.advise.layout import print_advice
    from spectool.measure.advise.machine import this_machine, verification_of
    from spectool.measure.advise.pair import sample
    from spectool.measure.advise.sizes import is_model, sizes_of

    spec, context = corpus or f"sample:{language or 'pl'}", options["context"]
    text = open_corpus(spec, on_error=on_error, text_field=text_field)
    opened = open_tokenizer(model)
    question = Question(
        model,
        opened,
        sizes_of(model, options["target_bytes"], context),
        open_drafts(drafts, sizes, acceptances, options["alignments"], opened, context),
        dictionaries,
        sample((document.text for document in text), _SAMPLE),
        spec,
        list(dict.fromkeys(options["lengths"] or _LENGTHS)),
        this_machine(options["bandwidth"], options["memory"]),
    )
    check(question)
    timed = None
    if measure:
        if not is_model(model):
            raise SpectoolError(
                f"{model}: expected the directory of a model to measure, got no config.json and *.safetensors. "
                "Name one, or leave out --measure"
            )
        room, weight = question.machine.memory.value, question.sizes.total.value
        if room is not None and weight is not None and weight > room:
            raise SpectoolError(
                f"{model}: expected a model of at most {room / 1e9:.1f} GB to load, got {weight / 1e9:.1f}. Leave out "
                "--measure, or state more --memory"
            )
        from spectool.measure.advise.timed_target import TimedTarget

        say(f"loading and timing {model}")
        timed = TimedTarget(model, question.texts, question.lengths, options["temp"])
    costs = Verification(
        assumed(M2_PRO_BETA, "as on the M2 Pro of the published model; --measure times it here")
        if beta is None
        else stated(beta)
    )
    if run is not None:
        costs = verification_of(run, model, question.sizes.weights.value)
    found = answer(question, costs, timed, say)
    if as_json:
        show(asdict(found), as_json=True)
    else:
        print_advice(found)
