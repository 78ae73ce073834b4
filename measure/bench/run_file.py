"""A run on disk: a folder with ``run.jsonl``, and ``report.md`` once all of it is measured.

The first line of ``run.jsonl`` is a `Header`. Every further line is a `Block`, which is one prompt at one temperature,
decoded by mlx-lm's own loop and in every configuration. A block is appended when all of it is measured, so what a
killed run leaves can be resumed, and a last line without its end was being written. Files may come from strangers:
every line is checked before it is used.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from filelock import FileLock, Timeout
from pydantic import Field, NonNegativeInt, PositiveInt, ValidationError, model_validator

from spectool import ArtifactError
from spectool.artifacts.atomic import explain_full_disk
from spectool.artifacts.default_paths import find_artifact
from spectool.measure.checked import Checked, Several, problems

RUN_FILE, PAGE = "run.jsonl", "report.md"
PLAIN = "plain"  # the drafter of plain decoding
MOST_DRAFT_TOKENS = 64  # in a cycle
MOST_TOKENS = 1 << 16  # of an output
_LOCK = "lock"
_LONGEST_LINE = 1 << 24  # bytes
_SHORTEST, _LONGEST = 1e-9, 1e9  # seconds of decoding, so that all figures are finite

_Text = Annotated[str, Field(max_length=4096)]
_Count = Annotated[int, Field(ge=0, lt=1 << 63)]
_Id = Annotated[int, Field(ge=0, lt=1 << 31)]
_Draft = Annotated[int, Field(ge=0, le=MOST_DRAFT_TOKENS)]
_Seconds = Annotated[float, Field(ge=0, le=_LONGEST)]
_Temperature = Annotated[float, Field(ge=0, le=1000)]


class DrafterSpec(Checked):
    """What drafts."""

    dictionaries: Annotated[tuple[_Text, ...], Field(strict=False)] = ()  # files or names
    history: bool = False
    draft_model: _Text | None = None  # directory or hub id
    alignment: _Text | None = None  # of its tokenizer with the target's
    verify: Literal["exact", "rejection"] | None = None  # as for `spectool generate`; None for its default

    @property
    def artifacts(self) -> list[Path]:
        """The paths of its artifacts."""
        found = [find_artifact(Path(name), ".dict") for name in self.dictionaries]
        return found if self.alignment is None else [*found, find_artifact(Path(self.alignment), ".align")]


class Options(Checked):
    """What a run measures."""

    model: _Text  # directory or hub id of the target
    drafters: Annotated[dict[_Text, DrafterSpec], Field(min_length=1)]  # by the name that tables have
    prompts: Several[_Text]  # sources, as `load_prompts` takes them
    count: PositiveInt | None = None  # total number of prompts
    window: NonNegativeInt = 0  # tokens of a prompt from a corpus; 0 for whole documents
    num_draft_tokens: Several[Annotated[int, Field(ge=1, le=MOST_DRAFT_TOKENS)] | None] = (None,)  # None for automatic
    tokens: Annotated[int, Field(ge=1, le=MOST_TOKENS)] = 128  # maximum number after each prompt
    temperatures: Several[_Temperature] = (0.0,)  # 0 takes the most probable tokens
    seed: NonNegativeInt = 0  # of the order in a block, and of sampling
    ignore_eos: bool = False  # go on after the model ends its text

    @property
    def configurations(self) -> list[tuple[str, int | None]]:
        """Drafter and draft length of every generation of a block, plain decoding first."""
        return [(PLAIN, 0), *product(self.drafters, self.num_draft_tokens)]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if PLAIN in self.drafters:
            raise ValueError(f"drafters: expected other names than {PLAIN}, which is plain decoding")
        return self


class Header(Checked):
    """What a run measures, and what its figures depend on."""

    format: Literal["spectool-bench"] = "spectool-bench"
    version: Literal[1] = 1
    began: _Text  # date and time
    options: Options
    identity: dict[_Text, _Text | None]  # hashes of prompts, models and artifacts, and versions
    machine: dict[_Text, _Text | _Count]
    weight_bytes: dict[_Text, _Count]  # of the target and the draft models, by their paths

    def key(self) -> dict[str, Any]:
        """What has to be the same for a run to be resumed."""
        return self.model_dump(mode="json", include={"options", "identity", "machine"})


class Generation(Checked):
    """What a configuration wrote after a prompt, and how long it took."""

    drafter: _Text  # as the options name it, or `PLAIN`
    num_draft_tokens: _Draft | None  # 0 for plain decoding; None if chosen while decoding
    output: Annotated[tuple[_Id, ...], Field(min_length=1, max_length=MOST_TOKENS)]
    proposed: Annotated[tuple[_Draft, ...], Field(max_length=MOST_TOKENS)] = ()  # draft tokens of each cycle
    accepted: Annotated[tuple[_Draft, ...], Field(max_length=MOST_TOKENS)] = ()  # of those
    draft_prompt_seconds: _Seconds = 0.0  # in which the drafter reads the prompt
    decoding_seconds: Annotated[float, Field(ge=_SHORTEST, le=_LONGEST)]  # from the first cycle to the last token
    draft_seconds: _Seconds = 0.0  # of those, in the drafter
    # where the output leaves plain decoding's: distance of the two best logits, in one pass over all before
    gap: Annotated[float, Field(ge=0, le=1e9)] | None = None

    @property
    def tokens(self) -> int:
        """Number of tokens in the output."""
        return len(self.output)

    @property
    def passes(self) -> int:
        """Number of passes of the target after the prompt."""
        return len(self.proposed) or len(self.output)

    @property
    def seconds(self) -> float:
        """Time that counts: the target's reading of the prompt does not, because it is the same for all."""
        return self.draft_prompt_seconds + self.decoding_seconds

    @model_validator(mode="after")
    def _check(self) -> Self:
        pairs = list(zip(self.proposed, self.accepted, strict=False))
        if len(self.proposed) != len(self.accepted) or any(accepted > proposed for proposed, accepted in pairs):
            raise ValueError("expected the accepted draft tokens of each cycle to be among those proposed")
        return self


