"""The format of a pruned draft model: an ordinary model directory with a manifest that says what it was made from."""

from spectool.artifacts.artifact import Artifact


class PrunedDraft(Artifact):
    """A pruned draft model."""

    format, version, roles = "spectool-pruned-draft", 1, ("whole",)
    again = "Prune the draft model again"
    rebuild = "spectool prune-draft --draft {whole} --corpus … -o {path}"
