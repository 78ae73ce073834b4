"""Measures which languages a draft serves worst.

In: a target, drafts, texts in several languages. Out: acceptance, divergence and speed-up of each.
"""