class Block(Checked):
    """One prompt at one temperature, decoded in every configuration."""

    prompt: _Text  # its name
    source: _Text  # language of a built-in prompt, or corpus
    kind: _Text  # of text
    temperature: _Temperature
    prompt_tokens: _Count
    generations: tuple[Generation, ...]  # in the order in which they ran

    @property
    def plain(self) -> Generation:
        """That of plain decoding."""
        return next(one for one in self.generations if one.drafter == PLAIN)

    def by_configuration(self) -> Mapping[tuple[str, int | None], Generation]:
        """The generations by drafter and draft length."""
        return {(one.drafter, one.num_draft_tokens): one for one in self.generations}

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (PLAIN, 0) not in self.by_configuration():
            raise ValueError("expected a generation by plain decoding, got none")
        for one in self.generations:
            differs = self.temperature == 0 and one.output != self.plain.output
            if differs is (one.gap is None):
                raise ValueError("expected a gap exactly where an output at temperature 0 is not plain decoding's")
        return self


@dataclass(frozen=True)
class Run:
    """What is measured of a run."""

    path: Path
    header: Header
    blocks: list[Block]


def read_run(folder: Path) -> Run:
    """The run in a folder, whole or not.

    Raises:
        ArtifactError: There is none, or a line is damaged.
    """
    run = find_run(folder)
    if run is None:
        raise ArtifactError(f"{folder}: expected a run of `spectool bench` (a folder with {RUN_FILE}), got none")
    return run


def find_run(folder: Path) -> Run | None:
    """The run in a folder, None if nothing is measured there.

    Raises:
        ArtifactError: A line is damaged.
    """
    file = folder / RUN_FILE
    header, blocks = None, dict[tuple[str, float], Block]()
    for number, line in enumerate(_whole_lines(file), 1):
        where = f"{file}, line {number}"
        try:
            if header is None:
                header = Header.model_validate_json(line)
                continue
            block = Block.model_validate_json(line)
            wanted = header.options.configurations
            if len(block.generations) != len(wanted) or block.by_configuration().keys() != set(wanted):
                raise ValueError("expected a generation in every configuration of the header, got others")
            if blocks.setdefault((block.prompt, block.temperature), block) is not block:
                raise ValueError(f"prompt {block.prompt[:60]!r}: expected one block, got two")
        except ValueError as error:
            what = problems(error) if isinstance(error, ValidationError) else str(error)
            remedy = "the run" if header is None else "this line"
            raise ArtifactError(f"{where}: {what}. Remove {remedy}; `spectool bench` measures it again") from error
    return Run(folder, header, list(blocks.values())) if header and blocks else None


def _whole_lines(file: Path) -> Iterator[bytes]:
    """The lines of a file but a last one without its end, none if there is no file."""
    if not file.is_file():
        return
    with file.open("rb") as stream:
        for number, line in enumerate(iter(partial(stream.readline, _LONGEST_LINE + 1), b""), 1):
            if len(line) > _LONGEST_LINE:
                raise ArtifactError(f"{file}, line {number}: expected at most {_LONGEST_LINE:,} bytes, got more")
            if line.endswith(b"\n"):
                yield line


def append(folder: Path, block: Block, header: Header | None = None) -> None:
    """Write a block to the run in a folder and flush it to the disk; a ``header`` begins the run.

    Raises:
        ArtifactError: There is no room.
    """
    records = [block] if header is None else [header, block]
    lines = b"".join(record.model_dump_json().encode() + b"\n" for record in records)
    with explain_full_disk(folder), (folder / RUN_FILE).open("ab" if header is None else "wb") as stream:
        stream.write(lines)
        stream.flush()
        os.fsync(stream.fileno())


def _drop_half_line(file: Path) -> None:
    data = file.read_bytes() if file.exists() else b""
    if (whole := data.rfind(b"\n") + 1) < len(data):
        os.truncate(file, whole)


@contextmanager
def writing(folder: Path) -> Iterator[Run | None]:
    """The run in a folder, in which no other process writes meanwhile; None if nothing is measured there.

    A half-written last line is dropped. If nothing is measured at the end, the folder is removed.

    Raises:
        ArtifactError: Something else is there, a line is damaged, or another process measures there.
    """
    file = folder / RUN_FILE
    others = [each for each in folder.iterdir() if each.name != _LOCK] if folder.is_dir() else [folder]
    if folder.exists() and others and not file.is_file():
        raise ArtifactError(f"{folder}: exists and is not a run of `spectool bench`. Choose another -o")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / _LOCK, blocking=False):
            try:
                _drop_half_line(file)
                yield find_run(folder)
            finally:
                if not file.exists():
                    (folder / _LOCK).unlink(missing_ok=True)
                    with suppress(OSError):
                        folder.rmdir()
    except Timeout as error:
        raise ArtifactError(f"{folder}: another run is measured there. Wait for it, or choose another -o") from error
