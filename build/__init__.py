"""The offline stages: text and tokenizers in, artifacts out.

In: a corpus and one or two tokenizers. Out: counts, dictionaries and alignments. Each stage writes its artifact in one
step.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
