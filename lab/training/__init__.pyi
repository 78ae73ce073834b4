from .options import SIZES as SIZES
from .options import Size as Size
from .options import TrainOptions as TrainOptions
from .options import shape_of as shape_of
from .stage import train_draft as train_draft
