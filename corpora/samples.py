"""Text with a short name: the bundled samples, and presets.

The samples are for demonstrations and offline tests: a paragraph a line, and an empty line between documents.
"""

from importlib.resources import files
from pathlib import Path

from spectool import CorpusError

_FOLDER = Path(str(files("spectool.corpora"))) / "samples"


def sample_names() -> list[str]:
    """Names of the bundled samples, sorted."""
    return sorted(path.stem for path in _FOLDER.glob("*.txt"))


def sample_path(name: str) -> Path:
    """The file of a bundled sample, or the folder of all of them for ``all``."""
    if name == "all":
        return _FOLDER
    if name not in sample_names():
        known = ", ".join(f"sample:{known}" for known in sample_names())
        raise CorpusError(f"sample:{name}: no such sample. Bundled: {known}; sample:all is all of them")
    return _FOLDER / f"{name}.txt"


# Wikipedia has an article a document. CulturaX is cleaned web text, and QIRIM books, press and subtitles in both
# scripts; their terms have to be accepted on their hub pages first. The Aya collection has instructions and answers, of
# which most are translated by machine; the answers alone are read.
PRESETS = {
    "wiki-pl": "hf:wikimedia/wikipedia:20231101.pl#text",
    "wiki-uk": "hf:wikimedia/wikipedia:20231101.uk#text",
    "culturax-pl": "hf:uonlp/CulturaX:pl#text",
    "culturax-uk": "hf:uonlp/CulturaX:uk#text",
    "qirim-crh": "hf:QIRIM/crh_monocorpus#text",
    "answers-pl": "hf:CohereLabs/aya_collection_language_split:polish#targets",
    "answers-uk": "hf:CohereLabs/aya_collection_language_split:ukrainian#targets",
}
"""The source of every preset, by the name that the user types."""


def preset_for(language: str) -> str:
    """The name of the first preset in a language, which is given by its code.

    Raises:
        CorpusError: No preset is in that language.
    """
    languages = {name.rpartition("-")[2]: name for name in reversed(PRESETS)}
    if language not in languages:
        raise CorpusError(
            f"{language}: no preset has text in this language, only in {', '.join(sorted(languages))}. Name text with "
            f"--corpus FILE, or take its Wikipedia: --corpus hf:wikimedia/wikipedia:20231101.{language}. To count a "
            f"large one once for all models: spectool pack TEXT --language {language} -o {language}.pack"
        )
    return languages[language]
