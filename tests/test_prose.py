"""Documents and docstrings are written in short sentences: at most 25 words each."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = ["README.md", "CONTRIBUTING.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
GENERATED = ("docs/cli.md",)  # from help texts
LONGEST = 25  # words
ROOMS = ("artifacts", "benchmarks", "build", "corpora", "measure", "runtime", "tests")
SECTIONS = ("Args:", "Attributes:", "Raises:", "Returns:", "Yields:")


def sentences(markdown: str) -> list[str]:
    """Return the sentences of a document: no blocks of code, no tables, no headings; links as they read."""
    markdown = re.sub(r"^```.*?^```", "", markdown, flags=re.MULTILINE | re.DOTALL)
    markdown = re.sub(r"^\s*(\||#|---|!\[).*$", "\n", markdown, flags=re.MULTILINE)
    markdown = re.sub(r"^\s*([-*]|\d+\.)\s", "\n\n", markdown, flags=re.MULTILINE)
    markdown = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", markdown)
    blocks = re.split(r"\n\s*\n", markdown)
    return [part for block in blocks for part in split(block)]


def split(block: str) -> list[str]:
    """Return the sentences of a paragraph, ``code`` in place of each word of code."""
    block = re.sub(r"`+([^`]*)`+", lambda code: " ".join("code" for _ in code[1].split()), " ".join(block.split()))
    return [part for part in re.split(r"(?<=[.!?])[)*\"”]*\s+(?=[(*\"“]*[A-ZŁŚŻa-z0-9])", block) if part]


def paragraphs(docstring: str) -> Iterator[str]:
    """Yield the prose of a docstring: no indented blocks, no examples, no sources."""
    for block in re.split(r"\n\s*\n", inspect.cleandoc(docstring)):
        head, *rest = block.split("\n")
        if head == "Examples:":
            continue
        if head in SECTIONS:
            yield from re.split(r"(?:^|\n) {4}(?:[\w*]+(?:, [\w*]+)*: )?(?! )", "\n".join(rest))
        elif not head.startswith((" ", ">>>", "\b", "Source")):
            yield from re.split(r"(?:^|\n)[-*] ", block)


def words(sentence: str) -> int:
    """Return the number of words, those of commands and other code within the sentence included."""
    return len([word for word in sentence.split() if re.search(r"\w", word)])


@pytest.mark.parametrize("name", [name for name in DOCUMENTS if name not in GENERATED])
def test_sentences_are_short(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    long = [sentence for sentence in sentences(text) if words(sentence) > LONGEST]
    assert not long, f"{name}: {len(long)} sentences of more than {LONGEST} words:\n" + "\n".join(long)


@pytest.mark.parametrize("room", ROOMS)
def test_sentences_of_docstrings_are_short(room: str) -> None:
    long = []
    for file in sorted((ROOT / room).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                found = [part for block in paragraphs(ast.get_docstring(node) or "") for part in split(block)]
                long += [f"{file.relative_to(ROOT)}: {part}" for part in found if words(part) > LONGEST]
    assert not long, f"{len(long)} sentences of more than {LONGEST} words:\n" + "\n".join(long)


def test_what_counts_as_a_sentence() -> None:
    assert sentences("# Head\n\nOne two. Three `a b`:\n\n- four\n- five [six](x)\n\n| a | b |\n") == [
        "One two.",
        "Three code code:",
        "four",
        "five six",
    ]


def test_what_counts_as_prose_of_a_docstring() -> None:
    docstring = """First.

    Second. ``A b`` third.

        not prose

    Args:
        one: Fourth
            goes on.
        *two: Fifth.

    Source: nobody.
    """
    found = [part for block in paragraphs(docstring) for part in split(block)]
    assert found == ["First.", "Second.", "code code third.", "Fourth goes on.", "Fifth."]
