"""Counts to a dictionary, by back-off.

In: counts and a tokenizer. Out: contexts, their best next token, and its probability.
"""
