"""A draft model tuned towards its target, in several languages at once.

In: a draft, a target and texts. Out: the tuned draft, with divergence and acceptance of each language.
"""
