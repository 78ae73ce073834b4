"""Joining token ids as the tokenizer itself would have split the text, without encoding text.

In: runs of ids. Out: the canonical ids of their bytes, by merges and boundaries, or through text where
nothing else is right.
"""
