"""What a draft model proposes at each place of a text, recorded once and replayed with any policy, curve and cost.

    text       a  b  c  d  e  f         the model is asked at every place, for each number of tokens
    recorded   bc cx d? ef f? -         what it proposes there, and the passes that this takes
    replayed   a  [b c] x -> d ...      a policy asks where it would, and look-ups take part as they do live

Look-ups take microseconds and are not recorded: what the history has shown depends on where passes begin. A model's
proposal depends on the text alone, but for rounding where two tokens are as good as equal, so it is found by the text.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from spectool.measure.replay import replay
from spectool.runtime.caches.text_cache import AT_ONCE
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.drafters.draft_model import ModelDrafter
from spectool.runtime.drafters.drafter import Drafter, DrafterSet, Proposal
from spectool.runtime.policy.policy import Policy
from spectool.runtime.policy.record import DraftCost
from spectool.runtime.settings import MAX_DRAFT_TOKENS

NO_COST = DraftCost(0.0, 0.0)
"""Of passes that are counted, and whose time does not matter."""


class Text(NamedTuple):
    """Token ids of the target: a prompt, and what a model has written, or might have written, after it."""

    prompt: Sequence[int]
    output: Sequence[int]


class Answer(NamedTuple):
    """What a model proposes when it is asked once, and the passes that this takes."""

    proposal: Proposal
    passes: int


class Recording:
    """The proposals of a draft model at the places of some texts.

    Attributes:
        name: The drafter's name.
        limit: The most tokens that it was asked for.
        texts: What was recorded, each output as far as it was.
        right: Places at which the first token that it proposes is the next one of the text.
    """

    def __init__(self, name: str, limit: int) -> None:
        """Begin an empty recording."""
        self.name, self.limit, self.texts, self.right = name, limit, list[Text](), 0
        self._next: dict[tuple[int, int], int] = {}  # a tree of the texts: place and token -> the place after it
        self._answers: dict[int, list[Answer]] = {}  # by place: for 1, 2, ... tokens, the last one for more as well

    @property
    def places(self) -> int:
        """Places at which the model was asked."""
        return sum(len(text.output) for text in self.texts)

    @property
    def first_right(self) -> float:
        """The share of places at which its first token is right, 0..1."""
        return self.right / max(1, self.places)

    def add(self, text: Text, answers: Sequence[list[Answer]]) -> None:
        """Add what the model proposes at each place of a text; the text ends with the last of them."""
        text = Text(list(text.prompt), list(text.output[: len(answers)]))
        self.texts.append(text)
        place = 0
        for at, token in enumerate([*text.prompt, *text.output], -len(text.prompt)):
            if at >= 0:
                self._answers[place] = answers[at]
                self.right += list(answers[at][-1].proposal.tokens[:1]) == [token]
            place = self._next.setdefault((place, token), len(self._next) + 1)

    def after(self, place: int, tokens: Sequence[int]) -> int:
        """The place that ``tokens`` lead to; 0 is the one before all texts.

        Raises:
            ValueError: No text that was recorded goes on like this.
        """
        for token in tokens:
            if (found := self._next.get((place, token))) is None:
                raise ValueError(f"{self.name}: nothing was recorded of this text from token {token} on")
            place = found
        return place

    def answer(self, place: int, limit: int) -> Answer:
        """What the model proposes at a place if it is asked for at most ``limit`` tokens (>= 1)."""
        answers = self._answers.get(place)
        if answers is None:  # the end of a text
            return Answer(Proposal((), self.name), 1)
        proposal, passes = answers[min(limit, len(answers)) - 1]
        return Answer(proposal.cut(limit), min(passes, limit) if len(answers) == 1 else passes)


class RecordedModel(Drafter):
    """Proposes what was recorded of a model, and counts the passes that the model would make.

    Attributes:
        asked: For each time it was asked, the tokens of the text that it had to read first, and its passes.
    """

    costs_a_pass = True

    def __init__(self, recording: Recording) -> None:
        """Propose as a model did."""
        self.name, self.longest, self.asked = recording.name, recording.limit, list[tuple[int, int]]()
        self._recording, self._passes = recording, 0
        self.start(())

    @property
    def passes(self) -> int:
        """Passes that the model would have made so far."""
        return self._passes

    def start(self, prompt: Sequence[int]) -> None:
        """Begin a text."""
        self._place, self._unread = self._recording.after(0, prompt), len(prompt)

    def commit(self, tokens: Sequence[int]) -> None:
        """Follow the text."""
        self._place, self._unread = self._recording.after(self._place, tokens), self._unread + len(tokens)

    def propose(self, limit: int) -> Proposal:
        """What was recorded."""
        if limit <= 0:
            return Proposal((), self.name)
        answer = self._recording.answer(self._place, limit)
        self._passes += answer.passes
        self.asked.append((self._unread, answer.passes))
        self._unread = 0
        return answer.proposal

    def plain_passes(self, cost: DraftCost) -> float:
        """How many plain passes of the target all of its passes take; the first of each time reads what is unread."""
        return sum(_reading(cost, unread) + cost.token * (passes - 1) for unread, passes in self.asked)


def _reading(cost: DraftCost, tokens: int) -> float:
    """Plain passes of the target that a pass of the draft model over some tokens takes."""
    if cost.curve is not None and tokens <= AT_ONCE:
        return cost.token * cost.curve.seconds(max(1, tokens), 0) / cost.curve.seconds(1, 0)
    return max(cost.token, cost.reading * tokens)


def record(
    texts: Sequence[Text],
    drafter: Drafter,
    limit: int = MAX_DRAFT_TOKENS,
    progress: Callable[[int], object] = lambda tokens: None,
    more: Callable[[], bool] = lambda: True,
) -> Recording:
    """Ask the drafter of a model at every place of some texts, for each number of tokens up to ``limit``.

    Takes a few passes a place, because a draft in other tokens depends on how many are asked for. ``progress`` is
    called with the number of places since the last time, and all ends before a place at which there is no ``more``.
    """
    recording = Recording(drafter.name, limit)
    for text in texts:
        before, answers = list(text.prompt), list[list[Answer]]()
        for token in text.output:
            if not more():
                break
            answers.append(_ask(drafter, before, limit))
            before.append(token)
            progress(1)
        if answers:
            recording.add(text, answers)
    return recording


def _ask(drafter: Drafter, text: Sequence[int], limit: int) -> list[Answer]:
    """What a drafter proposes after a text if it is asked for 1, 2, ... tokens, until more change nothing.

    Drafts in the target's own tokens are the same however many are asked for, so there is one answer.
    """

    def ask(tokens: int) -> Answer:
        drafter.start(text)
        before = drafter.passes
        proposal = drafter.propose(tokens)
        return Answer(Proposal(proposal.tokens, drafter.name, proposal.probabilities), drafter.passes - before)

    most = ask(limit)  # passes for fewer tokens than it has made end earlier than it did by itself
    return [*(() if isinstance(drafter, ModelDrafter) else map(ask, range(1, min(most.passes, limit)))), most]


class Replayed(NamedTuple):
    """What a replay took, in the time of plain passes of the target.

    Attributes:
        counts: Tokens, passes of the target, and drafts.
        checking: Plain passes that the passes of the target take more than as many plain ones.
        drafting: Plain passes that those of the draft model take.
    """

    counts: DraftStatistics
    checking: float
    drafting: float

    @property
    def tokens_per_plain_pass(self) -> float:
        """Tokens in the time of a plain pass: the speed-up."""
        return self.counts.tokens / max(1e-9, self.counts.passes + self.checking + self.drafting)


def play(
    texts: Sequence[Text],
    policy: Policy | int,
    look_ups: Drafter | None = None,
    recording: Recording | None = None,
    cost: DraftCost = NO_COST,
    *,
    context: int = 0,
    progress: Callable[[int], object] = lambda tokens: None,
) -> Replayed:
    """Replay texts with look-ups, a recorded model, or both, which takes what a live replay takes.

    Args:
        texts: What to replay; of a recording, its ``texts``.
        policy: Chooses the drafts by its curve and learns from one text to the next; or the number of draft tokens.
        look_ups: Dictionary and history.
        recording: What a draft model proposes.
        cost: What its passes cost, in plain passes of the target (seconds of the one / seconds of the other).
        context: Tokens before each prompt.
        progress: Called with the number of tokens since the last time.

    Raises:
        ValueError: The recording has other texts, or fewer draft tokens.
    """
    checking, model = 0.0, None if recording is None else RecordedModel(recording)
    if recording is not None:
        if isinstance(policy, int) and policy > recording.limit:
            raise ValueError(f"{recording.name}: recorded up to {recording.limit} draft tokens, asked for {policy}")
        for text in texts:
            recording.after(0, [*text.prompt, *text.output])
    if model is not None and isinstance(policy, Policy):
        policy.record(model.name).begin_model(cost)

    def on_cycle(tokens: int, plain_passes: float) -> None:
        nonlocal checking
        checking += plain_passes - 1.0
        progress(tokens)

    members = [each for each in (look_ups, model) if each is not None]
    outputs, prompts = [text.output for text in texts], [text.prompt for text in texts]
    counts = replay(outputs, DrafterSet(members), policy, on_cycle, prompts, context)
    return Replayed(counts, checking, model.plain_passes(cost) if model is not None else 0.0)


def first_right(texts: Sequence[Text], drafter: Drafter) -> float:
    """The share of places at which the first token that look-ups propose is right, 0..1."""
    right = places = 0
    for text in texts:
        drafter.start(text.prompt)
        for token in text.output:
            right += list(drafter.propose(1).tokens) == [token]
            drafter.commit((token,))
        places += len(text.output)
    return right / max(1, places)
