"""Does drafting pay? Benchmarks, their pages, and replay without the target.

In: text, models, drafters. Out: runs on disk, and pages that explain them.
"""
