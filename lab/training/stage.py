"""The stage behind ``spectool lab train-draft``: text and a tokenizer in, a small model out.

Text becomes a stream of ids (`text`), and ids become classes (`classes`). The seed and the number of a step decide
which rows it learns (`Feed`). The model is written over all ids and measured as mlx-lm loads it (`bits_per_byte`).
"""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.nn.utils import value_and_grad
from mlx.utils import tree_flatten

from spectool import TokenizerError
from spectool.commands.shared.console import say
from spectool.lab.mlx_lm_training import Model, ModelArgs, save_config
from spectool.lab.resumable import resumable_work
from spectool.lab.training.bits_per_byte import code_length, total_length
from spectool.lab.training.classes import Classes, choose_classes, classes_of, loss_of
from spectool.lab.training.options import TrainOptions, check_training
from spectool.lab.training.run import CHECKPOINT, TrainingRun, finished_training
from spectool.lab.training.text import (
    Delimiters,
    Feed,
    TrainingCorpus,
    TrainingText,
    delimiters_of,
    read_training_text,
)
from spectool.runtime.mlx_lm_compat import mlx_lm
from spectool.tokenization.fingerprint import short
from spectool.tokenization.opening import open_tokenizer
from spectool.tokenization.tokenizer import Tokenizer

_TABLES = ("model.embed_tokens.weight", "lm_head.weight")  # a row for each id
_VERSION = 4  # of how arguments make a model


def save_model(model: Model, config: dict[str, Any], classes: Classes, folder: Path) -> dict[str, int]:
    """Write a model over classes as one over all ids, each with the row of its class.

    Returns:
        Number of parameters stored, and of those that are not rows of ids.
    """
    weights: Any = tree_flatten(model.parameters(), destination={})
    inner = sum(weight.size for name, weight in weights.items() if name not in _TABLES)
    of_id = mx.array(classes.of_id)
    weights |= {name: weights[name][of_id] for name in _TABLES if name in weights}
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    save_config({**config, "vocab_size": len(classes.of_id)}, folder / "config.json")
    return {"stored": sum(weight.size for weight in weights.values()), "without_embeddings": inner}


def save_tokenizer(tokenizer: Tokenizer, delimiters: Delimiters, folder: Path) -> None:
    """Write ``tokenizer.json`` and ``tokenizer_config.json``, without a chat template.

    Raises:
        TokenizerError: transformers makes another tokenizer of them.
    """
    strings = {number: string for string, number in tokenizer.vocabulary.items()}
    roles = {
        "bos_token": tokenizer.roles.bos,
        "eos_token": delimiters.last,
        "pad_token": tokenizer.roles.pad,
        "unk_token": tokenizer.unknown,
    }
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    config |= {role: strings[number] for role, number in roles.items() if number is not None}
    tokenizer.backend.save(str(folder / "tokenizer.json"), pretty=False)
    text = json.dumps(config, ensure_ascii=False, indent=2)
    (folder / "tokenizer_config.json").write_text(text + "\n", encoding="utf-8")
    stored = open_tokenizer(folder)
    if stored.fingerprint != tokenizer.fingerprint:
        raise TokenizerError(
            f"{tokenizer.name}: transformers makes another tokenizer of it ({short(stored.fingerprint)}, expected "
            f"{short(tokenizer.fingerprint)}). Give its directory instead of a file, or update transformers"
        )


