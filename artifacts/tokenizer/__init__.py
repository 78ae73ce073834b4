"""A tokenizer as bytes: what each id spells, which roles ids have, what the tokenizer does not keep.

In: `tokenizer.json`, a model directory, or an object of `tokenizers` or transformers. Out: `Tokenizer`.
"""
