from .scratch.draft import TrainOptions as TrainOptions
from .scratch.draft import train_draft as train_draft
from .scratch.shapes import SIZES as SIZES
from .scratch.shapes import Size as Size
from .scratch.shapes import shape_of as shape_of
from .tuning.options import TuneOptions as TuneOptions
from .tuning.stage import tune_draft as tune_draft
