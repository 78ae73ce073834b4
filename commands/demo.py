"""The command ``demo``: from text to a dictionary to generation, offline, with what the package bundles."""

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click

from spectool.commands.console import guarded, say, table

_DRAFT_TOKENS = 4
_SHOWN_TOKENS = 48  # of the text that shows its drafts
_MIN_DRAFT_PROB = 0.3  # a wrong draft token costs as much as a right one
_ALL = "all three"
_WARM_UP = 8  # tokens
_PROMPTS = (
    "Most w Jaworowcu zamknięty do końca",
    "Jak naprawić przebitą dętkę w rowerze",
    "— Mamo, a dlaczego niebo jest",
    "Wczoraj wieczorem w domu kultury",
    "Старий млин у Долинівці перетворили на",
    "Як залатати велосипедну камеру в дорозі",
    "Негода на Приліщині: синоптики радять не",
    "Учора ввечері в міській бібліотеці",
)


@click.command()
@click.option("--max-tokens", type=click.IntRange(8), default=64, show_default=True, help="Tokens for each prompt.")
@click.option("--keep", type=click.Path(path_type=Path), metavar="DIR", help="Keep the dictionary there.")
@guarded
def demo(max_tokens: int, keep: Path | None) -> None:
    """Show what spectool does, offline, in less than a minute.

    Builds a dictionary from the bundled texts, shows a text with its drafts, and counts the passes that each drafter
    saves. The bundled models are tiny and know these texts by heart, so the figures show that everything works; they
    say nothing about your model.

    \b
    Example:
        spectool demo --keep ./demo
    """
    with tempfile.TemporaryDirectory() as scratch:
        path = (keep or Path(scratch)) / "demo.dict"
        say("building a dictionary from the bundled texts")
        _build_dictionary(path)
        _compare(path, max_tokens)


def _build_dictionary(path: Path) -> None:
    from spectool.build.corpus_reading import quiet
    from spectool.build.counting.options import CountOptions
    from spectool.build.dictionary.backoff_stage import count_and_build
    from spectool.build.dictionary.options import BackoffOptions
    from spectool.corpora import open_corpus, sample_path
    from spectool.runtime.demo_models import demo_path
    from spectool.tokenization.opening import open_tokenizer

    texts, target = open_corpus(str(sample_path("pl").parent)), open_tokenizer(demo_path("target"))
    # The models know the texts by heart: what occurred once is nearly as sure as what occurred often.
    options = BackoffOptions(discount=0.3)
    built = count_and_build(target, texts, path, options, CountOptions(min_count=1), quiet)
    click.echo(f"dictionary: {built.statistics['entries']:,} entries, {built.total_bytes:,} bytes")


def _compare(path: Path, max_tokens: int) -> None:
    """Show one text with its drafts, then generate all texts without drafts and with each drafter."""
    from spectool.measure.bench.timing import pass_cost
    from spectool.runtime.demo_models import demo_path
    from spectool.runtime.draft_length.controller import Controller
    from spectool.runtime.loading import load_drafter, load_model

    target, tokenizer = load_model(str(demo_path("target")))
    dictionary, draft = {"dictionary": path}, {"draft_model": load_model(str(demo_path("draft")))}
    sources: dict[str, dict[str, Any]] = {
        "dictionary": {**dictionary, "history": False},
        "history": {},
        "draft model": {**draft, "history": False},
        _ALL: {**dictionary, **draft},
    }
    drafters = {
        name: load_drafter(tokenizer, min_probability=_MIN_DRAFT_PROB, **given) for name, given in sources.items()
    }
    _show_drafts(target, tokenizer, drafters[_ALL], min(max_tokens, _SHOWN_TOKENS))

    say(f"\ngenerating {len(_PROMPTS)} texts of at most {max_tokens} tokens, with each drafter and without")
    plain, automatic = _Texts(None, 0), _Texts(drafters[_ALL], Controller())
    drafted = {name: _Texts(drafter, _DRAFT_TOKENS) for name, drafter in drafters.items()}
    every = [plain, automatic, *drafted.values()]
    for one in every:
        one.add(target, tokenizer, _PROMPTS[-1], _WARM_UP)
        one.clear()
    for number, prompt in enumerate(_PROMPTS):
        first = number % len(every)  # another one for each text, so that a busy moment does not always slow the same
        for one in every[first:] + every[:first]:
            one.add(target, tokenizer, prompt, max_tokens)
    rows = [
        [name, f"{one.passes}", f"{1 - one.passes / plain.passes:.0%}", f"{one.tokens / one.passes:.2f}"]
        for name, one in {"none": plain, **drafted, f"{_ALL}, auto": automatic}.items()
    ]
    click.echo(f"\n{table(['drafter', 'passes', 'saved', 'tokens per pass'], rows)}\n")
    pairs = [(text, mine) for one in every[1:] for text, mine in zip(plain.texts, one.texts, strict=True)]
    click.echo(f"output that differs from plain decoding: {sum(text != mine for text, mine in pairs)} of {len(pairs)}")
    cost = pass_cost(target, _DRAFT_TOKENS + 1)
    click.echo(
        f"\nThe table drafts {_DRAFT_TOKENS} tokens in every pass, except its last row: with the default, auto, "
        f"spectool drafts only while its own\nmeasurements say that it pays. That took {automatic.seconds:.1f} s, and "
        f"{plain.seconds:.1f} s without drafts. A pass over {_DRAFT_TOKENS + 1} tokens of this tiny model takes\n"
        f"{cost:.1f} times as long as one over a single token on this machine. On a GPU it takes little longer than "
        "one, so passes\nsaved are time saved; on a CPU it also depends on the BLAS library."
    )


def _show_drafts(target: Any, tokenizer: Any, drafter: Any, max_tokens: int) -> None:
    from spectool.commands.display import COLOURS, MARKS, Display, legend
    from spectool.runtime.decoding.streaming import encode_prompt, stream_generate

    prompt = _PROMPTS[0]
    styles = COLOURS if sys.stdout.isatty() else MARKS
    encoded = encode_prompt(tokenizer, prompt)
    display = Display(lambda tokens: str(tokenizer.decode(list(tokens))), encoded, styles)
    click.echo(
        f"\nThe target model continues a text, and each token shows what became of its draft:\n{legend(styles)}\n"
    )
    click.echo(click.style(prompt, bold=True), nl=False)
    for _ in stream_generate(
        target,
        tokenizer,
        encoded,
        drafter=drafter,
        num_draft_tokens=_DRAFT_TOKENS,
        max_tokens=max_tokens,
        on_cycle=lambda cycle: click.echo(display.render(cycle), nl=False),
    ):
        pass
    click.echo(display.finish())


class _Texts:
    """What one drafter has generated so far with one draft length, or plain decoding."""

    def __init__(self, drafter: Any, num_draft_tokens: Any) -> None:
        self._drafting = {"drafter": drafter, "num_draft_tokens": num_draft_tokens}
        self.clear()

    def clear(self) -> None:
        """Forget what was generated."""
        self.texts: list[str] = []
        self.tokens = self.passes = 0
        self.seconds = 0.0

    def add(self, target: Any, tokenizer: Any, prompt: str, max_tokens: int) -> None:
        """Continue one more prompt."""
        from spectool.runtime.decoding.streaming import stream_generate

        began = time.perf_counter()
        responses = list(stream_generate(target, tokenizer, prompt, max_tokens=max_tokens, **self._drafting))
        self.seconds += time.perf_counter() - began
        self.texts.append("".join(response.text for response in responses))
        self.tokens += responses[-1].drafting.tokens
        self.passes += responses[-1].drafting.passes
