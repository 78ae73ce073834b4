"""What happens while a model writes: the loop, drafters, sampling, caches, and translation between tokenizers.

In: a target model, a prompt, and artifacts. Out: the tokens that plain decoding would give, in fewer passes.
`load_drafter` and `stream_generate` are all that most callers need.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
