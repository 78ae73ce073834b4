"""Files that declare more than they hold."""

from pathlib import Path

import numpy as np
import pytest

from spectool import ArtifactError
from spectool.artifacts.arrays import map_array, save_array


def header(text: str, version: int = 1) -> bytes:
    padded = text.encode().ljust(117) + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + len(padded).to_bytes(2, "little") + padded


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (header("{'descr': '<u4', 'fortran_order': False, 'shape': (3,), }") + bytes(12), None),
        (header("{'descr': '<u4', 'fortran_order': False, 'shape': (0,), }"), None),
        (header("{'descr': '<u4', 'fortran_order': False, 'shape': (3,), }") + bytes(11), "139 bytes, and its header"),
        (header("{'descr': '<u4', 'fortran_order': False, 'shape': (3,), }") + bytes(16), "144 bytes, and its header"),
        (
            header("{'descr': '<u4', 'fortran_order': False, 'shape': (4611686018427387905,), }") + bytes(4),
            "header says",
        ),
        (header("{'descr': '<u4', 'fortran_order': False, 'shape': (-1,), }"), "header says"),
        (header("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }") + bytes(8), "object 1, expected uint32"),
        (header("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }") + bytes(4), "float32 1, expected uint32"),
        (header("{'descr': '<u4', 'fortran_order': False, 'shape': (1, 1), }") + bytes(4), "uint32 1x1, expected"),
        (header("{'descr': '<u4', 'fortran_order': False, 'shape': (1,), }", 3) + bytes(4), "not a readable .npy file"),
        (header("(" * 100), "not a readable .npy file"),
        (header("-" * 9000 + "1"), "not a readable .npy file"),
    ],
)
def test_a_header_must_describe_the_file(tmp_path: Path, data: bytes, reason: str | None) -> None:
    (tmp_path / "x.npy").write_bytes(data)
    if reason is None:
        assert map_array(tmp_path / "x.npy", "uint32").sum() == 0
        return
    with pytest.raises(ArtifactError) as caught:
        map_array(tmp_path / "x.npy", "uint32")
    assert reason in str(caught.value)


def test_an_array_has_one_axis_of_the_expected_length(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((2, 3), np.uint8))
    with pytest.raises(ArtifactError, match=r"uint8 2x3, expected uint8 6\."):
        map_array(tmp_path / "x.npy", "uint8", 6)
    save_array(tmp_path / "x.npy", np.zeros(6), "uint8")
    assert map_array(tmp_path / "x.npy", "uint8", 6).shape == (6,)
    with pytest.raises(ArtifactError, match=r"uint8 6, expected uint8 5\."):
        map_array(tmp_path / "x.npy", "uint8", 5)
