"""What drafters would save on a text, without a model: replay and comparison of strategies.

In: text and drafters. Out: passes, tokens and acceptance. `sweep/` holds the grids of the DictSpec paper.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
