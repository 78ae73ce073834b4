"""Models, tokenizers and drafters from the names that a user gives."""

import os
import shlex
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from spectool import ArtifactError, RuntimeUnsupported, SpectoolError, TokenizerError, expanded, printable
from spectool.artifacts.artifact import read_manifest
from spectool.artifacts.default_paths import AUTO, default_path, draft_path, find_artifact, find_draft
from spectool.artifacts.dictionary import Dictionary
from spectool.artifacts.pruned_draft import honesty_of, read_record
from spectool.runtime.drafters.drafter import Drafter, DrafterSet
from spectool.runtime.drafters.lookup import LookupDrafter
from spectool.tokenization.hub_names import cached_snapshot, fetch, looks_like_hub_id, require_on_hub
from spectool.tokenization.opening import open_tokenizer, require_plain
from spectool.tokenization.tokenizer import Tokenizer

LEAST_OF_LOOKUPS = 0.05  # of the probability of a proposal that costs nothing to make
LEAST_OF_MODELS = 0.4  # of the probability of a proposal before a draft model makes another pass for it


def load_model(
    name: str,
    adapter_path: Path | None = None,
    lazy: bool = False,
    chat_template: str | None = None,
    *,
    pipeline: bool | None = None,
) -> tuple[Any, Any]:
    """The model and mlx-lm's ``TokenizerWrapper``, from a directory or hub id; remote code is never executed.

    With ``lazy``, the weights stay on disk until ``mx.eval`` or the first pass reads them. A ``chat_template`` replaces
    the model's own.

    By default each process loads all of it. Where ``pipeline`` is given, the processes that ``mlx.launch`` has started
    share it: each has some of the layers if it is true, and a part of every layer if it is false.

    Raises:
        RuntimeUnsupported: mlx-lm cannot load or spread it; the message gives its reason.
    """
    from spectool.runtime.groups.link import joined, require_shareable, world

    if pipeline is None or world().size() == 1:
        return _load(name, adapter_path, lazy, chat_template)
    if adapter_path is not None:
        raise RuntimeUnsupported(
            f"{adapter_path}: a model on several processes takes no adapter. Fuse it with `mlx_lm.fuse` first"
        )
    with joined().working():
        model, tokenizer = _load(name, None, lazy, chat_template, spread="pipeline" if pipeline else "tensor")
        require_shareable(name, model)
    return model, tokenizer


def _load(
    name: str, adapter_path: Path | None, lazy: bool, chat_template: str | None, spread: str = ""
) -> tuple[Any, Any]:
    from spectool.runtime.mlx_lm_compat import mlx_lm, sharded_load

    source, local = None, local_model(name)
    if local:
        name = str(local)
        for file in local.glob("*"):
            require_plain(file)
    elif (source := cached_snapshot(name, "*.safetensors")) is None:
        try:
            if spread:
                require_on_hub(name)  # each process fetches its part
            else:
                source = fetch(name)
        except TokenizerError as error:
            raise RuntimeUnsupported(str(error)) from error
    if adapter_path is not None and not (adapter_path / "adapter_config.json").is_file():
        raise RuntimeUnsupported(
            f"{adapter_path}: expected a LoRA adapter of mlx-lm, a directory with adapter_config.json, found none"
        )
    path = name if source is None else str(source)
    settings: dict[str, Any] = {"trust_remote_code": False}  # about which transformers would ask the user
    if chat_template:  # also of models whose own is a function of mlx-lm
        settings |= {"chat_template": chat_template, "chat_template_type": None}
    try:
        if spread:
            from spectool.runtime.groups.link import joined, require_same_model, world

            with joined().waiting():  # whose error is none of the files
                if local or source is not None:
                    require_same_model(name, Path(path))
                model, tokenizer = sharded_load(path, tokenizer_config=settings, **{f"{spread}_group": world()})
        else:
            model, tokenizer = mlx_lm.load(path, tokenizer_config=settings, adapter_path=adapter_path, lazy=lazy)
    except SpectoolError:
        raise
    except (Exception, SystemExit) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        if isinstance(error, SystemExit):  # of OLMo 1, which would also end a server
            reason = "a package that it needs is missing"
        elif local and not (Path(name) / "tokenizer.json").is_file():
            reason = f"no tokenizer.json in it; {reason}"  # which transformers does not name
        raise RuntimeUnsupported(
            f"{name}: mlx-lm cannot load this model ({reason}). Expected a directory or hub id with config.json, "
            "*.safetensors and tokenizer.json in MLX format; convert others with `mlx_lm.convert`"
        ) from error
    if source is not None:
        tokenizer._tokenizer.name_or_path = name  # which messages and manifests call it by
    return model, tokenizer


