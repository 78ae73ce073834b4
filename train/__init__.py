"""Small draft models trained on text, and tuned towards a target: the one offline stage that runs models."""

from typing import TYPE_CHECKING

from spectool import lazy_exports

if TYPE_CHECKING:
    from spectool.train.draft import TrainOptions, train_draft
    from spectool.train.shapes import SIZES, Size, shape_of
    from spectool.train.tune import tune_draft
    from spectool.train.tune_options import TuneOptions

__all__ = ["SIZES", "Size", "TrainOptions", "TuneOptions", "shape_of", "train_draft", "tune_draft"]

__getattr__ = lazy_exports(
    __name__,
    {
        "SIZES": "shapes",
        "Size": "shapes",
        "TrainOptions": "draft",
        "TuneOptions": "tune_options",
        "shape_of": "shapes",
        "train_draft": "draft",
        "tune_draft": "tune",
    },
)
