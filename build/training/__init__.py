"""Small draft models trained on text, and tuned towards a target: the one offline stage that runs models.

In: a corpus and a tokenizer, or a draft and a target model. Out: a model directory that mlx-lm loads.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
