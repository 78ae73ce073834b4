"""From the options of `model_options` to a loaded model, its drafter, and the arguments of ``stream_generate``."""

import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spectool import SpectoolError
from spectool.artifacts.manifest import read_manifest
from spectool.commands.console import say
from spectool.commands.model_options import GROUP_SIZES, CacheChoice, DraftingChoice, SamplingChoice
from spectool.commands.options import Finite

if TYPE_CHECKING:
    from spectool.runtime.decoding.drafter import Drafter

_LONGEST_ID = 20  # digits
_MOST_QUOTED = 60  # characters
_MOST_RECENT = 2**31 - 1  # tokens: the largest index of an MLX array
_CUTS = ("temp", "top_p", "min_p", "min_tokens_to_keep", "top_k", "xtc_probability", "xtc_threshold")


def check_drafting(drafting: DraftingChoice) -> None:
    """Check the dictionary and the alignment before a model is loaded, which takes longer.

    Raises:
        ArtifactError: One is damaged.
    """
    for artifact in (drafting.dictionary, drafting.alignment):
        if artifact is not None:
            read_manifest(artifact)


def make_drafter(drafting: DraftingChoice, tokenizer: Any) -> "Drafter | None":
    """The drafter for a model with this tokenizer, mlx-lm's ``TokenizerWrapper``.

    Raises:
        SpectoolError: Something that is named cannot be used.
    """
    from spectool.runtime.loading import load_drafter

    return load_drafter(
        tokenizer,
        dictionary=drafting.dictionary,
        draft_model=drafting.draft_model,
        alignment=drafting.alignment,
        strategy=drafting.strategy,
        history=drafting.history,
        min_probability=drafting.min_draft_prob,
    )


def open_model(
    name: str, adapter_path: Path | None, drafting: DraftingChoice, sampling: SamplingChoice, cache: CacheChoice
) -> tuple[Any, Any, dict[str, Any]]:
    """Load a model and its drafter.

    Returns:
        The model, its tokenizer, and arguments of ``stream_generate``, including the drafter.

    Raises:
        SpectoolError: Something that is named cannot be used.
    """
    check_drafting(drafting)

    import mlx.core as mx

    from spectool.runtime.loading import open_target

    if sys.stderr.isatty():
        say(f"loading {name}")
    group_size = int(cache.kv_group_size)
    model, tokenizer, drafter = open_target(
        name, partial(make_drafter, drafting), group_size if cache.kv_bits else None, GROUP_SIZES, adapter_path
    )
    arguments = {
        "drafter": drafter,
        "num_draft_tokens": drafting.num_draft_tokens,
        "verify": drafting.verify,
        "max_kv_size": cache.max_kv_size,
        "prefill_step_size": cache.prefill_step_size,
        "kv_bits": int(cache.kv_bits) if cache.kv_bits else None,
        "kv_group_size": group_size,
        "quantized_kv_start": cache.quantized_kv_start,
        **_sampling_arguments(model, tokenizer, sampling),
    }
    mx.eval(model.parameters())
    return model, tokenizer, arguments


def _sampling_arguments(model: Any, tokenizer: Any, sampling: SamplingChoice) -> dict[str, Any]:
    """Arguments of ``stream_generate`` for sampling; extra end tokens are added to the tokenizer.

    Raises:
        SpectoolError: An end token or a bias names no token.
    """
    from spectool.runtime.decoding.sampling import Sampling, make_logits_processors

    for token in sampling.extra_eos_tokens:
        tokenizer.eos_token_ids = {*tokenizer.eos_token_ids, _token_id(model, tokenizer, token, "--extra-eos-token")}
    special = (*tokenizer.encode("\n", add_special_tokens=False), *tokenizer.eos_token_ids)
    settings = {name: value for name, value in asdict(sampling).items() if name in _CUTS}
    processors = make_logits_processors(
        _biases(model, tokenizer, sampling.logit_bias),
        repetition_penalty=sampling.repetition_penalty,
        repetition_context_size=min(sampling.repetition_context_size, _MOST_RECENT),
        presence_penalty=sampling.presence_penalty,
        presence_context_size=min(sampling.presence_context_size, _MOST_RECENT),
        frequency_penalty=sampling.frequency_penalty,
        frequency_context_size=min(sampling.frequency_context_size, _MOST_RECENT),
    )
    return {
        "sampler": Sampling(**settings, xtc_special_tokens=special) if sampling.temp else None,
        "logits_processors": processors,
        "seed": sampling.seed,
        "max_tokens": sampling.max_tokens,
        "stop_strings": [text.replace("\\n", "\n").replace("\\t", "\t") for text in sampling.stop_strings],
    }


def _biases(model: Any, tokenizer: Any, given: tuple[str, ...]) -> dict[int, float]:
    biases = {}
    for entry in given:
        token, _, bias = entry.rpartition("=")
        try:
            value = Finite().convert(bias, None, None)
        except click.UsageError:
            value = None
        if not token or value is None:
            raise click.UsageError(f"--logit-bias: expected ID=BIAS such as 13=-5, got {_quoted(entry)}")
        biases[_token_id(model, tokenizer, token, "--logit-bias")] = value
    return biases


def _token_id(model: Any, tokenizer: Any, token: str, option: str) -> int:
    """The id of a token that was given to ``option`` as it is in the vocabulary, or as its id."""
    from spectool.runtime.decoding.token_ids import require_tokens, vocabulary_size

    vocabulary, size = tokenizer.get_vocab(), vocabulary_size(model)
    is_number = token.isascii() and token.isdecimal() and len(token) < _LONGEST_ID  # "７" is a token
    found = int(token) if is_number else vocabulary.get(token)  # a number is an id, as in mlx-lm
    if found is None or (found >= size and found not in vocabulary.values()):
        raise SpectoolError(
            f"{option}: {_quoted(token)} is not a token of this model, nor the id of one. Give it as tokenizer.json "
            "spells it"
        )
    require_tokens(option, [found], size, tokenizer)
    return int(found)


def _quoted(text: str) -> str:
    return repr(text) if len(text) <= _MOST_QUOTED else f"{text[:_MOST_QUOTED]!r}… ({len(text):,} characters)"
