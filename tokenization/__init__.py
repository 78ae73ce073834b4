"""A tokenizer as bytes, and its ids joined as if the text had been encoded in one piece.

In: a `tokenizer.json` or a model directory. Out: token bytes, roles, a fingerprint, what the tokenizer cannot keep of a
text, and, in `incremental/`, the ids of a text that grows. Nothing here runs a model or reads a corpus.
"""
