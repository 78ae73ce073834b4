"""Generations side by side, timed.

In: models, prompts and configurations. Out: a benchmark artifact with every cycle.
"""
