"""Drafts drawn in target ids from a draft model with another tokenizer, with the distribution they come from.

In: a `ModelSource` and the committed text. Out: proposals for rejection sampling (docs/lab/drawing.md).
"""
