"""The command ``verify``."""

import json
import sys
from pathlib import Path
from typing import Any

import click

from spectool import SpectoolError
from spectool.commands.shared.console import in_a_line, say
from spectool.commands.shared.options import command


@command("verify")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path))
def verify(paths: tuple[Path, ...], as_json: bool) -> None:
    """Check artifacts for damage: the checksum of each file, then the rules of its format.

    All of them are checked, even if one is damaged; the exit status is then 1.

    \b
    Example:
        spectool verify pl.dict qwen-bielik.align
    """
    found = [_verified(path) for path in paths]
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False, indent=1))
    for facts in () if as_json else found:
        if facts["whole"]:
            click.echo("{path}: whole ({format} {version}, {bytes:,} bytes)".format_map(facts))
        else:
            say(f"Error: {facts['error']}")
    if not all(facts["whole"] for facts in found):
        sys.exit(1)


def _verified(path: Path) -> dict[str, Any]:
    """What the artifact at ``path`` is, or the first thing that is wrong with it."""
    from spectool.artifacts.artifact import verify_artifact
    from spectool.artifacts.default_paths import find_artifact
    from spectool.build.alignment.check import require_checked

    try:
        path = find_artifact(path)
        manifest = verify_artifact(path).manifest
        if manifest.format == "spectool-alignment":
            require_checked(path, manifest, say)
        size = path.stat().st_size
        return {"path": str(path), "format": manifest.format, "version": manifest.version, "bytes": size, "whole": True}
    except (SpectoolError, OSError) as error:
        if click.get_current_context().find_root().params.get("debug"):
            raise
        return {"path": str(path), "whole": False, "error": in_a_line(error)}
