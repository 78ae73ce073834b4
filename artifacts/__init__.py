"""File formats on disk: manifests, atomic writes, resumable work, and one module for each kind of file.

In: directories. Out: checked, memory-mapped objects that stages and the runtime share.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
