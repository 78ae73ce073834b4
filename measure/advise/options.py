"""What to give advice on: the options of ``advise``."""

from dataclasses import dataclass
from pathlib import Path

import click

from spectool.artifacts.console import Finite
from spectool.artifacts.options import option, several

_PATH, _POSITIVE, _BYTES = click.Path(path_type=Path), Finite(0, min_open=True), click.IntRange(1)


@dataclass(frozen=True, kw_only=True)
class AdviceOptions:
    """What is asked; the help of each says what it is."""

    target: str = option(
        str,
        "The target: directory of a model, its tokenizer.json, or hub id.",
        names=("--target", "--model"),
        metavar="T",
    )
    drafts: tuple[str, ...] = several(
        str, "A draft, likewise; may be repeated.", names=("--draft", "--draft-model"), metavar="D"
    )
    dictionaries: tuple[Path, ...] = several(
        _PATH, "A dictionary for the target; may be repeated.", names=("--dict",), metavar="DIR"
    )
    alignments: tuple[Path, ...] = several(
        _PATH, "Of a draft's tokenizer with the target's; may be repeated.", names=("--alignment",), metavar="DIR"
    )
    corpus: str | None = option(str, "Text of the language to generate, as for build-dict.", None, metavar="C")
    language: str | None = option(str, "Its bundled sample: pl, uk, …; pl by default.", None, metavar="L")
    num_draft_tokens: tuple[int, ...] = option(
        click.IntRange(1, 64), "Draft length to consider; may be repeated.", (2, 4, 8), multiple=True, metavar="K"
    )
    acceptance: tuple[float, ...] = several(
        Finite(0, 1), "Share of draft tokens accepted, where you know it; one for each draft.", metavar="A"
    )
    target_bytes: int | None = option(_BYTES, "Weights of the target; by default its files'.", None, metavar="N")
    draft_bytes: tuple[int, ...] = several(_BYTES, "Weights of each draft, likewise.", metavar="N")
    bandwidth: float | None = option(_POSITIVE, "Of the memory; by default a copy is timed.", None, metavar="GB/s")
    memory: float | None = option(_POSITIVE, "By default what the system has.", None, metavar="GB")
    context: int = option(_BYTES, "Tokens that caches hold.", 4096, metavar="N")
    beta: float | None = option(
        Finite(0), "A pass over k drafts takes 1 + B k² plain ones; by default 0.19, of an M2 Pro.", None, metavar="B"
    )
    run: Path | None = option(_PATH, "Take that from a run of `spectool bench` instead.", None, metavar="RUN")  # noqa: RUF009
    measure: bool = option(bool, "Load the models: time passes, replay drafts on what the target writes.", False)
    temp: float = option(Finite(0), "At which it writes then.", 0.0)

    @property
    def lengths(self) -> list[int]:
        """Every draft length once."""
        return list(dict.fromkeys(self.num_draft_tokens))

    def __post_init__(self) -> None:
        """Refuse options that contradict each other.

        Raises:
            click.UsageError: Some do.
        """
        for name, values in (("--draft-bytes", self.draft_bytes), ("--acceptance", self.acceptance)):
            if values and len(values) != len(self.drafts):
                raise click.UsageError(
                    f"{len(values)} {name} for {len(self.drafts)} drafts: give one for each, in their order"
                )
        if self.corpus is not None and self.language is not None:
            raise click.UsageError("--language means its bundled sample: leave it out, or --corpus")
        if sum((self.beta is not None, self.run is not None, self.measure)) > 1:
            raise click.UsageError("--beta, --run and --measure each say what verifying costs: give one of them")
        if self.temp and not self.measure:
            raise click.UsageError("--temp is of the text that the target writes with --measure, which is not given")
