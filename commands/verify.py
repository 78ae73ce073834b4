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
        spectool verify pl.dict qwen-bielik.align pl.counts
    """
    found: list[dict[str, Any]] = []
    for path in paths:
        facts: dict[str, Any] = {"path": str(path)}
        found.append(facts)
        try:
            _verify(path, facts)
            if not as_json:
                size = f"{facts['bytes']:,} bytes"
                click.echo(f"{facts['path']}: whole ({facts['format']} {facts['version']}, {size})")
            facts["whole"] = True
        except (SpectoolError, OSError) as error:
            if click.get_current_context().find_root().params.get("debug"):
                raise
            facts |= {"whole": False, "error": in_a_line(error)}
            if not as_json:
                say(f"Error: {facts['error']}")
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False, indent=1))
    if not all(facts["whole"] for facts in found):
        sys.exit(1)


def _verify(path: Path, facts: dict[str, Any]) -> None:
    """Check the artifact at ``path``, and add to ``facts`` what it is.

    Raises:
        SpectoolError: The first thing that is wrong.
    """
    from spectool.artifacts.artifact import verify_artifact
    from spectool.artifacts.default_paths import find_artifact
    from spectool.build.alignment.check import require_checked

    path = find_artifact(path)
    facts["path"] = str(path)
    manifest = verify_artifact(path).manifest
    facts |= {"format": manifest.format, "version": manifest.version, "bytes": path.stat().st_size}
    if manifest.format == "spectool-alignment":
        require_checked(path, manifest, say)
