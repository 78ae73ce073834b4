"""Build the packs that come with spectool, from sources whose licences allow it.

    python benchmarks/bundled_packs.py pl --clones ~/clones --held-out pl.valid.txt.zst

Clone the repositories of `SOURCES` into a folder first, each as NAME, OWNER/NAME or OWNER+NAME. Their text is read from
their newest commit, cleaned, and kept in .scratch/packs/LANGUAGE. Documents that share a line of 60 characters with
the held-out text are left out, so that the packs can be measured on it. The packs are written into build/packs/bundled,
with a page about them.
"""

import html
import json
import lzma
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import click

from spectool.artifacts.pack import Pack
from spectool.build.packs import PackOptions
from spectool.build.packs.stage import build_pack
from spectool.corpora import open_corpus

ROOT = Path(__file__).parent.parent
BUNDLED = ROOT / "build" / "packs" / "bundled"
OPTIONS = PackOptions(max_bytes=1_990_000, orders=4, min_count=3, min_names=10)
_SHARED = 60  # characters of a line that is no coincidence


class Source(NamedTuple):
    """Files of a repository."""

    repository: str
    pattern: str  # of the names of its files
    read: Callable[[str], Iterator[str]]  # the documents of a file
    credit: str
    most: int = 1 << 40  # bytes of text


def plain(text: str) -> Iterator[str]:
    """Plain text: lines that were broken at a width are joined, and indented titles are left as they are."""
    blocks = re.split(r"\n\s*\n", text.replace("\r", ""))
    yield "\n".join(filter(None, (" ".join(block.split()) for block in blocks)))


def paragraphs(text: str) -> Iterator[str]:
    """A paragraph a line."""
    yield "\n".join(filter(None, (" ".join(line.split()) for line in text.splitlines())))


def markdown(text: str) -> Iterator[str]:
    """Markdown with its lists and headings, without front matter, code, tables, comments and addresses."""
    text = re.sub(r"\A---\n.*?\n---\n", "", text.replace("\r", ""), flags=re.S)
    text = re.sub(r"^[ >]*(```|~~~).*?^[ >]*\1[^\n]*$", "", text, flags=re.S | re.M)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    text = re.sub(r"<[^>\n]{1,200}>|\{[/#][^}\n]*\}|^[ >]*(?:\||:::|import |export ).*$", "", text, flags=re.M)
    text = re.sub(r"!\[[^\]\n]*\]\([^)\n]*\)|^% ", "", text, flags=re.M)
    text = re.sub(r"\[([^\]\n]*)\]\([^)\n]*\)", r"\1", text)
    text = re.sub(r"\[!\w+[^\]\n]*\]|:::[^\n]*?:::", "", text)
    lines = [line.rstrip() for line in html.unescape(text).split("\n")]
    yield re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def tei(text: str) -> Iterator[str]:
    """The paragraphs and verses of a book or play in TEI."""
    root = ElementTree.fromstring(text)
    name = "{http://www.tei-c.org/ns/1.0}"
    for part in root.iter(f"{name}body"):
        lines = (
            " ".join("".join(each.itertext()).split()) for each in part.iter() if each.tag in (f"{name}p", f"{name}l")
        )
        yield "\n".join(filter(None, lines))


def wiki_questions(text: str) -> Iterator[str]:
    """The paragraphs of Wikipedia that PoQuAD asks about."""
    for article in json.loads(text)["data"]:
        parts = [article.get("summary", ""), *(each["context"] for each in article["paragraphs"])]
        yield "\n".join(dict.fromkeys(filter(None, parts)))


def speeches(text: str) -> Iterator[str]:
    """A sitting of the Sejm, a speech a line."""
    yield "\n".join(" ".join(each["tresc"].split()) for each in json.loads(text))


def transcriptions(text: str) -> Iterator[str]:
    """Pages as Wikisource has them, with words that were divided at line ends joined."""
    for line in text.split("\n"):
        page = line.split("\t")[-1].replace("\\n", "\n").replace("\\\\", "\\")
        yield " ".join(re.sub(r"-\n\s*", "", page).split())


def law(text: str) -> Iterator[str]:
    """The provisions of a statute."""
    provisions = "\n".join(each["content"] for each in json.loads(text)["provisions"])
    yield "\n".join(filter(None, (" ".join(line.split()) for line in provisions.split("\n"))))


