"""Key-value caches of one text and of several, and taking tokens back out of them.

In: mlx-lm caches of every kind. Out: the same caches some tokens shorter, and what must be fed again.
"""
