"""Timed generations, with each drafter and without.

In: models, prompts and configurations. Out: a benchmark artifact with every cycle.
"""
