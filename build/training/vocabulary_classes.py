"""Classes of ids: every common id is one by itself, all rare ids together are another.

A tokenizer of 152,000 ids of which 13,000 occur in the text needs no 152,000 rows while it is
trained. Ids seen fewer than some number of times share one row, and every id of their class is
equally likely. That is a softmax over all ids with tied rows: the logit of the class, plus the
logarithm of its size, stands for all of them. The model can be trained over the classes and stored
over the ids, with the same probabilities in both.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Classes:
    """The class of every id.

    Attributes:
        of_id: Class of every id, by falling frequency, the rare ones' last; int32 ``[ids]``.
        common: Ids that have a class of their own.
        log_sizes: Logarithm of the number of ids in each class, float32 ``[classes]``.
    """

    of_id: NDArray[np.int32]
    common: int
    log_sizes: NDArray[np.float32]

    @property
    def number(self) -> int:
        """Number of classes."""
        return len(self.log_sizes)

    @property
    def rare(self) -> int:
        """Ids that share the last class; 0 where there is no such class."""
        return len(self.of_id) - self.common


def classes_of(stream: NDArray[np.int32], ids: int, min_count: int) -> Classes:
    """Give the common ids classes of their own, and all others the one after them.

    Args:
        stream: The training text, ids ``[tokens]``.
        ids: How many ids the tokenizer has.
        min_count: Ids seen fewer times are rare; 0 makes none so.
    """
    counts = np.bincount(stream, minlength=ids)
    common = np.flatnonzero(counts >= min_count)
    common = common[np.argsort(-counts[common], kind="stable")]
    of_id = np.full(ids, len(common), dtype=np.int32)
    of_id[common] = np.arange(len(common), dtype=np.int32)
    rare = ids - len(common)
    sizes = np.append(np.ones(len(common)), rare) if rare else np.ones(ids)
    return Classes(of_id, len(common), np.log(sizes).astype(np.float32))
