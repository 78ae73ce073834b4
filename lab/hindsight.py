"""What the best choices in hindsight would have made of saved texts, and what a drafter makes of them.

A text is saved with what each member of a drafter proposes at each of its positions, so any choice of member and length
can be replayed without a model, on a machine that takes exactly the seconds that it is said to take.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import NamedTuple

from spectool.runtime.draft_length.controller import Controller
from spectool.runtime.drafters.drafter import Drafter, Proposal, accepted_length

LONGEST = 16  # draft tokens in a cycle


class Saved(NamedTuple):
    """A text, and what members propose on the way."""

    prompt: list[int]
    output: list[int]
    proposals: Mapping[str, Sequence[Proposal]]  # by member, at each position of the output


class Machine(NamedTuple):
    """What it takes.

    Attributes:
        passes: Seconds of a target pass by rows.
        drafts: Seconds of a draft token, by member; look-ups are not in it.
        reading: Seconds of a draft model for each token that it has yet to read.
        noise: Standard deviation of the logarithm of a pass time as it is measured; one in a hundred is ten times as
            long.
    """

    passes: Callable[[int], float]
    drafts: Mapping[str, float]
    reading: float = 0.0
    noise: float = 0.0


def record(prompt: Sequence[int], output: Sequence[int], members: Mapping[str, Drafter], length: int) -> Saved:
    """Ask members for ``length`` tokens at every position of a text."""
    found: dict[str, list[Proposal]] = {name: [] for name in members}
    for name, drafter in members.items():
        drafter.start(prompt)
        for token in output:
            found[name].append(drafter.propose(length).cut(length))
            drafter.commit([token])
    return Saved(list(prompt), list(output), found)


def best_seconds(text: Saved, machine: Machine, members: Iterable[str]) -> float:
    """The least time in which a text can be decoded, if member and length of each cycle are chosen knowing all of it.

    A look-up may continue a model's guess. A model reads the prompt if it is used at all.
    """
    members = list(members)
    models = [name for name in members if name in machine.drafts]
    look_ups = [name for name in members if name not in machine.drafts]
    end, output = len(text.output), text.output
    left = [0.0] * (end + LONGEST + 2)  # least seconds from each position on
    right = {
        name: [accepted_length(each.tokens, output[at:]) for at, each in enumerate(text.proposals[name])]
        for name in members
    }

    def after(name: str, at: int, begun: int, seconds: float) -> float:
        """The least seconds of a cycle with ``begun`` tokens before this member's, up to the end."""
        most = min(right[name][at + begun], LONGEST - begun) if at + begun < end else 0
        return min(seconds + machine.passes(begun + k + 1) + left[at + begun + k + 1] for k in range(most + 1))

    for at in reversed(range(end)):
        choices = [machine.passes(1) + left[at + 1], *(after(name, at, 0, 0.0) for name in look_ups)]
        for name in models:
            for k in range(1, min(right[name][at], LONGEST) + 1):
                drafting = k * machine.drafts[name]
                choices.append(drafting + machine.passes(k + 1) + left[at + k + 1])
                choices += [after(other, at, k, drafting) for other in look_ups]
        left[at] = min(choices)
    if not models:
        return left[0]
    return min(left[0] + machine.reading * len(text.prompt), best_seconds(text, machine, look_ups))


class Clock:
    """The time on a simulated machine."""

    now = 0.0

    def __call__(self) -> float:
        """Seconds."""
        return self.now


class SavedMember(Drafter):
    """A member that proposes what was saved, in the time that the machine takes."""

    def __init__(self, name: str, machine: Machine, clock: Clock) -> None:
        """Propose what member ``name`` has proposed."""
        self.name, self.costs_a_pass = name, name in machine.drafts
        self._machine, self._clock, self._at, self._missed = machine, clock, 0, 0
        self.text = Saved([], [], {})

    def start(self, prompt: Sequence[int]) -> None:
        """Begin, or continue, the text."""
        self._at, self._missed = len(prompt) - len(self.text.prompt), len(prompt)

    def propose(self, limit: int) -> Proposal:
        """What was saved, after the time that it takes."""
        proposal = self._saved(self._at, limit)
        if self.costs_a_pass:
            each = max(1, len(proposal.tokens)) * self._machine.drafts[self.name]
            self._clock.now += each + self._machine.reading * self._missed
            self._missed = 0
        return proposal

    def extend(self, tokens: Sequence[int], limit: int) -> Proposal:
        """What was saved for the place after ``tokens``, if the text has them."""
        end = self._at + len(tokens)
        right = list(tokens) == self.text.output[self._at : end]
        return self._saved(end, limit) if right else Proposal((), self.name)

    def commit(self, tokens: Sequence[int]) -> None:
        """Continue in the text."""
        self._at += len(tokens)
        self._missed += len(tokens)

    def _saved(self, at: int, limit: int) -> Proposal:
        saved = self.text.proposals[self.name]
        return saved[at].cut(limit)._replace(source=self.name) if at < len(saved) else Proposal((), self.name)


def play(
    texts: Iterable[Saved], drafter: Drafter, machine: Machine, clock: Clock, controller: Controller, seed: int = 0
) -> list[float]:
    """Seconds that each text takes with a drafter of `SavedMember`, one after the other, as in a session."""
    rng, seconds = Random(seed), list[float]()
    for text in texts:
        began, at, pending = clock.now, 0, list[int]()
        for member in getattr(drafter, "drafters", (drafter,)):
            if isinstance(member, SavedMember):
                member.text = text
        controller.begin(len(text.prompt))
        drafter.costs = controller
        drafter.start(text.prompt)
        while at < len(text.output):
            length, before, proposal = min(controller.choose(), len(text.output) - at - 1), clock.now, Proposal((), "")
            if length:
                if pending:
                    drafter.commit(pending)
                pending, proposal = [], drafter.propose(length)
            drafting, count = clock.now - before, len(proposal.tokens)
            accepted = accepted_length(proposal.tokens, text.output[at:])
            committed = text.output[at : at + accepted + 1]
            clock.now += machine.passes(count + 1)
            pending += committed
            if length:
                drafter.commit(pending)
                pending = []
            disturbed = rng.lognormvariate(0, machine.noise) * (10 if machine.noise and rng.random() < 0.01 else 1)
            controller.learn(
                asked=length > 0,
                proposed=count,
                committed=len(committed),
                draft_seconds=drafting if length else None,
                pass_seconds=machine.passes(count + 1) * disturbed,
            )
            at += len(committed)
        seconds.append(clock.now - began)
    return seconds
