"""How far to draft: what passes cost here, what drafting may lose, and which proposal is worth its pass.

In: a measured curve, proposals with stated probabilities, committed tokens. Out: the proposal of the next pass.
"""
