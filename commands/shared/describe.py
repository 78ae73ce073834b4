"""Errors of runs that lack a figure."""

from collections.abc import Iterator
from contextlib import contextmanager

from spectool import ArtifactError, SpectoolError


@contextmanager
def needing_figures(whose: str) -> Iterator[None]:
    """Turn errors of missing figures into one that says ``whose`` they are.

    Raises:
        ArtifactError: A figure is missing, or of another type.
    """
    try:
        yield
    except SpectoolError:
        raise
    except Exception as error:  # templates have errors of their own
        reason = f"{type(error).__name__}: {error}"
        raise ArtifactError(
            f"{whose} lacks a figure or has one of the wrong type ({reason}). Build it again"
        ) from error
