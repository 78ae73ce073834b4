"""The loop: propose, verify, commit.

In: a model, a prompt, a drafter. Out: the tokens of plain decoding, with statistics of each cycle.
"""
