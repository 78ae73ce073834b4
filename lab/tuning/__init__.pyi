from .options import TuneOptions as TuneOptions
from .stage import tune_draft as tune_draft
