"""Does drafting pay? Benchmarks, their pages, the cost of passes, and replay without the target.

In: text, models, drafters. Out: runs on disk, and pages that explain them.
"""
