"""Where the time of a cycle goes: to the drafter, the target's pass, and the caller.

    begin      propose      pass_begins      verify      pass_ends      commit      drafter_ends      learn      end

A pass that began before the token of the pass before it was read is measured from the end of that pass, so that it
includes what the caller did meanwhile.
"""

from time import perf_counter, process_time


class CycleTimer:
    """Measures the latest cycle of one text.

    Attributes:
        begun: Whether the pass of this cycle, and after `pass_ends` that of the next one, began ahead of its cycle.
        draft_seconds: Time of the drafter, in ``propose`` and ``commit``.
        pass_seconds: Time of the target, from the proposal to the committed tokens.
        processor_seconds: Processor time of this process meanwhile.
        pass_is_typical: Whether ``pass_seconds`` is what such a pass takes. MLX limits what is under way, so handing
            over a pass can last until the one before it is done. Then the first of several passes begun ahead seems too
            long, and the last one too short.
        caller_seconds: Time between the previous cycle and this one; None where a pass was under way.
    """

    def __init__(self) -> None:
        self.begun = self.pass_is_typical = False
        self.draft_seconds = self.pass_seconds = self.processor_seconds = 0.0
        self.caller_seconds: float | None = None
        self._began = 0.0
        self._ended: float | None = None
        self._pass_from = 0.0, 0.0  # when the pass began, or what counts as that, and the processor time until then

    def begin(self) -> None:
        """Begin a cycle."""
        self._began = perf_counter()
        self.caller_seconds = None if self.begun or self._ended is None else self._began - self._ended

    def pass_begins(self) -> None:
        """End the time of the drafter; the target's begins, unless the pass is under way already."""
        now = perf_counter(), process_time()
        self.draft_seconds = now[0] - self._began
        if not self.begun:
            self._pass_from = now

    def pass_ends(self, begins: bool) -> None:
        """End the time of the target; the drafter's goes on. ``begins`` says that the next pass is under way."""
        (began, used), self._pass_from = self._pass_from, (perf_counter(), process_time())
        self.pass_seconds, self.processor_seconds = self._pass_from[0] - began, self._pass_from[1] - used
        self.pass_is_typical, self.begun = self.begun == begins, begins

    def drafter_ends(self) -> None:
        """End the time of the drafter."""
        self.draft_seconds += perf_counter() - self._pass_from[0]

    def end(self) -> None:
        """End the cycle; the caller's time begins."""
        self._ended = perf_counter()
