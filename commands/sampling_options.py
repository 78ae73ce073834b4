"""The options that say how tokens are chosen: those of mlx-lm, its logits processors, and stop strings."""

from typing import Any

import click

from spectool import SpectoolError
from spectool.commands.option_sections import together, under
from spectool.commands.options import Finite, Text

_sampling = under("Sampling (the names and meanings of mlx-lm)")
_ending = under("Where the text ends")
sampling_options = together(
    _sampling("--temp", type=Finite(0), default=0.0, show_default=True, help="0 takes the most probable token."),
    _sampling("--top-p", type=Finite(0, 1), default=1.0, help="Only the most probable tokens up to this mass."),
    _sampling(
        "--top-k", type=click.IntRange(0), default=0, help="Only the most probable tokens, this many; 0 for all."
    ),
    _sampling(
        "--min-p",
        type=Finite(0, 1),
        default=0.0,
        help="Leave out tokens less probable than this share of the best one.",
    ),
    _sampling(
        "--min-tokens-to-keep",
        type=click.IntRange(1),
        default=1,
        help="Tokens that stay even where --min-p would not keep them.",
    ),
    _sampling(
        "--xtc-probability",
        type=Finite(0, 1),
        default=0.0,
        help="How often all tokens above --xtc-threshold but the least of them are left out.",
    ),
    _sampling(
        "--xtc-threshold",
        type=Finite(0, 0.5),
        default=0.1,
        show_default=True,
        help="See --xtc-probability.",
    ),
    _sampling(
        "--seed",
        type=click.IntRange(0, 2**64 - 1),
        help="Seed of the sampler; the same text also needs a fixed draft length.",
    ),
    _sampling(
        "--logit-bias", multiple=True, metavar="ID=BIAS", help="Add to the logit of a token id; may be repeated."
    ),
    _sampling(
        "--repetition-penalty", type=Finite(0, min_open=True), help="Divide the logits of recent tokens by this."
    ),
    _sampling("--repetition-context-size", type=click.IntRange(1), default=20, help="Tokens that are recent for it."),
    _sampling("--presence-penalty", type=Finite(-100, 100), help="Subtract this from the logits of recent tokens."),
    _sampling("--presence-context-size", type=click.IntRange(1), default=20, help="Tokens that are recent for it."),
    _sampling(
        "--frequency-penalty", type=Finite(-100, 100), help="Subtract this once for every time that a token is recent."
    ),
    _sampling("--frequency-context-size", type=click.IntRange(1), default=20, help="Tokens that are recent for it."),
    _ending(
        "-m", "--max-tokens", type=click.IntRange(1), default=256, show_default=True, help="Tokens to generate at most."
    ),
    _ending(
        "--stop",
        "stop_strings",
        type=Text(empty=False),
        multiple=True,
        metavar="TEXT",
        help="End before this text; may be repeated. \\n and \\t stand for a line end and a tab.",
    ),
    _ending(
        "--extra-eos-token",
        "extra_eos_tokens",
        multiple=True,
        metavar="TOKEN",
        help="End after this token as well: its text in the vocabulary, or its id; may be repeated.",
    ),
)
"""The options of sampling and of the text's end."""
_LONGEST_ID = 20  # digits
_MOST_QUOTED = 60  # characters
_PENALTIES = ("repetition", "presence", "frequency")
_MOST_RECENT = 2**31 - 1  # tokens: the largest index of an MLX array


def sampling_arguments(model: Any, tokenizer: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Take the options out and make of them what ``stream_generate`` takes.

    Args:
        model: The target.
        tokenizer: mlx-lm's ``TokenizerWrapper``; extra end tokens are added to it.
        options: Values of all options by name; those of `sampling_options` are removed.

    Raises:
        SpectoolError: An end token or a bias names no token, or a setting is none.
    """
    from spectool.runtime.decoding.sampling import Sampling, make_logits_processors

    names = ("temp", "top_p", "min_p", "min_tokens_to_keep", "top_k", "xtc_probability", "xtc_threshold")
    settings = {name: options.pop(name) for name in names}
    penalties = {f"{kind}_penalty": options.pop(f"{kind}_penalty") for kind in _PENALTIES}
    sizes = [f"{kind}_context_size" for kind in _PENALTIES]
    penalties |= {size: min(options.pop(size), _MOST_RECENT) for size in sizes}
    for token in options.pop("extra_eos_tokens"):
        tokenizer.eos_token_ids = {*tokenizer.eos_token_ids, _token_id(model, tokenizer, token, "--extra-eos-token")}
    special = (*tokenizer.encode("\n", add_special_tokens=False), *tokenizer.eos_token_ids)
    biases = _biases(model, tokenizer, options.pop("logit_bias"))
    return {
        "sampler": Sampling(**settings, xtc_special_tokens=special) if settings["temp"] else None,
        "logits_processors": make_logits_processors(biases, **penalties),
        "seed": options.pop("seed"),
        "max_tokens": options.pop("max_tokens"),
        "stop_strings": [text.replace("\\n", "\n").replace("\\t", "\t") for text in options.pop("stop_strings")],
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
    """Return the id of a token given to ``option`` by its text in the vocabulary, or by its id."""
    from spectool.runtime.decoding.token_ids import require_tokens, vocabulary_size

    vocabulary, size = tokenizer.get_vocab(), vocabulary_size(model)
    is_number = token.isascii() and token.isdecimal() and len(token) < _LONGEST_ID  # "７" is a token of its own
    found = int(token) if is_number else vocabulary.get(token)  # a number is an id, as in mlx-lm
    if found is None or (found >= size and found not in vocabulary.values()):
        raise SpectoolError(
            f"{option}: {_quoted(token)} is no token of this model, nor the id of one. Give it as tokenizer.json "
            "spells it"
        )
    require_tokens(option, [found], size, tokenizer)
    return int(found)


def _quoted(text: str) -> str:
    """Quote what was typed, cut to a length that fits an error."""
    return repr(text) if len(text) <= _MOST_QUOTED else f"{text[:_MOST_QUOTED]!r}… ({len(text):,} characters)"
