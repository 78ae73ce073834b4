"""Figures of the DictSpec paper, to stand beside measured ones.

Source: "Dictionary-Based Speculative Decoding for Non-Latin-Script Languages", Tables 2, 3 and 4.
"""

from typing import NamedTuple

PEARSON = 0.72  # section 4.5.3: fertility and best speed-up of 15 pairs


class Best(NamedTuple):
    """A row of Table 4: the best of the sweep for a tokenizer and a language."""

    speedup: float
    coverage: float
    mean_accepted_length: float
    acceptance: float


# Names that begin so have the vocabulary of this family, or are the nearest that there is (Qwen).
_FAMILIES = {
    "gemma-3": "Gemma 3",
    "mistral-nemo": "Mistral NeMo",
    "mistral": "Mistral 7B",
    "bielik-11b": "Mistral 7B",
    "qwen": "Qwen 3.5",
    "llama-3": "Llama 3.3",
}
WORDS = {"uk": (251_618_586, 124_703), "crh-cyrl": (1_333_103, 535_156), "crh-latn": (118_749, 16_020)}
FERTILITY = {
    "Gemma 3": {"en": 1.28, "uk": 2.38, "crh-cyrl": 3.30, "crh-latn": 2.98},
    "Mistral 7B": {"en": 1.42, "uk": 3.18, "crh-cyrl": 4.20, "crh-latn": 3.92},
    "Mistral NeMo": {"en": 1.26, "uk": 2.62, "crh-cyrl": 3.51, "crh-latn": 3.07},
    "Qwen 3.5": {"en": 1.30, "uk": 2.59, "crh-cyrl": 3.51, "crh-latn": 3.01},
    "Llama 3.3": {"en": 1.23, "uk": 2.38, "crh-cyrl": 3.89, "crh-latn": 2.94},
}
BEST = {
    "Gemma 3": {
        "uk": Best(1.26, 0.59, 0.44, 0.17),
        "crh-cyrl": Best(1.45, 0.71, 0.63, 0.18),
        "crh-latn": Best(1.19, 0.57, 0.33, 0.10),
    },
    "Mistral 7B": {
        "uk": Best(1.43, 0.70, 0.61, 0.17),
        "crh-cyrl": Best(1.65, 0.77, 0.84, 0.18),
        "crh-latn": Best(1.35, 0.69, 0.50, 0.08),
    },
    "Mistral NeMo": {
        "uk": Best(1.34, 0.64, 0.53, 0.18),
        "crh-cyrl": Best(1.51, 0.73, 0.70, 0.18),
        "crh-latn": Best(1.21, 0.61, 0.34, 0.07),
    },
    "Qwen 3.5": {
        "uk": Best(1.34, 0.63, 0.54, 0.18),
        "crh-cyrl": Best(1.51, 0.72, 0.71, 0.19),
        "crh-latn": Best(1.21, 0.58, 0.36, 0.11),
    },
    "Llama 3.3": {
        "uk": Best(1.28, 0.61, 0.46, 0.18),
        "crh-cyrl": Best(1.61, 0.77, 0.79, 0.18),
        "crh-latn": Best(1.22, 0.62, 0.36, 0.07),
    },
}


def family(tokenizer: str) -> str | None:
    """Return the paper's name for a tokenizer, or None.

    >>> family("bielik-11b-v2.5"), family("gpt2")
    ('Mistral 7B', None)
    """
    return next((name for prefix, name in _FAMILIES.items() if tokenizer.lower().startswith(prefix)), None)
