"""Options by which commands name what they read and write; each takes further arguments of `click.option`."""

from functools import partial
from pathlib import Path

import click

tokenizer_option = partial(click.option, "--tokenizer", "--model", "tokenizer", metavar="T")
"""A tokenizer: directory, tokenizer.json or hub id."""

draft_option = partial(click.option, "--draft", "--draft-model", "draft", required=True)
"""A draft model, or its tokenizer."""

target_option = partial(click.option, "--target", "--model", "target", required=True)
"""The target, likewise."""

corpora_option = partial(click.option, "--corpus", "corpora", required=True, multiple=True, metavar="[NAME=]SPEC")
"""Corpora, each with a name or without."""

path_option = partial(click.option, type=click.Path(path_type=Path))
"""A file or directory."""
