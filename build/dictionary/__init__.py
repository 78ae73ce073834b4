"""Counts to a dictionary: by back-off (the default) or by the DictSpec paper.

In: counts and a tokenizer. Out: contexts, their best continuation, and its probability.
"""
