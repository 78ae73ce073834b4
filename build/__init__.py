"""The offline stages: text and tokenizers in, artifacts out.

In: a corpus and one or two tokenizers. Out: counts, dictionaries and alignments. Each stage writes its artifact in one
step.
"""
