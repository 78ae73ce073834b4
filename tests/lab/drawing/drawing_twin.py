"""The slow, readable twin of `translation.drawing`: every draft token as a string of bytes, encoded by the target."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from spectool.lab.drawing.next_tokens import SMALL
from spectool.lab.drawing.token_rows import CHECKED
from spectool.tests.lab.drawing.toy_pairs import ToyPair
from spectool.tests.runtime.translation.translation_twin import TranslationTwin, text_bytes, whole
from spectool.tokenization.token_bytes import byte_symbols
from spectool.tokenization.tokenizer import Tokenizer


@dataclass
class Said:
    """One way for the text to go on.

    Attributes:
        weight: Its probability, up to a factor.
        view: Draft ids of the whole text up to its end.
        ids: Target ids that are still to be drawn.
        carried: Bytes of a character that it has begun behind them.
        ended: A special token ends it.
    """

    weight: float
    view: list[int]
    ids: list[int]
    carried: bytes = b""
    ended: bool = False


class DrawingTwin:
    """Enumerates what may follow committed and drawn tokens.

    Attributes:
        merged: Draft tokens so far that were spelled together with an id that was held back.
    """

    def __init__(self, pair: ToyPair, temperature: float) -> None:
        self._pair = pair
        self._twin = TranslationTwin(pair.draft, pair.target)
        self._temperature = temperature
        self.merged = 0

    def stated(self, committed: Sequence[int], drawn: Sequence[int]) -> dict[int, float]:
        """Return the distribution of the token after ``drawn``."""
        known = self._frontier(committed)
        for count in range(len(drawn) + 1):
            self._expand(known, [*committed, *drawn[:count]], checked=count > 0 or not self._pending(committed))
            if count < len(drawn):
                known = [said for said in known if said.ids and said.ids[0] == drawn[count]]
                for said in known:
                    del said.ids[0]
        sums: dict[int, float] = {}
        for said in known:
            if said.ids:
                sums[said.ids[0]] = sums.get(said.ids[0], 0.0) + said.weight
        total = sum(sums.values())
        return {token: weight / total for token, weight in sums.items() if weight > 0}

    def _pending(self, committed: Sequence[int]) -> bytes:
        """Return the bytes of an unfinished character at the end."""
        so_far = text_bytes(self._twin.target, committed)
        return so_far[len(whole(so_far)) :]

    def _frontier(self, committed: Sequence[int]) -> list[Said]:
        """Return all first draft tokens: plain ones, and those in place of the last context token."""
        draft, twin = self._pair.draft, self._twin
        pending = self._pending(committed)
        view = twin.context(committed)
        found: list[Said] = []
        own = 1.0
        if len(view) > 1:
            repeated = draft.token_bytes[view[-1]] + pending
            scores = self._scores(view[:-1])
            longer = [t for t, raw in enumerate(draft.token_bytes) if raw.startswith(repeated)]
            longer = [t for t in longer if draft.token_bytes[t] != repeated]
            weights = dict(zip([*longer, view[-1]], _weights(scores[[*longer, view[-1]]]), strict=True))
            least, own = CHECKED * sum(weights.values()), weights.pop(view[-1])
            own = own or float(not any(weights.values()))
            found += self._said(weights, least, view[:-1], committed, repeated, b"", checked=not pending)
        plain = self._softmax(view)
        begins = {t: w for t, w in plain.items() if draft.token_bytes[t] != pending or not pending}
        begins = {t: w for t, w in begins.items() if draft.token_bytes[t].startswith(pending)}
        for said in self._said(begins, CHECKED, view, committed, pending, b"", checked=not pending):
            said.weight *= own
            found += [said] if said.weight > 0 else []
        return found

    def _expand(self, known: list[Said], before: Sequence[int], checked: bool) -> None:
        """Replace the heaviest of those that have one id left or none by what follows it, again and again."""
        while over := [said for said in known if len(said.ids) < 2 and not said.ended]:
            heaviest = max(over, key=lambda said: said.weight)
            if heaviest.weight < SMALL * sum(said.weight for said in known):
                break
            known.remove(heaviest)
            after = self._softmax(heaviest.view)
            for said in self._said(after, CHECKED, heaviest.view, before, b"", heaviest.carried, checked, heaviest.ids):
                said.weight *= heaviest.weight
                known.append(said)

    def _said(
        self,
        weights: Mapping[int, float],
        least: float,
        view: Sequence[int],
        before: Sequence[int],
        repeated: bytes,
        carried: bytes,
        checked: bool = True,
        held: Sequence[int] = (),
    ) -> list[Said]:
        """Return what draft tokens say, those that say anything.

        Args:
            weights: Of each draft token.
            least: From which on a token is looked at with care.
            view: Draft ids before them.
            before: Target ids before them.
            repeated: Bytes of theirs that stand in ``before``.
            carried: Bytes before them that do not.
            checked: Whether what would merge into the last of ``before`` is left out.
            held: A target id between ``before`` and them, spelled together with those that would merge into it.
        """
        draft, target = self._pair.draft, self._pair.target
        found: list[tuple[bool, Said]] = []
        for token, weight in weights.items():
            raw = draft.token_bytes[token]
            if not raw:
                ended = [(False, Said(weight, [], [*held, target.roles.eos[0]], ended=True))]
                found += ended if token in draft.roles.eos and weight > 0 else []
                continue
            data = carried + raw[len(repeated) :]
            ready = data[: len(data) - len(_unfinished(data))]
            simple = not repeated and not carried and _is_text(raw)
            if weight <= 0 or (not simple and weight < least):
                continue
            likely = weight >= least
            found.append((likely, Said(weight, [*view, token], encode_bytes(target, ready), data[len(ready) :])))
        if held:
            found = self._with_held(found, [*before, *held], held[0])
        merging = self._merging(found, before) if checked else set()
        return [said for _, said in found if not said.ids or said.ids[0] not in merging]

    def _merging(self, found: Sequence[tuple[bool, Said]], before: Sequence[int]) -> set[int]:
        """Return the first ids of likely ones that would merge into the last of ``before``."""
        first = {said.ids[0] for likely, said in found if likely and said.ids}
        return {token for token in first if not boundary_holds(self._pair.target, before, token)}

    def _with_held(self, found: list[tuple[bool, Said]], before: Sequence[int], held: int) -> list[tuple[bool, Said]]:
        """Return them with ``held``, the last of ``before``, in front: merged where the target would."""
        target = self._pair.target
        merging = self._merging(found, before)
        for likely, said in found:
            if said.ended:
                continue
            if not said.ids or said.ids[0] not in merging:
                said.ids.insert(0, held)
            elif likely:
                self.merged += 1
                data = b"".join(target.token_bytes[token] for token in (held, *said.ids)) + said.carried
                ready = data[: len(data) - len(_unfinished(data))]
                said.ids, said.carried = encode_bytes(target, ready), data[len(ready) :]
            else:
                said.weight = 0.0
        return [(likely, said) for likely, said in found if said.weight > 0]

    def _scores(self, view: Sequence[int]) -> np.ndarray:
        return self._pair.draft_model.logits(view) / self._temperature

    def _softmax(self, view: Sequence[int]) -> dict[int, float]:
        weights = _weights(self._scores(view))
        return dict(enumerate((weights / weights.sum()).tolist()))


def _weights(scores: np.ndarray) -> np.ndarray:
    """Return the exponentials, up to a factor; none where no score is finite."""
    known = np.isfinite(scores)
    return np.where(known, np.exp(scores - (scores[known].max() if known.any() else 0.0)), 0.0)


def encode_bytes(target: Tokenizer, data: bytes) -> list[int]:
    """Return the target's ids of bytes inside a text; they need not be text."""
    if target.kind.startswith("byte"):
        symbols = {byte: symbol for symbol, byte in byte_symbols().items()}
        return [token.id for token in target.backend.model.tokenize("".join(symbols[byte] for byte in data))]
    ids: list[int] = []
    while data:
        good = data
        while good and not _is_text(good):
            good = good[:-1]
        ids += target.encode(good.decode()) if good else [target.vocabulary[f"<0x{data[0]:02X}>"]]
        data = data[len(good) or 1 :]
    return ids


def boundary_holds(target: Tokenizer, before: Sequence[int], token: int) -> bool:
    """Return whether the target would cut between ``before`` and ``token``, given the bytes of both.

    All of ``before`` counts, since it need not be what the target writes: where "kot" and "a" were drawn, "kotak" is
    "kota" and "k", although "a" and "k" by themselves would be "ak".
    """
    if not before or not target.token_bytes[before[-1]]:
        return True
    left = b"".join(map(target.token_bytes.__getitem__, before))
    ids = encode_bytes(target, left + target.token_bytes[token])
    return len(left) in np.cumsum([len(target.token_bytes[other]) for other in ids]).tolist()


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return bool(data)


def _unfinished(data: bytes) -> bytes:
    """Return the beginning of a character that stands at the end."""
    for back in range(1, min(3, len(data)) + 1):
        if data[-back] >= 0xC0:
            length = 2 if data[-back] < 0xE0 else 3 if data[-back] < 0xF0 else 4
            return data[-back:] if length > back else b""
    return b""
