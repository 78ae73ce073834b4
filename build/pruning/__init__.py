"""Pruning a draft model: the ids that some languages need, a tokenizer of these ids, and the rows that belong to them.

A draft reads mostly its output matrix, which has a row for every id, so fewer ids make its passes shorter.
"""
