"""What joins ids of one tokenizer: tables of its merges and splits (`by_ids`), or text (`by_text`)."""

from typing import NamedTuple

from spectool.tokenization.incremental.boundaries import BoundaryTable, boundary_table
from spectool.tokenization.incremental.by_ids import IncrementalBPE
from spectool.tokenization.incremental.by_text import TailReencoder
from spectool.tokenization.incremental.ids_or_text import reasons_for_text
from spectool.tokenization.incremental.merge_table import merge_table
from spectool.tokenization.incremental.merges import MergeTable
from spectool.tokenization.tokenizer import Tokenizer

IncrementalEncoder = IncrementalBPE | TailReencoder


class JoinTables(NamedTuple):
    """What joins ids of one tokenizer without text."""

    merges: MergeTable
    boundaries: BoundaryTable


def join_tables(tokenizer: Tokenizer) -> JoinTables | None:
    """The tables of a tokenizer; None for one whose ids are joined through text."""
    return JoinTables(merge_table(tokenizer), boundary_table(tokenizer)) if not reasons_for_text(tokenizer) else None


def encoder_of(tokenizer: Tokenizer, tables: JoinTables | None) -> IncrementalEncoder:
    """What joins ids of a tokenizer: tables, or text where there are none."""
    return TailReencoder(tokenizer) if tables is None else IncrementalBPE(tokenizer, *tables)
