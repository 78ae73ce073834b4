"""Draft tokens of one vocabulary into those of another.

In: a draft source, an alignment, committed target ids. Out: proposals in target ids.
"""
