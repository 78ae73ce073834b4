from .alignment.intersection import intersect as intersect
from .alignment.stage import build_alignment as build_alignment
from .alignment.translation_table import spellings as spellings
from .counting.options import CountOptions as CountOptions
from .counting.stage import count_text as count_text
from .dictionary.backoff_stage import build_backoff as build_backoff
from .dictionary.backoff_stage import count_and_build as count_and_build
from .dictionary.options import BackoffOptions as BackoffOptions
