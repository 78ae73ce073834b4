"""Which draft model for which model and language, or none: a table, and what its rows promise on a machine.

    share of first guesses that are right   drafts.toml, measured
    what a pass of the target costs         as `doctor` has measured it, or as others have published it of the chip
    what a draft token costs                by bytes, bandwidth and a time for each pass

Where each token is right with probability a, k drafts that cost c plain passes each make 1 + a + ... + a^k tokens in
the time of curve(k + 1) + k c plain passes (Leviathan et al. 2023, section 3.3). The best k gives the speed.
"""

import math
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from spectool import SpectoolError
from spectool.measure.machines import Machine, has_experts, machines_for
from spectool.runtime.machine import weight_bytes
from spectool.runtime.policy.curve import PassCurve
from spectool.tokenization.hub_names import cached_snapshot

_BYTES = 2  # of a weight, as drafts are published
_MOST = 8  # draft tokens
PASSES = 1.6  # of a draft model for each token in the target's ids: some are cut, or settle the one before
_WORTH = 1.03  # times as fast as look-ups, in the middle of both ranges
LARGEST = 0.5  # of the target's bytes or weights


class Draft(NamedTuple):
    """A draft model."""

    name: str
    ids: Sequence[str]  # on the hub; the first is advised, all are recognised
    megabytes: int  # to download
    pruned: float  # billions of weights, with the ids of one language
    layers: int
    licence: str
    accept: bool  # whether the licence has to be accepted on the hub
    right: Mapping[str, float]  # share of first guesses by language

    @property
    def weights(self) -> float:
        """Bytes that a pass reads once the model is pruned, which is also the memory that it takes."""
        return 1e9 * _BYTES * self.pruned


class Advice(NamedTuple):
    """What a draft model is expected to bring, at least and at most."""

    draft: Draft | None  # the best one for the language; None if none in the table is known to write it
    speed: tuple[float, float] = (1.0, 1.0)  # with it, in times of plain decoding
    look_ups: tuple[float, float] = (1.0, 1.0)  # with dictionary and history alone, likewise
    cost: tuple[float, float] = (0.0, 0.0)  # of a draft token, in plain passes
    pays: bool = False  # whether it is expected to be worth having

    def promise(self, language: str) -> str:
        """Whether one pays, with figures."""
        if self.draft is None:
            return f"No draft model that is known to write {language} is small enough for this one. Look-ups need none."
        name = self.draft.name
        no = f"No draft model is expected to pay here: with {name}, the best for {language}, this model would be"
        said = f"{name} is expected to pay:" if self.pays else no
        faster, alone, cost = ("{:.2f} to {:.2f}".format(*ends) for ends in (self.speed, self.look_ups, self.cost))
        said += f" {faster} times as fast, with look-ups alone {alone}; a draft token is taken to cost {cost} of your"
        return f"{said} model's passes."

    def sentence(self, model: str, language: str) -> str:
        """Whether it pays, and how to set it up if it does."""
        if (draft := self.draft) is None or not self.pays:
            return self.promise(language)
        licence = f"accept its licence first: {draft.licence}" if draft.accept else f"licence: {draft.licence}"
        command = f"spectool setup {shlex.quote(model)} --language {language} --draft-model {draft.ids[0]}"
        return (
            f"{self.promise(language)} It takes {draft.megabytes} MB to download ({licence}) and "
            f"{draft.weights / 1e6:.0f} MB of memory. To set it up: {command}"
        )


@cache
def table() -> tuple[list[Draft], dict[str, float]]:
    """The draft models, and how often look-ups are right by language."""
    found = tomllib.loads(Path(__file__).with_name("drafts.toml").read_text(encoding="utf-8"))
    return [Draft(**each) for each in found["drafts"]], found["look_ups"]


def cached_draft(model: Any, language: str) -> tuple[str, Advice]:
    """The hub id of the best draft model for a language in the user's Hugging Face cache, and what it promises.

    Raises:
        SpectoolError: None of the table is there; says how to fetch the best one. Or nothing is known of what passes
            cost here.
    """
    drafts, _ = table()
    names = {each.name: name for each in drafts for name in each.ids if cached_snapshot(name, "*.safetensors")}
    found = advise(model, language, [draft for draft in drafts if draft.name in names])
    if found.draft is None:
        best = advise(model, language).draft
        then = f"fetch {best.name}, {best.megabytes} MB: hf download {best.ids[0]}" if best else "name one, or none"
        raise SpectoolError(
            f"--draft-model auto: your Hugging Face cache has no draft model that is known to write {language} and is "
            f"small enough for this model. To go on, {then}"
        )
    return names[found.draft.name], found


def expected_speed(curve: PassCurve, right: float, token: float, *, share: float = 1.0) -> float:
    """Times plain decoding with the best draft length, at least 1.

    A draft token is ``right`` with this probability if those before it are, and costs ``token`` plain passes. What a
    pass takes more than a plain one is ``share`` times as much as the ``curve`` says.
    """
    costs = curve.costs(_MOST, 0)
    speeds = (
        math.fsum(right**i for i in range(k + 1)) / (1 + share * (costs[k] - 1) + k * token)
        for k in range(1, _MOST + 1)
    )
    return max(1.0, *speeds)


def advise(model: Any, language: str, drafts: Sequence[Draft] | None = None) -> Advice:
    """Whether one of ``drafts``, by default those of the table, is expected to pay for an MLX model on this machine.

    Raises:
        SpectoolError: Nothing is known of what its passes cost here, or what share of its weights a pass reads.
    """
    if has_experts(model):
        raise SpectoolError("what a draft token costs next to a mixture of experts is not known. Name a draft model")
    machines = machines_for(model)
    found = [
        _promised(draft, machines, language)
        for draft in (table()[0] if drafts is None else drafts)
        if draft.right.get(language) and draft.weights <= LARGEST * weight_bytes(model)
    ]
    return max(found, key=lambda each: sum(each.speed), default=Advice(None))


def _promised(draft: Draft, machines: Sequence[Machine], language: str) -> Advice:
    right, look_up = draft.right[language], table()[1].get(language, 0.0)
    figures = list[tuple[float, float, float]]()
    for machine in machines:  # where passes with drafts are cheap, and where they are dear
        for share, cost in zip(machine.shares, machine.token_costs(draft.weights, draft.layers), strict=True):
            speed = expected_speed(machine.curve, right, PASSES * cost, share=share)
            figures.append((speed, expected_speed(machine.curve, look_up, 0.0, share=share), cost))
    speeds, alone, costs = ((min(each), max(each)) for each in zip(*figures, strict=True))
    return Advice(draft, speeds, alone, costs, sum(speeds) >= _WORTH * sum(alone))