def local_model(name: str) -> Path | None:
    """The directory of a model, or of a draft in the user's cache; None for a hub id, else RuntimeUnsupported."""
    try:
        directory = expanded(find_draft(name))
        name = str(directory) if name.startswith("~") else name
        found, is_file = directory.is_dir(), directory.is_file()
    except OSError as error:
        raise RuntimeUnsupported(f"{name}: cannot be read ({error.strerror}). Check name and permissions") from error
    is_hub_id = looks_like_hub_id(name) and not (is_file or name.endswith(".gguf"))
    if not (found or is_hub_id):
        what = "is a file" if is_file else "no such directory, and not a hub id of the form owner/name"
        raise RuntimeUnsupported(
            f"{name}: {what}. Expected a directory or hub id of a model in MLX format (config.json, *.safetensors, "
            "tokenizer.json), such as those of huggingface.co/mlx-community; GGUF files cannot be read"
        )
    return directory if found else None


def open_dictionaries(
    named: str | Path | Sequence[str | Path] | None, tokenizer: Any, say: Callable[[str], object] | None = None
) -> list[Dictionary]:
    """The dictionaries that are named: files, names in the folder that build-dict writes to, or `AUTO`.

    Arguments and errors are those of `load_drafter`.
    """
    found: list[Dictionary] = []
    for name in [named] if isinstance(named, str | Path) else named or ():
        if name == AUTO:
            found += _in_folder(tokenizer, say)
        else:
            tokenizer = open_tokenizer(tokenizer)
            found.append(Dictionary(find_artifact(Path(name), ".dict")))
            rebuild = f"spectool build-dict --tokenizer {shlex.quote(tokenizer.name)} -o NEW.dict --corpus …"
            tokenizer.require(found[-1].tokenizer, str(name), rebuild)
    return found


def _in_folder(tokenizer: Any, say: Callable[[str], object] | None) -> list[Dictionary]:
    """Those in the folder that build-dict writes to, if for this tokenizer, which is only opened if there are any."""
    folder, found = default_path(""), list[Dictionary]()
    for path in sorted(folder.glob("[!.]*.dict")):
        try:
            manifest = read_manifest(path)
            if manifest.format != Dictionary.format:
                continue
            tokenizer = open_tokenizer(tokenizer)
            recorded = manifest.tokenizers.get("target")
            if recorded is None or tokenizer.matches(recorded):
                found.append(Dictionary(path))
        except TokenizerError:
            return []  # no dictionary can be for a tokenizer that spectool cannot open
        except (ArtifactError, OSError) as error:
            warn = say or partial(warnings.warn, category=RuntimeWarning, stacklevel=4)
            warn(f"warning: skipping a dictionary: {printable(str(error))}")
    if found and say is not None:
        names = ", ".join(dictionary.path.name for dictionary in found)
        say(f"drafting from {names} in {folder}, as for every model with this tokenizer; --no-dict turns this off")
    return found


def load_drafter(
    tokenizer: Any,
    *,
    dictionary: str | Path | Sequence[str | Path] | None = None,
    draft_model: str | Path | tuple[Any, Any] | None = None,
    alignment: str | Path | None = None,
    history: bool = True,
    min_probability: float | None = None,
    say: Callable[[str], object] | None = None,
) -> DrafterSet | None:
    """The drafters for a target, from dictionaries, the request's history, a draft model, or all of them.

    A drafter serves one generation after another, and keeps what they have in common: the beginning of prompts in the
    cache of its draft model, and what was learnt about draft lengths.

    Examples:
        >>> from spectool.runtime.demo_models import demo_path
        >>> load_drafter(demo_path("target"), draft_model=demo_path("draft"), min_probability=0.3)
        <DrafterSet: history, model>

    Args:
        tokenizer: The target's: mlx-lm's ``TokenizerWrapper``, or the model's directory or hub id.
        dictionary: A dictionary's file, or its name, from ``spectool build-dict``; or several. At each step the
            more probable of their guesses is taken, the last named of equal ones. ``"auto"`` stands for those in the
            folder that ``build-dict`` writes to without ``-o``, as far as they are for this tokenizer.
        draft_model: Directory or hub id of a draft model, its name in the user's cache, or the pair that
            ``mlx_lm.load`` returns. ``"auto"`` stands for the one in the cache that was last aligned with the target.
        alignment: The file of an alignment, or its name, from ``spectool align``. Where the draft's tokenizer is
            another one and none is named, it is looked for in the user's cache.
        history: Draft from repetitions in prompt and answer.
        min_probability: End proposals that become less probable than this, 0..1. Dictionary and history end before the
            token that takes them there; a draft model ends after it, since its pass is spent. By default 0.05 for
            dictionary and history, whose proposals are also cut where more tokens cost more than they promise, and 0.4
            for a draft model.
        say: Gets a line about what ``"auto"`` took, and one about each damaged dictionary that is left out. Without it,
            the latter are warnings.

    Returns:
        The drafters; None when there is nothing to draft from.

    Raises:
        ArtifactError: A dictionary or the alignment that is named is damaged, or (`FingerprintMismatch`) for other
            tokenizers.
        RuntimeUnsupported: The draft model cannot be loaded, or its tokenizer is not the target's and there is no
            alignment.
    """
    if draft_model is not None:
        tokenizer = open_tokenizer(tokenizer)
    drafters: list[Drafter] = []
    dictionaries = open_dictionaries(dictionary, tokenizer, say)
    if dictionaries or history:
        least = LEAST_OF_LOOKUPS if min_probability is None else min_probability
        drafters.append(LookupDrafter(dictionaries, history, least))
    if draft_model is not None:
        least = LEAST_OF_MODELS if min_probability is None else min_probability
        if draft_model == AUTO:
            draft_model = prepared_draft(tokenizer)
            if say is not None:
                say(f"drafting with {draft_model}, which is aligned with this tokenizer")
        drafters.append(_from_model(draft_model, tokenizer, alignment, least))
    return DrafterSet(drafters) if drafters else None


