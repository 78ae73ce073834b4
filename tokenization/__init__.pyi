from .incremental.by_ids import CanonicalIds as CanonicalIds
from .incremental.by_text import CanonicalText as CanonicalText
from .opening import open_tokenizer as open_tokenizer
from .roles import Roles as Roles
from .round_trips import limits as limits
from .tokenizer import Tokenizer as Tokenizer
