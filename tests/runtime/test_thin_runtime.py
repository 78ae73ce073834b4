"""What a generation imports: nothing that has nothing to do with generating."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from spectool.build.alignment.stage import build_alignment
from spectool.build.dictionary import BackoffOptions
from spectool.build.packs.stage import count_and_build
from spectool.corpora import open_corpus, sample_path
from spectool.runtime.demo_models import demo_path
from spectool.tokenization.opening import open_tokenizer

GENERATE = """
import json, sys
from pathlib import Path
from mlx_lm import load
from spectool.runtime import load_drafter, stream_generate

target, draft, work = sys.argv[1:]
model, tokenizer = load(target)
drafter = load_drafter(tokenizer, dictionary=f"{work}/pl.dict", draft_model=load(draft), alignment=f"{work}/pair.align")
for response in stream_generate(model, tokenizer, "Most w", drafter=drafter, max_tokens=24):
    pass
ours = {name: module.__file__ for name, module in sys.modules.items() if name.partition(".")[0] == "spectool"}
others = sorted({"pandas", "scipy", "matplotlib", "llguidance"} & sys.modules.keys())
assert not others, others
print(json.dumps({name: file for name, file in ours.items() if file and Path(file).stem != "__init__"}))
"""


@pytest.mark.nightly
def test_a_generation_imports_only_the_runtime(tmp_path: Path) -> None:
    target, sample = open_tokenizer(demo_path("target")), open_corpus(str(sample_path("pl")))
    options = BackoffOptions(max_bytes=14_000, min_count=1)
    count_and_build(target, sample, tmp_path / "pl.dict", options, lambda step: None)
    build_alignment(target, target, sample, tmp_path / "pair.align", lambda step: None, sample=0)
    command = [sys.executable, "-c", GENERATE, str(demo_path("target")), str(demo_path("draft")), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    files: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    rooms = {name.split(".")[1] for name in files}
    assert {"spectool.runtime.translation.byte_aligned", "spectool.runtime.drafters.model_source"} <= files.keys()
    assert rooms <= {"runtime", "artifacts", "tokenization"}
