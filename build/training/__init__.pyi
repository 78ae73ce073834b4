from .scratch.options import SIZES as SIZES
from .scratch.options import Size as Size
from .scratch.options import TrainOptions as TrainOptions
from .scratch.options import shape_of as shape_of
from .scratch.stage import train_draft as train_draft
from .tuning.options import TuneOptions as TuneOptions
from .tuning.stage import tune_draft as tune_draft