def train_from_scratch(
    sources: Mapping[str, TrainingCorpus],
    tokenizer: Tokenizer,
    out: Path,
    options: TrainOptions,
) -> dict[str, Any]:
    """Train a model from random weights, write it to ``out`` for `mlx_lm.load`, and return its record.

    The same call resumes a training that was killed at its last checkpoint, with the same numbers as without the kill.
    On a CPU they are equal to the bit; an accelerator may add in another order. Until the model is written, the work is
    kept next to ``out``.

    Raises:
        SpectoolError: Options do not fit together, the text is too short, another training runs in the same place, or
            the loss is no longer a number.
    """
    check_training(options)
    delimiters = delimiters_of(tokenizer)
    key = options.key(
        tokens=options.text_tokens,
        delimiters=delimiters._asdict(),
        tokenizer=tokenizer.fingerprint,
        corpora={name: source.identity for name, source in sources.items()},
        version=_VERSION,
    )
    record = finished_training(out, key)
    if record is not None:
        return record
    with resumable_work(out, key, what="training", keep=(CHECKPOINT,), begin_anew=False) as work:
        text = read_training_text(sources, tokenizer, delimiters, options)
        run = _Training(tokenizer, options, delimiters, text, work)
        run.train()
        return run.write(key, out)


class _Training(TrainingRun[TrainOptions]):
    def __init__(
        self,
        tokenizer: Tokenizer,
        options: TrainOptions,
        delimiters: Delimiters,
        text: TrainingText,
        work: Path,
    ) -> None:
        self._tokenizer, self._delimiters, self._text = tokenizer, delimiters, text
        self._classes = classes_of(text.stream, tokenizer.size, options.min_count)
        self._rare = float(np.mean(self._classes.of_id[text.stream] == self._classes.common))
        ids = {"bos_token_id": delimiters.begin, "eos_token_id": delimiters.last}
        self._config = {**options.shape, **ids, "vocab_size": self._classes.number}
        mx.random.seed(options.seed)
        model = Model(ModelArgs.from_dict(self._config))
        parameters: Any = tree_flatten(model.parameters())
        self._parameters = sum(weight.size for _, weight in parameters)
        self._feed = Feed(text.stream, options)
        held_out = sum(kept.tokens for kept in text.held_out.values())
        say(
            f"{self._parameters:,} parameters, {self._classes.common:,} common ids of {tokenizer.size:,} "
            f"({self._rare:.2%} of the text are others), {len(text.stream):,} tokens of text, {held_out:,} held out"
        )
        super().__init__(work, model, options, options.rate)
        self._loss_and_gradients = value_and_grad(model, partial(loss_of, model))
        self._state = [model.state, self._optimizer.state]
        self._compiled_update = mx.compile(self.update, inputs=self._state, outputs=self._state)

    def step(self, step: int) -> tuple[float, int]:
        options = self._options
        rows = self._classes.of_id[self._feed.rows(step)]
        rng = np.random.default_rng([options.seed, step, 0])
        chosen, offsets = choose_classes(rows[:, 1:].reshape(-1), self._classes, options.softmax_classes, rng)
        loss, gradients = self._loss_and_gradients(mx.array(rows), mx.array(chosen), mx.array(offsets))
        self._compiled_update(gradients)
        mx.eval(loss, self._state)
        return float(loss.item()), options.step_tokens

    def measure(self, step: int) -> tuple[float | None, str]:
        texts = self._text.held_out.values()
        bits = total_length(
            code_length(self._model, text, self._options.length, self._classes) for text in texts
        ).bits_per_byte
        return bits, f"{bits:.3f} bits/byte"

    def store(self, folder: Path) -> dict[str, Any]:
        classes = self._classes
        parameters = save_model(self._model, self._config, classes, folder)
        save_tokenizer(self._tokenizer, self._delimiters, folder)
        model = mlx_lm.load(str(folder))[0]
        held_out = self._text.held_out.items()
        measured = {name: code_length(model, text, self._options.length) for name, text in held_out}
        return {
            "seed": self._options.seed,
            "held_out": {
                **total_length(measured.values()).figures,
                "corpora": {name: found.figures for name, found in measured.items()},
            },
            "parameters": {"trained": self._parameters, **parameters},
            "vocabulary": {"common": classes.common, "rare": classes.rare, "rare_share_of_text": self._rare},
            "text": {"tokens": len(self._text.stream), "corpora": self._text.inputs},
            "tokenizer": self._tokenizer.identity,
        }
