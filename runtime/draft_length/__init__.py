"""How many tokens to draft.

In: measured times of passes and drafts, accepted tokens. Out: the draft length of the next cycle.
"""
