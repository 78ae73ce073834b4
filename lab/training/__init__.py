"""Small draft models trained from scratch on text.

In: a corpus and a tokenizer. Out: a model directory that mlx-lm loads.
"""
