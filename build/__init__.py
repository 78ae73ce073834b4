"""The offline stages: text and tokenizers in, artifacts out.

In: a corpus or packs, and up to two tokenizers. Out: packs, dictionaries, alignments and pruned draft models. Each
stage writes its artifact in one step.
"""
