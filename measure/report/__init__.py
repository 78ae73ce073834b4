"""A benchmark run becomes a page.

In: a benchmark artifact. Out: HTML and Markdown with verdicts, intervals and plots.
"""
