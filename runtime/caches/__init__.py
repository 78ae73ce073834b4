"""Taking tokens back out of key-value caches.

In: mlx-lm caches of every kind. Out: the same caches some tokens shorter, and what must be fed again.
"""
