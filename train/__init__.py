"""Small draft models trained on text: the one offline stage that runs models."""

from typing import TYPE_CHECKING

from spectool import lazy_exports

if TYPE_CHECKING:
    from spectool.train.draft import TrainOptions, train_draft
    from spectool.train.shapes import SIZES, Size, shape_of

__all__ = ["SIZES", "Size", "TrainOptions", "shape_of", "train_draft"]

__getattr__ = lazy_exports(
    __name__,
    {"SIZES": "shapes", "Size": "shapes", "TrainOptions": "draft", "shape_of": "shapes", "train_draft": "draft"},
)
