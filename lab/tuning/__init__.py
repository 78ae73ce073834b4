"""Draft models tuned towards a target.

In: a corpus, a draft and a target model. Out: a model directory that mlx-lm loads.
"""
