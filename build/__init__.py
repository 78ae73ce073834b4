"""The offline stages: text and tokenizers in, artifacts out.

In: a corpus and one or two tokenizers. Out: counts, dictionaries, alignments and draft models.
A stage writes its artifact in one step, and its command stands beside it.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