_CC_BY = "CC BY 4.0"
SOURCES = {
    "pl": [
        Source("mereszeta/pjn", r"ustawy/.*\.txt", plain, "Polish statutes 1993–2004 (not copyrighted)"),
        Source("dracor-org/poldracor", r"tei/.*\.xml", tei, "PolDraCor, Polish plays, CC0 1.0, https://dracor.org/pol"),
        Source(
            "poleval/2021-ocr-correction",
            r"(dev-0|test-A)/expected\.tsv\.xz",
            transcriptions,
            "Polish Wikisource, books of the public domain, as transcribed for PolEval 2021",
        ),
        Source("ipipan/poquad", r"data\.json", wiki_questions, "Polish Wikipedia, its authors, CC BY-SA, in PoQuAD"),
        Source(
            "MicrosoftDocs/visualstudio-docs.pl-pl",
            r".*\.md",
            markdown,
            f"Visual Studio documentation, Microsoft, {_CC_BY}",
        ),
        Source(
            "MicrosoftDocs/Dynamics-365-Operations.pl-pl",
            r"articles/.*\.md",
            markdown,
            f"Dynamics 365 documentation, Microsoft, {_CC_BY}",
        ),
        Source(
            "poleval/2024-qa-task",
            r"test-[AB]/poquad-.*\.json",
            wiki_questions,
            "Polish Wikipedia, its authors, CC BY-SA, in PoQuAD's test sets",
        ),
        Source(
            "tgrez/sejm-ngram",
            r".*/test_data/.*\.json",
            speeches,
            "Stenographic reports of the Sejm, 1991–1992 (official material, not copyrighted)",
        ),
    ],
    "uk": [
        Source(
            "Ansvar-Systems/Ukrainian-law-mcp",
            r"data/seed/.*\.json",
            law,
            "Ukrainian statutes (not copyrighted)",
            60_000_000,
        ),
        Source(
            "Dandelliony/pluperfect_grac",
            r"PluG_texts/.*\.txt",
            paragraphs,
            "PluG: Corpus of Old Ukrainian Texts, M. Shvedova and A. Lukashevskyi, CC BY",
            120_000_000,
        ),
        Source(
            "COST-ELTeC/ELTeC-ukr", r"level1/.*\.xml", tei, "ELTeC-ukr, novels of the public domain, markup CC BY 4.0"
        ),
        Source(
            "grammarly/ua-gec",
            r"data/gec-fluency/(train|test)/target/.*\.a1\.txt|data/gec-fluency/(train|test)/target/[^.]*\.txt",
            paragraphs,
            f"UA-GEC, Grammarly, {_CC_BY}",
        ),
        Source("prosvita/QIRIMTATARTILI", r".*\.uk\.md", markdown, "QIRIMTATARTILI, Prosvita, CC0 1.0"),
        Source(
            "MicrosoftDocs/dynamics-365-project-operations-pr.uk-ua",
            r"articles/.*\.md",
            markdown,
            f"Dynamics 365 documentation, Microsoft, {_CC_BY}",
        ),
        Source(
            "isabella232/OfficeDocs-AlchemyInsights-pr.uk-UA",
            r"AlchemyInsights/.*\.md",
            markdown,
            f"Office support articles, Microsoft, {_CC_BY}",
        ),
        Source(
            "reactjs/uk.react.dev",
            r"src/content/.*\.md",
            markdown,
            f"React documentation, Meta and its translators, {_CC_BY}",
        ),
    ],
    "crh": [
        Source("prosvita/QIRIMTATARTILI", r".*\.crh(-RU)?\.md", markdown, "QIRIMTATARTILI, Prosvita, CC0 1.0"),
    ],
}
"""What each pack is made from, of its newest commit."""


