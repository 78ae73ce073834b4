"""Timed generations, with each drafter and without.

In: a model, drafters and prompts. Out: a run with every output and cycle, and its page.
"""
