"""The command ``advise``."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spectool.artifacts.console import Finite, guarded, json_option, say, show, text_options

if TYPE_CHECKING:
    from spectool.measure.advise.advice import Draft, Question
    from spectool.measure.advise.expect import Verification

_LENGTHS = (2, 4, 8)
_SAMPLE = 60_000  # characters of the text
_OPTIONS: tuple[Callable[..., Any], ...] = (
    click.option(
        "--target",
        "--model",
        "target",
        required=True,
        metavar="T",
        help="The target: directory of a model, its tokenizer.json, or hub id.",
    ),
    click.option(
        "--draft", "--draft-model", "drafts", multiple=True, metavar="D", help="A draft, likewise; may be repeated."
    ),
    click.option(
        "--dict",
        "dictionaries",
        type=click.Path(path_type=Path),
        multiple=True,
        metavar="DIR",
        help="A dictionary for the target; may be repeated.",
    ),
    click.option(
        "--alignment",
        "alignments",
        type=click.Path(path_type=Path),
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
    click.option(
        "--target-bytes", type=click.IntRange(1), metavar="N", help="Weights of the target; by default its files'."
    ),
    click.option(
        "--draft-bytes",
        type=click.IntRange(1),
        multiple=True,
        metavar="N",
        help="Weights of each draft, in their order; by default their files'.",
    ),
    click.option(
        "--bandwidth", type=Finite(0, min_open=True), metavar="GB/s", help="Of the memory; by default a copy is timed."
    ),
    click.option("--memory", type=Finite(0, min_open=True), metavar="GB", help="By default what the system has."),
    click.option(
        "--context",
        type=click.IntRange(1),
        default=4096,
        show_default=True,
        metavar="N",
        help="Tokens that caches hold.",
    ),
    click.option(
        "--beta",
        type=Finite(0),
        metavar="B",
        help="What verifying costs: a pass over k drafts takes 1 + B k² plain ones. By default 0.19, of an M2 Pro.",
    ),
    click.option(
        "--run",
        type=click.Path(path_type=Path),
        metavar="RUN",
        help="Take that from a run of `spectool bench` instead.",
    ),
    click.option(
        "--measure",
        is_flag=True,
        help="Load the models: time their passes here, and replay drafts on text that the target writes.",
    ),
    click.option(
        "--temp", "temperature", type=Finite(0), default=0.0, show_default=True, help="At which it writes then."
    ),
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
    target: str,
    drafts: tuple[str, ...],
    dictionaries: tuple[Path, ...],
    alignments: tuple[Path, ...],
    corpus: str | None,
    language: str | None,
    lengths: tuple[int, ...],
    acceptances: tuple[float, ...],
    target_bytes: int | None,
    draft_bytes: tuple[int, ...],
    bandwidth: float | None,
    memory: float | None,
    context: int,
    beta: float | None,
    run: Path | None,
    measure: bool,
    temperature: float,
    text_field: str | None,
    on_error: Any,
    as_json: bool,
) -> None:
    """Say whether to draft, with what, and how far ahead, before anything is downloaded or benchmarked.

    Tokenizers are enough: they tell what translation leaves of a perfect draft, and the acceptance that it takes to
    gain. Directories of models tell what passes cost, by their size; with --measure the models are loaded, passes are
    timed, and drafts are compared with what the target writes. A dictionary is replayed on the text: name one that it
    was not built from. Every figure says whether it was measured, stated, assumed or computed from others.

    \b
    Examples:
        spectool advise --target bielik/tokenizer.json --draft qwen/tokenizer.json --language pl
        spectool advise --target T --target-bytes 11320000000 --draft D --draft-bytes 800000000 --bandwidth 200
        spectool advise --target ./Bielik-11B --draft ./Qwen2.5-1.5B --alignment qwen-bielik.align \\
            --dict pl.dict --measure
    """
    for option, values in (("--draft-bytes", draft_bytes), ("--acceptance", acceptances)):
        if values and len(values) != len(drafts):
            raise click.UsageError(
                f"{len(values)} {option} for {len(drafts)} drafts: give one for each, in their order"
            )
    if corpus is not None and language is not None:
        raise click.UsageError("--language means its bundled sample: leave it out, or --corpus")
    if sum((beta is not None, run is not None, measure)) > 1:
        raise click.UsageError("--beta, --run and --measure each say what verifying costs: give one of them")
    if temperature and not measure:
        raise click.UsageError("--temp is of the text that the target writes with --measure, which is not given")

    from spectool import SpectoolError
    from spectool.artifacts.tokenizer.opening import open_tokenizer
    from spectool.corpora import open_corpus
    from spectool.measure.advise.advice import Question, check
    from spectool.measure.advise.advice import advise as answer
    from spectool.measure.advise.layout import as_facts, print_advice
    from spectool.measure.advise.machine import this_machine
    from spectool.measure.advise.pair import sample
    from spectool.measure.advise.sizes import is_model, sizes_of

    spec = corpus or f"sample:{language or 'pl'}"
    text = open_corpus(spec, on_error=on_error, text_field=text_field)
    opened = open_tokenizer(target)
    question = Question(
        target,
        opened,
        sizes_of(target, target_bytes, context),
        _opened(drafts, draft_bytes, acceptances, alignments, opened),
        dictionaries,
        sample((document.text for document in text), _SAMPLE),
        spec,
        list(dict.fromkeys(lengths or _LENGTHS)),
        context,
        this_machine(bandwidth, memory),
    )
    check(question)
    models = None
    if measure:
        if not is_model(target):
            raise SpectoolError(
                f"{target}: expected the directory of a model to measure, got no config.json and *.safetensors. "
                "Name one, or leave out --measure"
            )
        room, weight = question.machine.memory.value, question.sizes.total.value
        if room is not None and weight is not None and weight > room:
            raise SpectoolError(
                f"{target}: expected a model of at most {room / 1e9:.1f} GB to load, got {weight / 1e9:.1f}. Leave out "
                "--measure, or state more --memory"
            )
        from spectool.measure.advise.measuring import Measured

        say(f"loading and timing {target}")
        models = Measured(target, question.texts, question.lengths, temperature)
    found = answer(question, _verification(beta, run, question), models, say)
    if as_json:
        show(as_facts(question, found), as_json=True)
    else:
        print_advice(question, found)


def _opened(
    sources: Sequence[str],
    sizes: Sequence[int],
    acceptances: Sequence[float],
    alignments: Sequence[Path],
    target: Any,
) -> "list[Draft]":
    """Open the drafts' tokenizers, and give each its alignment."""
    from spectool import FingerprintMismatch
    from spectool.artifacts.formats.alignment import Alignment
    from spectool.artifacts.tokenizer.opening import open_tokenizer
    from spectool.measure.advise.advice import Draft

    waiting = [Alignment(path) for path in alignments]
    drafts = []
    for number, (name, source) in enumerate(zip(_names(sources), sources, strict=True)):
        tokenizer = open_tokenizer(source)
        pair = {"draft": tokenizer.fingerprint, "target": target.fingerprint}
        own = next(
            (
                each
                for each in waiting
                if {role: each.manifest.tokenizers[role]["fingerprint"] for role in pair} == pair
            ),
            None,
        )
        drafts.append(
            Draft(
                name,
                source,
                tokenizer,
                sizes[number] if sizes else None,
                acceptances[number] if acceptances else None,
                own,
            )
        )
    for alignment in waiting:
        if alignment not in [draft.alignment for draft in drafts]:
            names = {role: alignment.manifest.tokenizers[role]["name"] for role in ("draft", "target")}
            raise FingerprintMismatch(
                f"{alignment.path}: expected the tokenizers of the target and one of the drafts, got draft "
                f"{names['draft']} and target {names['target']}. Leave it out, or name its draft with --draft"
            )
    return drafts


def _names(sources: Sequence[str]) -> list[str]:
    """Return short names of models: the directory's, unless two have one name."""
    short = [Path(source).parent.name if source.endswith("tokenizer.json") else Path(source).name for source in sources]
    return short if len(set(short)) == len(short) and all(short) else [source.strip("/") for source in sources]


def _verification(beta: float | None, run: Path | None, question: "Question") -> "Verification":
    from spectool.measure.advise.expect import M2_PRO_BETA, Verification
    from spectool.measure.advise.figures import assumed, stated

    if run is not None:
        from spectool.measure.advise.machine import verification_of

        return verification_of(run, question.source, question.sizes.weights.value)
    if beta is not None:
        return Verification(stated(beta), {})
    return Verification(assumed(M2_PRO_BETA, "as on the M2 Pro of the published model; --measure times it here"), {})
