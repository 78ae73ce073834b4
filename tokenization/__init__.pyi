from .incremental.by_ids import IncrementalBPE as IncrementalBPE
from .incremental.by_text import TailReencoder as TailReencoder
from .opening import open_tokenizer as open_tokenizer
from .roles import Roles as Roles
from .round_trips import limits as limits
from .tokenizer import Tokenizer as Tokenizer
