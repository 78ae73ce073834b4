"""Two tokenizers to an alignment.

In: the tokenizers and sample text. Out: the vocabulary intersection, a check of both sides, and absorption risks.
"""
