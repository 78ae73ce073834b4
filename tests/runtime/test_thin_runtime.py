"""What a generation imports: few modules, few lines, and none that have nothing to do with generating."""

import json
import subprocess
import sys
from pathlib import Path

from spectool.artifacts.tokenizer.opening import open_tokenizer
from spectool.build.alignment.stage import build_alignment
from spectool.build.counting.options import CountOptions
from spectool.build.dictionary.backoff_stage import count_and_build
from spectool.build.dictionary.options import BackoffOptions
from spectool.corpora import open_corpus, sample_path
from spectool.runtime.demo_models import demo_path

MOST_MODULES, MOST_LINES = 30, 4100

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
print(json.dumps({name: file for name, file in ours.items() if file and Path(file).stem != "__init__"}))
"""


def test_a_generation_imports_little(tmp_path: Path) -> None:
    target, sample = open_tokenizer(demo_path("target")), open_corpus(str(sample_path("pl")))
    limits = CountOptions(min_count=1)
    count_and_build(target, sample, tmp_path / "pl.dict", BackoffOptions(entries=200), limits, lambda step: None)
    build_alignment(target, target, sample, tmp_path / "pair.align", lambda step: None, sample=0)
    command = [sys.executable, "-c", GENERATE, str(demo_path("target")), str(demo_path("draft")), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    files: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    lines = {name: len(Path(file).read_text(encoding="utf-8").splitlines()) for name, file in files.items()}
    for name, count in sorted(lines.items()):
        print(f"{count:5}  {name}")
    runtime = {name: count for name, count in lines.items() if name.startswith("spectool.runtime.")}
    total = sum(lines.values())
    print(f"runtime {len(runtime)} modules, {sum(runtime.values()):,} lines; with artifacts {len(lines)}, {total:,}")
    assert "spectool.runtime.translation.anchored" in runtime and "spectool.runtime.drafters.model_source" in runtime
    assert not [name for name in lines if name.split(".")[1] not in ("runtime", "artifacts")]
    assert not [name for name in runtime if name.split(".")[2] in ("commands", "serve")]
    assert len(runtime) <= MOST_MODULES
    assert sum(runtime.values()) <= MOST_LINES
