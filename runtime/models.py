"""Models that mlx-lm loads, and errors that say why it could not."""

from pathlib import Path
from typing import Any

from spectool import RuntimeUnsupported, TokenizerError
from spectool.tokenization.opening import looks_like_hub_id, require_on_hub, where


def load_model(name: str, adapter_path: Path | None = None, lazy: bool = False) -> tuple[Any, Any]:
    """Load a model and its tokenizer through mlx-lm; remote code is never executed.

    Args:
        name: Directory or hub id.
        adapter_path: Directory of a trained adapter to put on it.
        lazy: Leave the weights on disk until ``mx.eval`` or the first pass reads them.

    Returns:
        The model and mlx-lm's ``TokenizerWrapper``.

    Raises:
        RuntimeUnsupported: mlx-lm cannot load it; the message gives its reason.
    """
    from spectool.runtime.mlx_lm_compat import mlx_lm

    local = Path(name).is_dir()
    if not local:
        if not looks_like_hub_id(name):
            what = "is a file" if Path(name).is_file() else "no such directory, and not a hub id of the form owner/name"
            raise RuntimeUnsupported(
                f"{name}: {what}. Expected a directory or hub id of a model in MLX format (config.json, *.safetensors, "
                "tokenizer.json), such as those of huggingface.co/mlx-community; GGUF files cannot be read"
            )
        try:
            require_on_hub(name)
        except TokenizerError as error:
            raise RuntimeUnsupported(str(error)) from error
    try:
        model, tokenizer = mlx_lm.load(
            name,
            tokenizer_config={"trust_remote_code": False},  # transformers would ask the user
            adapter_path=None if adapter_path is None else str(adapter_path),
            lazy=lazy,
        )
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        if local and not (Path(name) / "tokenizer.json").is_file():
            reason = f"no tokenizer.json in it; {reason}"  # which transformers does not name
        raise RuntimeUnsupported(
            f"{where(name)}mlx-lm cannot load this model ({reason}). Expected a directory or hub id with "
            "config.json, *.safetensors and tokenizer.json in MLX format; convert others with `mlx_lm.convert`"
        ) from error
    return model, tokenizer
