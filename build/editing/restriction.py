"""Restricting a dictionary to texts of a script or a language.

An entry stays when its text, context and continuation joined, fits. Where entries go, longer contexts fall back
further, to a suffix that may say the same as they do. What is redundant then is dropped as well. What a kept context
proposes never changes.
"""

from collections.abc import Sequence
from pathlib import Path

from spectool import SpectoolError
from spectool.artifacts.dictionary import Dictionary
from spectool.artifacts.manifest import Manifest
from spectool.build.dictionary.options import Limits
from spectool.build.dictionary.selection import as_tokens, write_best
from spectool.build.editing.merging import joined_inputs, predictions_of
from spectool.build.editing.scripts import in_languages, in_scripts
from spectool.build.inputs import Progress
from spectool.tokenization.tokenizer import Tokenizer


def restrict_dictionary(
    dictionary: Dictionary,
    tokenizer: Tokenizer,
    out: Path,
    scripts: Sequence[str],
    languages: Sequence[str],
    limits: Limits,
    progress: Progress,
) -> Manifest:
    """Write the entries of ``dictionary`` that fit to ``out``, in one step.

    Scripts are keys of `scripts.SCRIPTS`; letters of all of them may stand in one text. Languages are keys of
    `scripts.ALPHABETS`; a text is in one of them. Where none are given, all fit.

    Raises:
        FingerprintMismatch: The dictionary was built for another tokenizer.
        SpectoolError: Nothing fits.
    """
    tokenizer.require(dictionary.tokenizer, str(dictionary.path), "give its own one with --tokenizer")
    dictionary.require_ids(tokenizer.size)
    tests = ([in_scripts(scripts)] if scripts else []) + ([in_languages(languages)] if languages else [])
    progress("reading")
    everything = predictions_of(dictionary)
    fitting = {}
    for context, prediction in everything.items():
        text = b"".join(tokenizer.surfaces[token] for token in (*as_tokens(context), *prediction.continuation))
        if all(test(text) for test in tests):
            fitting[context] = prediction
    if not fitting:
        wanted = ", ".join([*scripts, *languages])
        raise SpectoolError(
            f"{dictionary.path}: none of its {len(everything):,} entries is in {wanted}. Name what its text is in"
        )
    facts = {
        "arguments": {"method": "restrict", "scripts": list(scripts), "languages": list(languages)},
        "tokenizers": dictionary.manifest.tokenizers,
        "inputs": joined_inputs([dictionary]),
        "statistics": {"entries_before_restriction": len(everything)},
    }
    return write_best(out, fitting, bool(dictionary.chained), limits, progress, facts)