def blobs(clones: Path, source: Source) -> Iterator[bytes]:
    """The files of a source, in an order that mixes its folders; those that the clone lacks are left out."""
    owner, name = source.repository.split("/")
    places = (clones / name, clones / owner / name, clones / f"{owner}+{name}")
    folder = next((place for place in places if place.is_dir()), None)
    if folder is None:
        raise click.ClickException(f"{clones}: expected a clone of https://github.com/{source.repository}, found none")
    git_dir = next(
        place for place in (folder / ".git", folder / "repo" / ".git", folder / "repo", folder) if place.is_dir()
    )
    git = ["git", f"--git-dir={git_dir}"]
    listed = subprocess.run([*git, "ls-tree", "-rz", "HEAD"], capture_output=True, check=True).stdout.decode()
    rows = (row.partition("\t") for row in listed.split("\0") if row)
    names = [row[0].split()[2] for row in rows if re.fullmatch(source.pattern, row[2])]
    with subprocess.Popen([*git, "cat-file", "--batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        for blob in sorted(names):  # hashes
            process.stdin.write(f"{blob}\n".encode())
            process.stdin.flush()
            head = process.stdout.readline().split()
            if head[-1] != b"missing":
                yield process.stdout.read(int(head[2]) + 1)[:-1]
        process.stdin.close()


def extract(clones: Path, source: Source, held_out: set[str], out: Path) -> None:
    """Write the documents of a source to a file of JSON lines."""
    documents = left = size = 0
    seen: set[str] = set()
    with out.open("w", encoding="utf-8") as stream:
        for blob in blobs(clones, source):
            raw = lzma.decompress(blob) if blob.startswith(b"\xfd7zXZ") else blob
            for text in source.read(raw.decode("utf-8", "ignore").removeprefix("\ufeff")):
                lines = [
                    line for line in text.split("\n") if len(line) < _SHARED or not (line in seen or seen.add(line))
                ]
                if any(line.strip() in held_out for line in lines):
                    left += 1
                elif text := "\n".join(lines).strip():
                    documents += 1
                    size += stream.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
            if size > source.most:
                break
    click.echo(f"{source.repository}: {documents:,} documents, {size:,} characters, {left} left out", err=True)


_HEAD = """# Bundled packs

Counts of words, from which `spectool setup MODEL --language pl` and `spectool build-dict --pack pl` make dictionaries.
No pack has n-grams of more than four words, or any that occurred less than three times. Names, numbers and all else
that is not in lower case are left out below ten occurrences. The text itself is not part of the project.

The sources are repositories on GitHub. The script that reads clones of them leaves out documents that share a line with
the text that results are measured on, and writes this page:

    python benchmarks/bundled_packs.py --clones CLONES --held-out pl.valid.txt.zst --held-out uk.valid.txt.zst \\
        --held-out crh.valid.txt.zst

Statutes and other official documents have no copyright in Poland and Ukraine.
"""
_PACK = """
## {name}

{bytes:,} bytes: {pieces:,} words, numbers and marks, and {ngrams:,} n-grams, from {occurrences:,} of them in text.

| source | repository | documents | characters |
|---|---|---:|---:|
"""
_ROW = "| {0.credit} | [{0.repository}](https://github.com/{0.repository}) | {1[documents]:,} | {1[characters]:,} |\n"


def page(languages: Iterable[str]) -> str:
    """What is bundled, from the packs themselves."""
    parts = [_HEAD]
    for language in languages:
        pack = Pack(BUNDLED / f"{language}.pack")
        occurrences = pack.manifest.statistics["occurrences"]
        numbers = {"bytes": pack.path.stat().st_size, "ngrams": len(pack), "occurrences": occurrences}
        parts.append(_PACK.format(name=pack.path.name, pieces=len(pack.pieces), **numbers))
        parts += map(_ROW.format, SOURCES[language], pack.manifest.inputs["texts"])
    return "".join(parts)


@click.command()
@click.argument("languages", nargs=-1, type=click.Choice(list(SOURCES)))
@click.option("--clones", type=click.Path(path_type=Path), required=True, help="Folder with the repositories.")
@click.option("--held-out", multiple=True, help="Text whose documents are left out, as for build-dict.")
def main(languages: tuple[str, ...], clones: Path, held_out: tuple[str, ...]) -> None:
    """Build the packs of the languages, all by default."""
    lines = {line.strip() for spec in held_out for document in open_corpus(spec) for line in document.split("\n")}
    lines = {line for line in lines if len(line) >= _SHARED}
    for language in languages or SOURCES:
        folder = ROOT / ".scratch" / "packs" / language
        folder.mkdir(parents=True, exist_ok=True)
        corpora = []
        for number, source in enumerate(SOURCES[language]):
            out = folder / f"{number}-{source.repository.rpartition('/')[2]}.jsonl"
            extract(clones, source, lines, out)
            corpora.append(open_corpus(str(out)))
        about = {"language": language, "credits": [source.credit for source in SOURCES[language]]}
        BUNDLED.mkdir(exist_ok=True)
        manifest = build_pack(
            [], corpora, about, BUNDLED / f"{language}.pack", OPTIONS, lambda step: click.echo(step, err=True)
        )
        click.echo(f"{language}: {manifest.statistics}")
    (BUNDLED / "README.md").write_text(page(sorted(SOURCES)), encoding="utf-8")


if __name__ == "__main__":
    main()
