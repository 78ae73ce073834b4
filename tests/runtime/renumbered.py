"""The demo target under another tokenizer: a draft model that knows exactly what the target would say, in other ids."""

import json
import random
import shutil
from pathlib import Path

import mlx.core as mx

from spectool.build.alignment.stage import build_alignment
from spectool.corpora import open_corpus
from spectool.runtime.demo_models import demo_path
from spectool.tokenization.opening import open_tokenizer


def renumbered_target(folder: Path) -> tuple[str, str]:
    """Write it into ``folder``, its ids shuffled but for the special ones; return its path and an alignment's."""
    path, alignment = folder / "renumbered", folder / "renumbered.align"
    shutil.copytree(demo_path("target"), path)
    spec = json.loads((path / "tokenizer.json").read_text(encoding="utf-8"))
    specials = {token["id"] for token in spec["added_tokens"]}
    places = [place for place in range(len(spec["model"]["vocab"])) if place not in specials]
    new = dict(zip(places, random.Random(5).sample(places, len(places)), strict=True))
    spec["model"]["vocab"] = {name: new.get(token, token) for name, token in spec["model"]["vocab"].items()}
    (path / "tokenizer.json").write_text(json.dumps(spec, ensure_ascii=False), encoding="utf-8")
    old = {number: token for token, number in new.items()}
    rows = mx.array([old.get(token, token) for token in range(len(spec["model"]["vocab"]))])
    weights = mx.load(str(path / "model.safetensors"))
    assert isinstance(weights, dict)
    weights |= {name: part[rows] for name, part in weights.items() if name.startswith("model.embed_tokens.")}
    mx.eval(weights)
    (path / "model.safetensors").unlink()
    mx.save_safetensors(str(path / "model.safetensors"), weights)
    sides = open_tokenizer(path), open_tokenizer(demo_path("target"))
    build_alignment(*sides, open_corpus("sample:pl"), alignment, lambda step: None, sample=0)
    return str(path), str(alignment)
