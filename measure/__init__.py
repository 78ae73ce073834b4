"""Is it worth it? Benchmarks, their pages, and replay without the target.

In: text, models, drafters. Out: runs on disk, and pages that say what they mean.
"""