def _from_model(
    draft_model: str | Path | tuple[Any, Any], target: Tokenizer, alignment: str | Path | None, min_probability: float
) -> Drafter:
    from spectool.artifacts.alignment import Alignment

    model, loaded = draft_model if isinstance(draft_model, tuple) else load_model(str(draft_model))
    draft = open_tokenizer(loaded)
    path = None if alignment is None else find_artifact(Path(alignment), ".align")
    if path is None:
        from spectool.runtime.drafters.draft_model import ModelDrafter, vocabulary_mismatch

        if not (mismatch := vocabulary_mismatch(draft.vocabulary, target.vocabulary)):
            return ModelDrafter(model, min_probability=min_probability)
        path = alignment_for(target, draft.matches)
        if path is None:
            name = draft.name if isinstance(draft_model, tuple) else str(draft_model)
            command = f"spectool align --draft {shlex.quote(name)} --target {shlex.quote(target.name)}"
            raise RuntimeUnsupported(f"{name}: {mismatch} Or align the two: {command}")
    from spectool.runtime.drafters.model_source import ModelSource
    from spectool.runtime.drafters.translated import TranslatedDrafter
    from spectool.runtime.translation.byte_aligned import ByteAlignedTranslator

    opened = Alignment(path)
    if draft.fingerprint == target.fingerprint != opened.manifest.fingerprints["draft"]:
        raise RuntimeUnsupported(f"{alignment}: draft and target have the same tokenizer. Leave the alignment out")
    translator = ByteAlignedTranslator(opened, draft, target)
    # A draft sees the BOS that it was trained with, not the one of the target's prompt.
    size = len(opened.draft.token_bytes)
    source = ModelSource(model, bos=draft.roles.bos, size=size, min_probability=min_probability)
    return TranslatedDrafter(source, translator, honesty=honesty_of(Path(draft.name)))


def alignment_for(target: Tokenizer, fits: Callable[[Mapping[str, Any]], bool]) -> Path | None:
    """The latest alignment in the user's cache for a target whose draft's tokenizer ``fits``; None without one.

    Those that failed their check, and those of other versions, are left out.
    """
    from spectool.artifacts.alignment import Alignment, require_checked

    for path in reversed(_oldest_first(default_path("").glob("[!.]*.align"))):
        with suppress(ArtifactError, OSError):
            manifest = read_manifest(path)
            sides = manifest.tokenizers
            if (manifest.format, manifest.version) != (Alignment.format, Alignment.version) or len(sides) != 2:
                continue
            if target.matches(sides["target"]) and fits(sides["draft"]):
                require_checked(path, manifest)
                return path
    return None


def prepared_draft(target: Tokenizer) -> str:
    """The name of the draft model in the user's cache that was last aligned with a target; else RuntimeUnsupported."""
    drafts = dict[str, str]()
    for record in _oldest_first(draft_path("").glob("[!.]*/pruning.json")):
        if (manifest := read_record(record.parent)) and "pruned" in manifest.fingerprints:
            drafts[manifest.fingerprints["pruned"]] = record.parent.name
    path = alignment_for(target, lambda draft: draft["fingerprint"] in drafts)
    if path is None:
        raise RuntimeUnsupported(
            f"auto: no draft model is set up for the tokenizer of {target.name}. Set one up: spectool setup "
            f"{shlex.quote(target.name)} --language CODE --draft-model DRAFT"
        )
    return drafts[read_manifest(path).fingerprints["draft"]]


def _oldest_first(paths: Iterable[Path]) -> list[Path]:
    """Files by the time of their last change, without links that lead nowhere."""
    return sorted(filter(Path.is_file, paths), key=os.path.getmtime)
