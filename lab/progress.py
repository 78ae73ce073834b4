"""Bars for what takes long."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm import tqdm


@contextmanager
def progress(title: str, total: float, unit: str) -> Iterator[Callable[[float], object]]:
    """A function to call with the amount done since the last call, which a terminal shows as a bar."""
    with tqdm(total=total, desc=title, unit=f" {unit}", unit_scale=total >= 1000, disable=None) as bar:
        yield bar.update
