from .alignment import Alignment as Alignment
from .counts import Counts as Counts
from .dictionary import Dictionary as Dictionary
from .dictionary import Match as Match
from .manifest import Manifest as Manifest
from .manifest import read_manifest as read_manifest
