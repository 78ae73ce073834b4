"""What the best choices in hindsight would have made of saved texts, and what a drafter makes of them.

A text is saved with what each member of a drafter proposes at each of its positions, so any choice of member and length
can be replayed without a model, on a machine that takes exactly the seconds that it is said to take.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import NamedTuple

from spectool.runtime.drafters.drafter import Drafter, Proposal, accepted_length
from spectool.runtime.drafters.drafter_slot import DrafterSlot, TextDrafters
from spectool.runtime.policy.curve import ASSUMED, PassCurve
from spectool.runtime.policy.policy import Policy
from spectool.runtime.policy.record import DraftCost

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


class SavedMember(Drafter):
    """A member that proposes what was saved, and counts the passes and the reading that this takes."""

    def __init__(self, name: str, costs_a_pass: bool) -> None:
        """Propose what member ``name`` has proposed."""
        self.name, self.costs_a_pass = name, costs_a_pass
        self.made = self.read = self._missed = self._at = 0
        self.text = Saved([], [], {})

    @property
    def passes(self) -> int:
        """Draft tokens so far."""
        return self.made

    def start(self, prompt: Sequence[int]) -> None:
        """Begin, or continue, the text."""
        self._at, self._missed = len(prompt) - len(self.text.prompt), len(prompt)

    def propose(self, limit: int) -> Proposal:
        """What was saved."""
        proposal = self._saved(self._at, limit)
        if self.costs_a_pass:
            self.made, self.read = self.made + max(1, len(proposal.tokens)), self.read + self._missed
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


def policy_for(machine: Machine, wrong: float = 0.0, seed: int = 0, *, assumed: bool = False) -> Policy:
    """A policy that knows what a machine's passes cost, each figure ``wrong`` by so much at random.

    Where nothing was measured, it takes the ``assumed`` curve, and draft models to cost a fifth of a plain pass.
    """
    rng = Random(seed)
    if assumed:
        policy = Policy(ASSUMED)
        for name in machine.drafts:
            policy.records[name].begin_model(DraftCost(0.2, 0.2 / 8))
        return policy

    def about(cost: float) -> float:
        return cost * rng.lognormvariate(0, wrong)

    points = {rows: about(machine.passes(rows)) for rows in (1, 2, 3, 4, 5, 6, 8, 12, 17)}
    policy = Policy(PassCurve({0: points}, {0: points[1]}))
    for name, cost in machine.drafts.items():
        policy.records[name].begin_model(DraftCost(about(cost), about(machine.reading)))
    return policy


def play(
    texts: Iterable[Saved],
    names: Sequence[str],
    machine: Machine,
    policy: Policy,
    seed: int = 0,
    hot: Callable[[int, int], float] = lambda rows, at: 1.0,
) -> list[float]:
    """Seconds that each text takes with the members of these names, one after the other, as in a session.

    ``hot`` says how many times as long a pass over some rows takes after some tokens of the session.
    """
    rng, seconds, written = Random(seed), list[float](), 0
    members = [SavedMember(name, name in machine.drafts) for name in names]
    for text in texts:
        spent, at = 0.0, 0
        for member in members:
            member.text = text
        drafters = TextDrafters([DrafterSlot(member) for member in members])
        drafters.start(text.prompt)
        drafters.context = 0  # the machine's curve has one context
        while at < len(text.output):
            before = [(member.made, member.read) for member in members]
            choice = policy.choose([(drafters, min(policy.longest, len(text.output) - at - 1))])
            count = len(choice.proposals[0].tokens)
            accepted = accepted_length(choice.proposals[0].tokens, text.output[at:])
            committed = text.output[at : at + accepted + 1]
            taken = machine.passes(count + 1) * hot(count + 1, written)
            spent += taken
            for member, (made, read) in zip(members, before, strict=True):
                cost = machine.drafts.get(member.name, 0.0)
                spent += (member.made - made) * cost + (member.read - read) * machine.reading * bool(cost)
            policy.learn(choice, [committed])
            drafters.follow(committed)
            disturbed = rng.lognormvariate(0, machine.noise) * (10 if machine.noise and rng.random() < 0.01 else 1)
            policy.observe(count + 1, taken * disturbed, 0, drafted=count > 0)
            at, written = at + len(committed), written + len(committed)
        policy.end(drafters)
        seconds.append(spent)
    return seconds
