"""What a draft is tuned on: passages, continuations by the target, and both sides' tokens paired by bytes.

In: text and two tokenizers. Out: arrays of examples.
"""
