"""spectool: speculative decoding for the languages that tokenizers treat worst.

Offline stages (`spectool.build`) turn text (`spectool.corpora`) into artifacts
(`spectool.artifacts`); a thin MLX layer (`spectool.runtime`) loads them at generation
time. The root holds the version and the errors that all four share.
"""

__version__ = "0.1.0"

__all__ = [
    "ArtifactError",
    "CorpusError",
    "FingerprintMismatch",
    "IncompleteArtifact",
    "RuntimeUnsupported",
    "SpectoolError",
    "TokenizerError",
    "__version__",
]


class SpectoolError(Exception):
    """Anything a user can put right: the message says what, expected, got and the next command."""


class TokenizerError(SpectoolError):
    """A tokenizer cannot be found, read or used for what was asked."""


class CorpusError(SpectoolError):
    """A text source is missing, damaged or not what its name says; names the file and the place."""


class ArtifactError(SpectoolError):
    """An artifact is damaged, unsafe or of a format this version does not read."""


class IncompleteArtifact(ArtifactError):
    """A directory without a manifest: the build that should have made it did not finish."""


class FingerprintMismatch(ArtifactError):
    """An artifact was built for another tokenizer than the one in use."""


class RuntimeUnsupported(SpectoolError):
    """A model, cache or option that the runtime cannot serve without changing the output."""
