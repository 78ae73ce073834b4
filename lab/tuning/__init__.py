"""Draft models tuned towards a target.

In: a corpus, a draft and a target model. Out: a model directory that mlx-lm loads.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
