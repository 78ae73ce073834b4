"""Where the time of a cycle goes: to the drafter and to the target's pass.

    begin      propose      pass_begins      verify      pass_ends

A pass that began before the token of the pass before it was read is measured from the end of that pass, so that it
includes what the caller did meanwhile.
"""

from time import perf_counter


class CycleTimer:
    """Measures the latest cycle of one text.

    Attributes:
        begun: Whether the pass of this cycle, and after `pass_ends` that of the next one, began ahead of its cycle.
        was_begun: Whether the pass of this cycle did.
        draft_seconds: Time of the drafter.
        pass_seconds: Time of the target, from the proposal to the committed tokens.
        pass_is_typical: Whether ``pass_seconds`` is what such a pass takes. MLX limits what is under way, so handing
            over a pass can last until the one before it is done. Then the first of several passes begun ahead seems too
            long, and the last one too short.
    """

    def __init__(self) -> None:
        self.begun = self.was_begun = self.pass_is_typical = False
        self.draft_seconds = self.pass_seconds = 0.0
        self._began = self._pass_from = 0.0

    def begin(self) -> None:
        """Begin a cycle."""
        self._began = perf_counter()

    def pass_begins(self) -> None:
        """End the time of the drafter; the target's begins, unless the pass is under way already."""
        now = perf_counter()
        self.draft_seconds = now - self._began
        if not self.begun:
            self._pass_from = now

    def pass_ends(self, begins: bool) -> None:
        """End the time of the target. ``begins`` says that the next pass is under way."""
        began, self._pass_from = self._pass_from, perf_counter()
        self.pass_seconds = self._pass_from - began
        self.pass_is_typical, self.was_begun, self.begun = self.begun == begins, self.begun, begins
