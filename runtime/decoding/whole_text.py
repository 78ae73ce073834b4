"""The whole text at once: in place of ``mlx_lm.generate``."""

from typing import Any

from spectool.runtime.decoding.streaming import stream_generate


def generate(model: Any, tokenizer: Any, prompt: str | list[int], verbose: bool = False, **kwargs: Any) -> str:
    """Generate the whole text after ``prompt``: in place of ``mlx_lm.generate``, with a drafter.

    Examples:
        >>> from mlx_lm import load
        >>> from spectool.runtime import generate, load_drafter
        >>> from spectool.runtime.demo_models import demo_path
        >>> model, tokenizer = load(str(demo_path("target")))
        >>> generate(model, tokenizer, "Most w Jaworowcu", drafter=load_drafter(tokenizer), max_tokens=8)
        'zamknięty do końca'

    Args:
        model: An mlx-lm model.
        tokenizer: mlx-lm's ``TokenizerWrapper``, or a transformers tokenizer.
        prompt: Text, or token ids.
        verbose: Print the text as it comes, and then figures.
        **kwargs: Options of `stream_generate`.

    Returns:
        The text.

    Raises:
        RuntimeUnsupported: As `stream_generate`.
    """
    pieces: list[str] = []
    response = None
    for response in stream_generate(model, tokenizer, prompt, **kwargs):
        pieces.append(response.text)
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
    return "".join(pieces)
