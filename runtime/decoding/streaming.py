"""Text as it is generated, and the whole text: mlx-lm's ``stream_generate`` and ``generate`` with a drafter."""

import time
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx

from spectool.runtime.decoding.answer_text import AnswerText, encode_answer
from spectool.runtime.decoding.generation import generate_step
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.drafters.drafter import Drafter, DrafterSet
from spectool.runtime.mlx_lm_compat import GenerationResponse as MlxLmResponse
from spectool.runtime.mlx_lm_compat import TokenizerWrapper, generation_stream, wired_limit
from spectool.runtime.policy.policy import Policy
from spectool.runtime.sampling.token_ids import token_ids


@dataclass
class GenerationResponse(MlxLmResponse):  # type: ignore[misc]  # mlx-lm has no types
    """mlx-lm's response, and ``drafting``: the statistics of this generation, which later responses go on changing."""

    drafting: DraftStatistics = field(default_factory=DraftStatistics)

    def __repr__(self) -> str:
        shown = ("text", "token", "from_draft", "prompt_tokens", "generation_tokens", "finish_reason", "drafting")
        return f"GenerationResponse({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"


def stream_generate(
    model: Any,
    tokenizer: Any,
    prompt: str | mx.array | list[int],
    *,
    drafter: Drafter | DrafterSet | None = None,
    prediction: str | mx.array | Sequence[int] | None = None,
    max_tokens: int = 256,
    num_draft_tokens: int | Policy | None = None,
    stop_strings: Sequence[str] = (),
    own_text: bool = False,
    **kwargs: Any,
) -> Generator[GenerationResponse, None, None]:
    """Generate text after ``prompt``: the same responses as mlx-lm's, in less time.

    The draft length is chosen by measurement unless ``num_draft_tokens`` fixes it, ``sampler=Sampling(temp=0.7)`` sets
    a temperature, and ``response.drafting`` has the statistics. docs/python.md explains them one by one.

    Examples:
        >>> from mlx_lm import load
        >>> from spectool.runtime import Sampling, load_drafter, stream_generate
        >>> from spectool.runtime.demo_models import demo_path
        >>> model, tokenizer = load(str(demo_path("target")))
        >>> drafter = load_drafter(tokenizer, draft_model=demo_path("draft"))
        >>> options = {"num_draft_tokens": 4, "sampler": Sampling(temp=0.0), "max_tokens": 8}
        >>> for response in stream_generate(model, tokenizer, "Most w Jaworowcu", drafter=drafter, **options):
        ...     print(response.text, end="", flush=True)
         zamknięty do końca
        >>> response.drafting.tokens
        8

    Args:
        model: An mlx-lm model.
        tokenizer: mlx-lm's ``TokenizerWrapper``, or a transformers tokenizer.
        prompt: Text, or token ids of shape [tokens].
        drafter: Source of draft tokens; None decodes plainly.
        prediction: Text, or token ids, that the answer is expected to repeat for the most part, such as a file that is
            to be edited. The model does not get to see it.
        max_tokens: Tokens to generate; -1 for no limit.
        num_draft_tokens: Maximum number of draft tokens per cycle; None chooses the number that is fastest.
        stop_strings: Text or texts that end the generation; the text ends before them. What may be the beginning of
            one is held back until the next response decides.
        own_text: The answer is a text of its own, such as a message of a conversation, so it begins without the space
            that tokenizers such as SentencePiece's put before every text. A continuation needs that space.
        **kwargs: Further options of `generate_step`: ``sampler``, ``prompt_cache``, ``on_cycle`` and so on.

    Yields:
        A response for each token but an end-of-text token, and the last one with the rest of the text and
        ``finish_reason`` "stop" or "length".

    Raises:
        RuntimeUnsupported: The prompt is empty, the model's caches do not allow what is asked, or (`TokenOutOfRange`)
            the tokenizer made a token that the model does not have.
    """
    if not isinstance(tokenizer, TokenizerWrapper):
        tokenizer = TokenizerWrapper(tokenizer)
    tokens = encode_prompt(tokenizer, prompt) if isinstance(prompt, str) else prompt
    drafting = kwargs.pop("statistics", None) or DraftStatistics()
    stream = kwargs.setdefault("stream", generation_stream)
    if (grammar := kwargs.get("grammar")) is not None:
        grammar.require(tokenizer)
        own_text = False  # a grammar says all of the text
    ends = text_ends(tokenizer, kwargs)
    text = AnswerText(tokenizer, stop_strings, stop_tokens=ends, max_tokens=max_tokens, own_text=own_text)
    predicted = None
    if prediction is not None:
        from spectool.runtime.drafters.prediction import PredictionDrafter

        if isinstance(prediction, str):
            prediction = encode_answer(tokenizer, prediction)
        predicted = PredictionDrafter(token_ids(prediction))
    with wired_limit(model, [stream]):
        steps = generate_step(
            tokens,
            model,
            drafter=drafter,
            prediction=predicted,
            num_draft_tokens=num_draft_tokens,
            max_tokens=max_tokens,
            stop_tokens=ends,
            statistics=drafting,
            **kwargs,
        )
        # Closed before the wired limit is restored, and as soon as the reader stops: the caches are consistent at once,
        # not when the garbage collector gets there.
        with closing(steps):
            began, prompt_seconds = time.perf_counter(), 0.0
            for count, (token, logprobs, from_draft) in enumerate(steps, 1):
                if count == 1:
                    began, prompt_seconds = time.perf_counter(), time.perf_counter() - began
                yield GenerationResponse(
                    text=text.add(token),
                    token=token,
                    logprobs=logprobs,
                    from_draft=from_draft,
                    prompt_tokens=len(tokens),
                    prompt_tps=len(tokens) / prompt_seconds,
                    generation_tokens=count,
                    generation_tps=count / (time.perf_counter() - began),
                    peak_memory=mx.get_peak_memory() / 1e9,
                    finish_reason=text.end,
                    drafting=drafting,
                )
                if text.end is not None:
                    return


