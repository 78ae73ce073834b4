"""Counts of a language that fit every tokenizer, because they are of words: from text to a pack, and to a dictionary.

In: corpora, or packs. Out: a pack; and from packs, the counts of a tokenizer's windows.
"""
