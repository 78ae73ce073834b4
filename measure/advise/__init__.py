"""What to expect of a draft before it is downloaded.

In: two tokenizers, sizes, timings if there are any. Out: expected acceptance and speed-up, and a recommendation.
"""