def generate(model: Any, tokenizer: Any, prompt: str | list[int], verbose: bool = False, **kwargs: Any) -> str:
    """The whole text after ``prompt``: use it instead of ``mlx_lm.generate``, with a drafter.

    Takes the options of `stream_generate`. With ``verbose``, prints the text as it comes, and then figures.

    Examples:
        >>> from mlx_lm import load
        >>> from spectool.runtime import generate, load_drafter
        >>> from spectool.runtime.demo_models import demo_path
        >>> model, tokenizer = load(str(demo_path("target")))
        >>> generate(model, tokenizer, "Most w Jaworowcu", drafter=load_drafter(tokenizer), max_tokens=8)
        ' zamknięty do końca'
    """
    segments: list[str] = []
    response = None
    for response in stream_generate(model, tokenizer, prompt, **kwargs):
        segments.append(response.text)
        if verbose:
            print(response.text, end="", flush=True)
    if verbose and response is not None:
        print(
            f"\n{'=' * 10}\n"
            f"Prompt: {response.prompt_tokens} tokens, {response.prompt_tps:.3f} tokens-per-sec\n"
            f"Generation: {response.generation_tokens} tokens, {response.generation_tps:.3f} tokens-per-sec, "
            f"{response.drafting.tokens_per_pass:.3f} tokens per pass\n"
            f"Peak memory: {response.peak_memory:.3f} GB"
        )
    return "".join(segments)


def text_ends(tokenizer: Any, settings: dict[str, Any]) -> frozenset[int]:
    """Token ids that end a text: the tokenizer's own, and ``stop_tokens``, which are taken out of ``settings``."""
    return frozenset([*tokenizer.eos_token_ids, *token_ids(settings.pop("stop_tokens", ()))])


def encode_prompt(tokenizer: Any, prompt: str) -> list[int]:
    """Token ids of a text; BOS is added unless the text begins with it, as in mlx-lm."""
    bos = tokenizer.bos_token
    ids: list[int] = tokenizer.encode(prompt, add_special_tokens=bos is None or not prompt.startswith(bos))
    return ids
