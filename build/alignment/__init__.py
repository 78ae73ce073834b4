"""Two tokenizers to an alignment.

In: the tokenizers and sample text. Out: the vocabulary intersection, spellings, merge tables, absorption
counts, and the translation ceiling of each strategy.
"""
