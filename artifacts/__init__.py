"""What lies on disk: formats, manifests, fingerprints, and tokenizers as bytes.

In: directories and `tokenizer.json` files. Out: checked, memory-mapped objects that the stages and the
runtime share. Nothing here runs a model or reads a corpus.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
