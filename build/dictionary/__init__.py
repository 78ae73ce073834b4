"""Counts to a dictionary, by back-off; several dictionaries to one.

In: counts and a tokenizer. Out: contexts, their best next token, and its probability.
"""
