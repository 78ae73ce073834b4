"""Tables of text."""

from collections.abc import Iterable


def table(header: list[str], rows: Iterable[list[str]]) -> str:
    """Rows in aligned columns, the first to the left and the others to the right."""
    lines = [header, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * width for width in widths])
    shape = "  ".join(f"{{:{'>' if place else '<'}{width}}}" for place, width in enumerate(widths))
    return "\n".join(shape.format(*line).rstrip() for line in lines)
