"""Joining token ids as the tokenizer itself would have split the text, encoding as little text as possible.

In: runs of ids. Out: the canonical ids of their bytes, by sure borders and what was encoded before, or through text
where nothing else is right.
"""
