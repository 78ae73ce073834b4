"""Built-in prompts: as many of each kind and language, clean text in the letters of the language, none told twice."""

import re
import tomllib
import unicodedata
from collections import Counter
from importlib import resources

import pytest

LANGUAGES = ("crh-cyrl", "crh", "en", "pl", "uk")
WORDS = {  # least and most
    **{"encyclopaedic": (25, 60), "instruction": (5, 60), "composition": (9, 60), "question": (5, 15), "list": (8, 60)}
}
PROMPT_KINDS = tuple(WORDS)
LATIN = "abcdefghijklmnopqrstuvwxyz"
LETTERS = {
    "crh": "aâbcçdefgğhıijklmnñoöpqrsştuüvyz",
    "crh-cyrl": "абвгдеёжзийклмнопрстуфхцчшщъыьэюя",
    "en": LATIN,
    "pl": "aąbcćdeęfghijklłmnńoóprsśtuwyzźż",
    "uk": "абвгґдеєжзиіїйклмнопрстуфхцчшщьюя",
}
MARKS = frozenset(' \n0123456789.,:;?-–—_’“”„«»"|/=()[]{}§№')
ROMAN = re.compile(r"\b[IVX]+\b")
SENTENCE_END = re.compile(r"[.?!][”»]?(?= |$)")
RUN = 12  # words


def prompts_of(language: str) -> list[dict[str, str]]:
    file = resources.files("spectool.measure.bench") / "prompts" / f"{language}.toml"
    read = tomllib.loads(file.read_text(encoding="utf-8"))
    assert tuple(read) == PROMPT_KINDS
    return [
        {"name": f"{kind}-{number}", "kind": kind, "text": text}
        for kind, texts in read.items()
        for number, text in enumerate(texts, 1)
    ]


each = pytest.mark.parametrize("language", LANGUAGES)


def lowered(text: str, language: str) -> str:
    """Lower-case ``text``; Crimean Tatar has two letters i."""
    return (text.replace("İ", "i").replace("I", "ı") if language == "crh" else text).lower()


def test_each_language_has_a_file() -> None:
    folder = resources.files("spectool.measure.bench") / "prompts"
    assert sorted(file.name for file in folder.iterdir()) == [f"{language}.toml" for language in LANGUAGES]


@each
def test_there_are_twelve_prompts_of_each_kind(language: str) -> None:
    assert Counter(prompt["kind"] for prompt in prompts_of(language)) == dict.fromkeys(PROMPT_KINDS, 12)


def test_crimean_tatar_prompts_are_the_same_in_both_scripts() -> None:
    """Word by word: what is left without letters is the same."""
    latin, cyrillic = ([re.sub(r"[^\W\d]+", "a", p["text"]) for p in prompts_of(code)] for code in ("crh", "crh-cyrl"))
    assert latin == cyrillic


@each
def test_prompts_are_clean_text(language: str) -> None:
    for prompt in prompts_of(language):
        name, text = prompt["name"], prompt["text"]
        assert unicodedata.is_normalized("NFC", text), name
        assert text == text.lstrip(), name
        # A line may be indented; a new line at the end lets a list go on with a line of its own.
        assert not re.search(r"\S {2}| (\n|$)|\n{3}|\n\n$", text), f"{name}: spaces that say nothing"
        assert prompt["kind"] == "list" or "\n" not in text, name


@each
def test_prompts_are_written_in_the_letters_of_their_language(language: str) -> None:
    """Records may have Latin keys, chemical symbols and the like; Roman numbers are Latin everywhere."""
    for prompt in prompts_of(language):
        letters = LETTERS[language] + (LATIN if prompt["kind"] == "list" else "")
        others = set(lowered(ROMAN.sub("", prompt["text"]), language)) - MARKS - set(letters)
        assert not others, prompt["name"]


@each
def test_prompts_have_the_form_of_their_kind(language: str) -> None:
    for prompt in prompts_of(language):
        name, text = prompt["name"], prompt["text"]
        words, sentences = len(re.findall(r"\w[\w’-]*", text)), len(SENTENCE_END.findall(text))
        shortest, longest = WORDS[prompt["kind"]]
        assert shortest <= words <= longest, name
        match prompt["kind"]:
            case "encyclopaedic":
                assert text[-1].isalpha() or text[-1] in ",—", f"{name}: nothing breaks off"
                assert sentences >= 1, name
            case "instruction" | "composition":
                assert 1 <= sentences <= 3, name
                assert SENTENCE_END.search(text[-2:]), f"{name}: breaks off"
            case "question":
                assert text.endswith("?"), name
                assert sentences == 1, name
            case "list":
                assert len(text.splitlines()) >= 4, name
                assert not text.endswith((".", "}", "]")) or re.search(r"\n\d+\.$", text), f"{name}: nothing breaks off"


def test_no_two_prompts_share_a_run_of_words() -> None:
    """A run of twelve words stands in one prompt only; a shorter prompt counts as one run."""
    seen: dict[tuple[str, ...], str] = {}
    for language in LANGUAGES:
        for prompt in prompts_of(language):
            words = re.findall(r"\w+", lowered(prompt["text"], language))
            name = f"{language}-{prompt['name']}"
            for first in range(max(1, len(words) - RUN + 1)):
                run = tuple(words[first : first + RUN])
                assert seen.setdefault(run, name) == name, f"{name}: {' '.join(run)}"
