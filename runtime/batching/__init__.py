"""Several texts of one model at a time, each with its own drafter: one pass serves them all.

In: texts that may come and go at any token. Out: for each of them the tokens that it would get alone.
"""
