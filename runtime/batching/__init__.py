"""Several prompts at once.

In: prompts, each with its drafter. Out: for each of them the text that it would get alone.
"""
