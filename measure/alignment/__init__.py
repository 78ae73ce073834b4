"""Two tokenizers side by side: what a draft that is always right would save.

In: a finished alignment, sample text. Out: tokens per pass of every strategy, which `align` adds to its report.
"""
