"""A small draft model from text alone.

In: corpora and a tokenizer. Out: a Llama-type model with bits per byte of each corpus.
"""
