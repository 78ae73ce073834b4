"""Figures that say where they come from."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """A number and its origin."""

    value: float | None  # the number; None where it is not known
    origin: str  # ``measured``, ``stated``, ``assumed``, ``computed`` or ``unknown``, and after a colon how

    @property
    def kind(self) -> str:
        """The first word of the origin."""
        return self.origin.partition(":")[0]

    @property
    def how(self) -> str:
        """The rest of it."""
        return self.origin.partition(": ")[2]


def measured(value: float, how: str) -> Figure:
    """Return a number found by looking, counting or timing here."""
    return Figure(value, f"measured: {how}")


def stated(value: float) -> Figure:
    """Return a number that the user gave."""
    return Figure(value, "stated")


def assumed(value: float, why: str) -> Figure:
    """Return a number that nobody has looked at here."""
    return Figure(value, f"assumed: {why}")


def computed(value: float, how: str) -> Figure:
    """Return a number that follows from others."""
    return Figure(value, f"computed: {how}")


def unknown(why: str) -> Figure:
    """Return no number."""
    return Figure(None, f"unknown: {why}")
