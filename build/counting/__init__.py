"""Text to counts: windows of tokens, exactly and in bounded memory.

In: a corpus. Out: sorted n-grams with their counts, as an artifact.
"""
