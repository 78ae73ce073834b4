"""Lines of the product by subject, docstrings and blank lines included.

python benchmarks/subjects.py
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SUBJECTS = {  # files and folders; the first subject that has a file counts it
    "timing passes": "runtime/policy/measuring.py",
    "how far to draft": "runtime/policy",
    "bench": "measure/bench measure/intervals.py measure/table.py commands/bench.py",
    "predict and doctor": "measure commands/predict.py commands/doctor.py",
    "packs": "build/packs artifacts/pack.py commands/pack.py",
    "counting": "build/counting.py",
    "dictionaries": "build/dictionary build/corpus_reading.py artifacts/dictionary.py",
    "pruning": "build/pruning",
    "translation, joining, alignment": (
        "runtime/translation runtime/drafters/translated.py runtime/drafters/model_source.py tokenization/incremental "
        "build/alignment artifacts/alignment.py"
    ),
    "corpora": "corpora",
    "reading tokenizers": "tokenization",
    "artifacts": "artifacts commands/inspect.py commands/verify.py",
    "server and grammar": "serve runtime/grammar.py",
    "several machines": "runtime/groups runtime/groups.py",
    "vLLM": "runtime/vllm_proposer.py",
    "the rest of the runtime": "runtime",
    "the rest of the commands": "commands cli.py __init__.py",
}
ELSEWHERE = "tests", "lab", "benchmarks", "docs"


def lines_of(path: Path) -> int:
    """Lines of a file."""
    return len(path.read_text(encoding="utf-8").splitlines())


def main() -> None:
    """Count and print."""
    found = [
        path.relative_to(ROOT) for path in ROOT.rglob("*.py") if not path.relative_to(ROOT).parts[0].startswith(".")
    ]
    left = {path for path in found if path.parts[0] not in ELSEWHERE}
    total = 0
    for subject, names in SUBJECTS.items():
        mine = {path for path in left if any(path.is_relative_to(name) for name in names.split())}
        left -= mine
        count = sum(lines_of(ROOT / path) for path in mine)
        total += count
        print(f"{subject:<40}{count:>8,}")
    for path in sorted(left):
        print(f"{path!s:<40}{lines_of(ROOT / path):>8,}")
        total += lines_of(ROOT / path)
    print(f"{'the product':<40}{total:>8,}")
    for room in ELSEWHERE:
        count = sum(lines_of(ROOT / path) for path in found if path.parts[0] == room)
        print(f"{room:<40}{count:>8,}")


if __name__ == "__main__":
    main()
