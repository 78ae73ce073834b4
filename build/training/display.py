"""What a training shows while it runs: a progress bar in a terminal; elsewhere a line for every measurement."""

from types import TracebackType
from typing import Any

from tqdm import tqdm

from spectool.artifacts.console import say
from spectool.build.training.curve import Point


class Display:
    """Shows the steps of one training.

    Attributes:
        last: The latest step that was shown, if any.
    """

    def __init__(self, steps: int, what: str, first: bool = True) -> None:
        """Show nothing yet.

        Args:
            steps: Of the whole training.
            what: The bar's title.
            first: Whether this process is the one that shows.
        """
        self.last: Point | None = None
        self._steps, self._what, self._first = steps, what, first
        self._begun: tuple[int, float] = (0, 0.0)
        self._bar: tqdm[Any] | None = None
        self._measured = ""

    def __enter__(self) -> "Display":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leave the bar as it is."""
        if self._bar is not None:
            self._bar.close()

    def show(self, point: Point, measured: str = "") -> None:
        """Show a step, and what was measured after it."""
        if self.last is None:
            self._begin(point)
        self.last = point
        self._measured = f", {measured}" if measured else self._measured
        figures = f"{point.loss:.3f} nats/token{self._measured}"
        step, seconds = self._begun
        left = ""
        if point.step > step:
            step_tokens = point.tokens / point.step
            speed = (point.step - step) * step_tokens / (point.seconds - seconds)
            figures += f", {speed:,.0f} tokens/s"
            left = f", {(self._steps - point.step) * step_tokens / speed / 60:.1f} min left"
        if self._bar is not None and not self._bar.disable:
            self._bar.set_postfix_str(figures, refresh=False)
            self._bar.update()
            if point.step == self._steps:
                self.close()
        elif self._first and measured:
            say(f"step {point.step:,} of {self._steps:,}: {figures}{left}")

    def _begin(self, point: Point) -> None:
        self._begun = (point.step, point.seconds)
        if self._first:
            self._bar = tqdm(
                total=self._steps, initial=point.step - 1, desc=self._what, unit=" steps", disable=None, smoothing=0.05
            )
