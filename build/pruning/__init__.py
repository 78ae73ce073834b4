"""Pruning a draft model: the ids that some languages need, a tokenizer of these ids, and the rows that belong to them.

Most of what a small draft model reads in a pass is its output matrix, which has a row for each id, so fewer ids make
it faster. In: a draft model, and packs or text. Out: a folder with the smaller model and ``pruning.json``.
"""
