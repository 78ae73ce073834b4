"""Is it worth it? Emulation, benchmarks, reports, fairness and advice.

In: text, models, drafters. Out: runs on disk, and pages that say what they mean.
"""
