"""The page of a benchmark run: does drafting pay, with which drafter, and how sure is that?

In: a benchmark artifact. Out: verdicts, one table, a plot, as HTML and Markdown.
"""
