"""How far to guess.

In: measured times of passes and drafts, accepted tokens. Out: the draft length of the next cycle.
"""
