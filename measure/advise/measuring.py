"""What the models themselves tell: costs of passes on this machine, and the target's own text to replay drafts on.

At any temperature, exact verification accepts a draft token where the target says the same, so that drafts replayed
on text of the target's own give the acceptance of a generation, without a pass of the target for every drafter and
draft length.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import mlx.core as mx

from spectool import CorpusError
from spectool.artifacts.tokenizer.opening import open_tokenizer
from spectool.build.training.tuning.continuations import prompts_of
from spectool.build.training.tuning.divergence import Divergence
from spectool.build.training.tuning.divergence import measure as measure_divergence
from spectool.build.training.tuning.examples import Example, paired_example
from spectool.build.training.tuning.pairing import pairing_of, same_vocabulary
from spectool.measure.advise.expect import Verification, fitted
from spectool.measure.advise.replayed import Replay, replay
from spectool.measure.side_by_side import pass_cost
from spectool.runtime.decoding.generation import generate_step
from spectool.runtime.decoding.sampling import Sampling
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.host.generation import generate_step as plain_generate_step
from spectool.runtime.loading import load_drafter
from spectool.runtime.models import load_model

_PROMPTS = 5
_PROMPT = 24  # tokens
_TOKENS = 48  # after each prompt
_FEW = 8  # likewise: to warm up, and to time a plain step beside a drafter
_ROWS = 4  # of a pass that compares distributions
_LONGEST = 128  # tokens of a row there


@dataclass(frozen=True, slots=True)
class Told:
    """What a drafter's models tell.

    Attributes:
        replays: Drafts on the target's own text, by draft length.
        drafting: Time of the drafter in a cycle, in plain steps timed at the same moment, by draft length.
        divergence: Distributions beside the target's, on the text given; None where they cannot be compared.
    """

    replays: dict[int, Replay]
    drafting: dict[int, float]
    divergence: Divergence | None = None


class Measured:
    """A target that was loaded, timed and made to write.

    Attributes:
        step: Seconds of a token by the host's own loop.
        verification: Of its passes over drafts.
        text: Prompt and what the target wrote after it, ids, of each.
    """

    def __init__(self, target: str, texts: Sequence[str], lengths: Sequence[int], temperature: float) -> None:
        """Load the target, and let it write and be timed.

        Args:
            target: Directory or hub id.
            texts: Text whose beginnings are prompts, and on which distributions are compared.
            lengths: Draft tokens in a cycle.
            temperature: 0 takes the most probable token.

        Raises:
            CorpusError: No text is long enough for a prompt.
            RuntimeUnsupported: mlx-lm cannot load the model.
        """
        self._model, self._loaded = load_model(target)
        self._tokenizer = open_tokenizer(self._loaded)
        self._texts, self._lengths = texts, lengths
        prompts = prompts_of(self._tokenizer, texts, _PROMPT, _PROMPTS).tolist()
        if not prompts:
            raise CorpusError(
                f"expected text of more than {_PROMPT} tokens for a prompt, got none. Name other text with --corpus"
            )
        sampler = Sampling(temp=temperature) if temperature else None
        plain = self._steps(
            lambda prompt, count: plain_generate_step(prompt, self._model, max_tokens=count, sampler=sampler)
        )
        ours = self._steps(lambda prompt, count: generate_step(prompt, self._model, max_tokens=count, sampler=sampler))
        stop = frozenset(self._tokenizer.roles.eos)
        self._plain = plain
        for run in (plain, ours):
            run(prompts[0], _FEW)
        mx.random.seed(0)
        self.text, steps, loops = [], [], []
        for prompt in prompts:  # one after the other, so that a busy machine slows both alike
            written, seconds = plain(prompt, _TOKENS)
            steps.append(seconds)
            loops.append(ours(prompt, _TOKENS)[1] / seconds)
            end = next((place + 1 for place, token in enumerate(written) if token in stop), len(written))
            self.text.append((prompt, written[:end]))
        self.step = median(steps)
        costs = {k: max(1.0, pass_cost(self._model, k + 1)) for k in lengths}
        self.verification: Verification = fitted(costs, "passes timed here", max(0.0, median(loops) - 1))

    def lookup(self, dictionary: Path | None) -> Told:
        """Replay what a dictionary and the text's own history propose; history alone where there is none."""
        return Told(*self._replays(load_drafter(self._loaded, dictionary=dictionary)))

    def draft(self, draft: str, alignment: Path | None) -> Told:
        """Replay what a draft model proposes, and compare distributions.

        Raises:
            RuntimeUnsupported: It cannot be loaded, or has another tokenizer and there is no alignment.
        """
        model, loaded = load_model(draft)
        drafter = load_drafter(self._loaded, draft_model=(model, loaded), alignment=alignment, history=False)
        return Told(*self._replays(drafter), self._divergence(model, open_tokenizer(loaded), alignment))

    def _replays(self, drafter: Any) -> tuple[dict[int, Replay], dict[int, float]]:
        """Replay text by text, a few plain steps beside each, so that a busy machine slows both alike."""
        replay(self.text[:1], drafter, self._lengths[0])  # first passes of a shape compile
        counts = {k: DraftStatistics() for k in self._lengths}
        costs: dict[int, list[float]] = {k: [] for k in self._lengths}
        seconds = dict.fromkeys(self._lengths, 0.0)
        for prompt, written in self.text:
            step = self._plain(prompt, _FEW)[1]
            for k in self._lengths:
                before = counts[k].passes
                found = replay([(prompt, written)], drafter, k, counts[k])
                seconds[k] += found.seconds
                costs[k].append(found.seconds / max(1, counts[k].passes - before) / step)
        return {k: Replay(counts[k], seconds[k]) for k in self._lengths}, {k: median(costs[k]) for k in self._lengths}

    def _divergence(self, model: Any, draft: Any, alignment: Path | None) -> Divergence | None:
        target = self._tokenizer
        pairing, same = pairing_of(draft, target, alignment), same_vocabulary(draft, target)
        rows: list[Example] = []
        for text in self._texts:
            row = paired_example(draft, target, same, text[: 4 * _LONGEST], _LONGEST)
            rows += [] if row is None else [row]
            if len(rows) == _PROMPTS:
                break
        return None if pairing is None or not rows else measure_divergence(model, self._model, pairing, rows, _ROWS)

    @staticmethod
    def _steps(generate: Callable[[mx.array, int], Any]) -> Callable[[list[int], int], tuple[list[int], float]]:
        """Return a function that runs ``generate`` and gives the tokens and the seconds of each but the first."""

        def run(prompt: list[int], count: int) -> tuple[list[int], float]:
            steps = generate(mx.array(prompt), count)
            output = [int(next(steps)[0])]  # the prompt pass ends with it
            began = time.perf_counter()
            output += [int(step[0]) for step in steps]
            return output, (time.perf_counter() - began) / (count - 1)

        return run
