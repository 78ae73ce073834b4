"""The offline stages: text and tokenizers in, artifacts out.

In: a corpus and one or two tokenizers. Out: dictionaries, alignments and pruned draft models. Each
stage writes its artifact in one step.
"""
