"""The loop: propose, verify, commit, for one text or several.

In: a model, prompts, drafters. Out: the tokens of plain decoding, with statistics of each cycle.
"""
