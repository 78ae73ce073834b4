"""Dictionaries and alignments for the experiments on small trained models, made once and kept in .scratch/artifacts.

    python benchmarks/train_models.py pl uk      # once
    python benchmarks/small_artifacts.py

Corpora come from the folder named by SPECTOOL_SHARED.
"""

from real_artifacts import alignment, alignment_of, dictionary, dictspec
from train_models import MODELS


def main() -> None:
    """Make what is not there yet."""
    polish, ukrainian = MODELS / "pl", MODELS / "uk"
    for recipe, language, drafts in ((polish, "pl", ("qwen", "apt4")), (ukrainian, "uk", ("qwen", "bielik"))):
        dictionary(recipe, language)
        for draft in drafts:
            alignment(recipe, draft, language)
    alignment_of("pl-llama", ukrainian / "target", polish / "target", "pl")
    for language in ("uk", "crh"):
        dictspec(f"dictspec-{language}", ukrainian / "target", language)


if __name__ == "__main__":
    main()
