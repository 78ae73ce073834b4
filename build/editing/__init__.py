"""Dictionaries from dictionaries: merging, restricting, and the formats of other programs.

In: one or more dictionaries. Out: a dictionary, or a llama.cpp lookup cache.
"""
