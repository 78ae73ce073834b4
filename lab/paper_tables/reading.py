"""Reading a run of ``spectool bench`` from its folder."""

import json
from pathlib import Path
from typing import Any

from spectool import ArtifactError
from spectool.measure.bench.results import RUN_FILE, Block, DrafterSpec, Generation, Options, Run


def read_run(folder: Path) -> Run:
    """The run in a folder.

    Raises:
        ArtifactError: There is none, or not as this version writes it.
    """
    file, blocks = folder / RUN_FILE, list[Block]()
    try:
        with file.open(encoding="utf-8") as stream:
            facts: dict[str, Any] = json.loads(next(stream, ""))
            for line in map(json.loads, stream):
                made = [_generation(**one) for one in line.pop("generations")]
                blocks.append(Block(generations=tuple(made), **line))
        options = facts.pop("options")
        drafters = {name: DrafterSpec(**spec) for name, spec in options.pop("drafters").items()}
        return Run(folder, Options(drafters=drafters, **options), facts, blocks)
    except OSError as error:
        raise ArtifactError(f"{folder}: expected a run of `spectool bench`, a folder with {RUN_FILE}") from error
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise ArtifactError(f"{file}: not as this version of `spectool bench` writes it. Measure again") from error


def _generation(**values: Any) -> Generation:
    made: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    return Generation(**made)
