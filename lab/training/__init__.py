"""Small draft models trained from scratch on text.

In: a corpus and a tokenizer. Out: a model directory that mlx-lm loads.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
