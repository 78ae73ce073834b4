"""From what a user names to what the loop needs: models, their tokenizers, drafters."""

from pathlib import Path
from typing import Any

from spectool import RuntimeUnsupported
from spectool.artifacts.dictionary import Dictionary
from spectool.artifacts.tokenizer import Tokenizer
from spectool.artifacts.tokenizer_source import looks_like_hub_id, open_tokenizer, where
from spectool.runtime.drafter import Drafter
from spectool.runtime.hybrid import HybridDrafter
from spectool.runtime.lookup_drafter import LookupDrafter


def load_model(name: str) -> tuple[Any, Any]:
    """Load a model and its tokenizer through mlx-lm; remote code is never executed.

    Args:
        name: Directory or hub id.

    Returns:
        The model and mlx-lm's ``TokenizerWrapper``.

    Raises:
        RuntimeUnsupported: mlx-lm cannot load it; the message gives its reason.
    """
    import mlx_lm

    if not Path(name).is_dir() and not looks_like_hub_id(name):
        raise RuntimeUnsupported(
            f"{name}: no such directory, and not a hub id of the form owner/name. Expected a model in MLX format"
        )
    try:
        model, tokenizer = mlx_lm.load(name)
    except Exception as error:
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise RuntimeUnsupported(
            f"{where(name)}mlx-lm cannot load this model ({reason}). Expected a directory or hub id with "
            "config.json, *.safetensors and tokenizer.json in MLX format; convert others with `mlx_lm.convert`"
        ) from error
    return model, tokenizer


def open_dictionary(path: Path, tokenizer: Tokenizer) -> Dictionary:
    """Open a dictionary for the tokenizer in use.

    Raises:
        ArtifactError: It is damaged, or (`FingerprintMismatch`) built for another tokenizer.
    """
    dictionary = Dictionary(path)
    rebuild = f"spectool build-dict --tokenizer {tokenizer.name} -o {path} --corpus …"
    tokenizer.require(dictionary.fingerprint, str(path), rebuild)
    return dictionary


def make_drafter(
    loaded_tokenizer: Any,
    dictionary: Path | None,
    draft_model: str | None,
    history: bool,
    min_probability: float = 0.0,
) -> Drafter | None:
    """Make the drafter that the options ask for; None when they ask for none.

    Args:
        loaded_tokenizer: The target's tokenizer as mlx-lm loaded it.
        dictionary: Directory of a dictionary.
        draft_model: Directory or hub id of a draft model with the same tokenizer.
        history: Draft from the request's own tokens.
        min_probability: Least probability of a proposal from the dictionary and the history.

    Raises:
        ArtifactError: The dictionary does not fit.
        RuntimeUnsupported: The draft model cannot be loaded or has another tokenizer.
    """
    drafters: list[Drafter] = []
    tokenizer = open_tokenizer(loaded_tokenizer) if dictionary or draft_model else None
    if dictionary is not None or history:
        opened = None if tokenizer is None or dictionary is None else open_dictionary(dictionary, tokenizer)
        drafters.append(LookupDrafter(opened, history, min_probability))
    if tokenizer is not None and draft_model is not None:
        drafters.append(_model_drafter(draft_model, tokenizer))
    if len(drafters) > 1:
        return HybridDrafter(drafters)
    return drafters[0] if drafters else None


def _model_drafter(name: str, tokenizer: Tokenizer) -> Drafter:
    from spectool.runtime.model_drafter import ModelDrafter, require_same_vocabulary

    model, loaded = load_model(name)
    try:
        require_same_vocabulary(open_tokenizer(loaded).vocabulary, tokenizer.vocabulary)
    except RuntimeUnsupported as error:
        raise RuntimeUnsupported(f"{name}: {error}") from error
    return ModelDrafter(model)
