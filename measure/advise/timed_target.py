"""A target that is asked: costs of its passes on this machine, and text of its own to replay drafts on.

At any temperature, exact verification accepts a draft token where the target says the same. So drafts replayed on text
of the target's own give the acceptance of a generation. No pass of the target is needed for every drafter and draft
length.
"""

import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import mlx.core as mx

from spectool import CorpusError
from spectool.lab.tuning.divergence import measure as measure_divergence
from spectool.lab.tuning.divergence import pairing_of
from spectool.lab.tuning.examples import paired_example, prompts_of
from spectool.measure.advise.expect import Guesses, Verification, fitted
from spectool.measure.advise.replayed import Text, replayed
from spectool.measure.bench.timing import pass_cost
from spectool.runtime.decoding.generation import generate_step
from spectool.runtime.decoding.sampling import Sampling
from spectool.runtime.host.generation import generate_step as plain_generate_step
from spectool.runtime.loading import load_drafter
from spectool.runtime.models import load_model
from spectool.tokenization.opening import open_tokenizer

_PROMPTS = 5
_PROMPT = 24  # tokens
_TOKENS = 48  # after each prompt
_FEW = 8  # likewise: to warm up, and to time a plain step beside a drafter
_ROWS = 4  # of a pass that compares distributions
_LONGEST = 128  # tokens of a row there


class TimedTarget:
    """A target that was loaded, timed and made to write.

    Attributes:
        step: Seconds of a token by the host's own loop.
        verification: Of its passes over drafts.
    """

    def __init__(self, target: str, texts: Sequence[str], lengths: Sequence[int], temperature: float) -> None:
        """Load the target, let it write behind the beginnings of texts, and time passes over drafts of these lengths.

        Raises:
            CorpusError: No text is long enough for a prompt.
            RuntimeUnsupported: mlx-lm cannot load the model.
        """
        self._model, self._loaded = load_model(target)
        self._tokenizer = open_tokenizer(self._loaded)
        self._texts, self._lengths = texts, lengths
        self._sampler = Sampling(temp=temperature) if temperature else None
        prompts: list[list[int]] = prompts_of(self._tokenizer, texts, _PROMPT, _PROMPTS).tolist()
        if not prompts:
            raise CorpusError(
                f"expected text of more than {_PROMPT} tokens for a prompt, got none. Name other text with --corpus"
            )
        for generate in (plain_generate_step, generate_step):
            self._run(generate, prompts[0], _FEW)
        mx.random.seed(0)
        stop, steps, loops = frozenset(self._tokenizer.roles.eos), [], []
        self._written: list[Text] = []
        for prompt in prompts:  # one after the other, so that a busy machine slows both alike
            written, seconds = self._run(plain_generate_step, prompt, _TOKENS)
            steps.append(seconds)
            loops.append(self._run(generate_step, prompt, _TOKENS)[1] / seconds)
            end = next((place + 1 for place, token in enumerate(written) if token in stop), len(written))
            self._written.append((prompt, written[:end]))
        self.step = median(steps)
        costs = {k: max(1.0, pass_cost(self._model, k + 1)) for k in lengths}
        self.verification: Verification = fitted(costs, "passes timed here", max(0.0, median(loops) - 1))

    def lookup(self, dictionary: Path | None) -> dict[int, Guesses]:
        """Return guesses of a dictionary and the text's own history, or of history alone, by draft length."""
        return self._replayed(load_drafter(self._loaded, dictionary=dictionary))

    def draft(self, draft: str, alignment: Path | None) -> tuple[dict[int, Guesses], dict[str, Any] | None]:
        """Return guesses of a draft model by draft length, and its divergence from the target on the texts.

        The divergence is None where distributions cannot be compared.

        Raises:
            RuntimeUnsupported: It cannot be loaded, or has another tokenizer and there is no alignment.
        """
        model, loaded = load_model(draft)
        drafter = load_drafter(self._loaded, draft_model=(model, loaded), alignment=alignment, history=False)
        return self._replayed(drafter), self._divergence(model, open_tokenizer(loaded), alignment)

    def _replayed(self, drafter: Any) -> dict[int, Guesses]:
        replayed(self._written[:1], drafter, self._lengths[0], "")  # first passes of a shape compile
        on = "on the target's own text"
        return {k: replayed(self._written, drafter, k, on, self._plain_step) for k in self._lengths}

    def _plain_step(self, prompt: Sequence[int]) -> float:
        return self._run(plain_generate_step, prompt, _FEW)[1]

    def _divergence(self, model: Any, draft: Any, alignment: Path | None) -> dict[str, Any] | None:
        pairing = pairing_of(draft, self._tokenizer, alignment)
        if pairing is None:
            return None
        same, texts = pairing.same_vocabulary, (text[: 4 * _LONGEST] for text in self._texts)
        rows = (paired_example(draft, self._tokenizer, same, text, _LONGEST) for text in texts)
        kept = list(islice((row for row in rows if row is not None), _PROMPTS))
        return measure_divergence(model, self._model, pairing, kept, _ROWS)._asdict() if kept else None

    def _run(self, generate: Callable[..., Any], prompt: Sequence[int], count: int) -> tuple[list[int], float]:
        """Generate; return the tokens, and the seconds of each but the first."""
        steps = generate(mx.array(list(prompt)), self._model, max_tokens=count, sampler=self._sampler)
        output = [int(next(steps)[0])]  # the prompt pass ends with it
        began = time.perf_counter()
        output += [int(step[0]) for step in steps]
        return output, (time.perf_counter() - began) / (count - 1)
