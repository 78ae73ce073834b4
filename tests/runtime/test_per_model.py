"""What is worked out once for each model, and forgotten with it."""

import copy

from spectool.runtime.per_model import once_per_model


class Model(dict[str, int]):
    """Like mlx-lm's: a dictionary, without a hash."""


def test_each_model_is_asked_once_while_it_is_there() -> None:
    asked = []

    @once_per_model
    def size(model: Model) -> int:
        asked.append(model["size"])
        return model["size"]

    one, other = Model(size=1), Model(size=2)
    assert [size(one), size(other), size(one), size(other)] == [1, 2, 1, 2]
    assert asked == [1, 2]
    for number in range(3, 99):  # a new object often gets the id of one that has gone
        del one
        one = Model(size=number)
        assert size(one) == number
    assert size(other) == 2 and asked.count(2) == 1
    copied = copy.deepcopy(other)
    copied["size"] = 5
    assert [size(copied), size(other)] == [5, 2]
    assert size({"size": 7}) == 7, "an object without attributes"
