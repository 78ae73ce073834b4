"""Files that declare more than they hold: arrays and columns."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from spectool import ArtifactError
from spectool.artifacts.arrays import map_array, save_array
from spectool.artifacts.columns import read_columns, write_columns

WORD = {"word": pa.large_string()}


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


def test_offsets_of_text_must_lie_within_the_file(tmp_path: Path) -> None:
    """As the process would end otherwise, at the first word that is read."""
    file = tmp_path / "x.arrow"
    words = pa.array(["w", "na", "się"] * 20, pa.large_string())
    write_columns(file, {"word": words})
    data = file.read_bytes()
    place = data.index(words.buffers()[1].to_pybytes()[:80])
    for row in (1, 30, 60):
        for value in (2**62, -1, 2**31, 10**6):
            at = place + 8 * row
            file.write_bytes(data[:at] + value.to_bytes(8, "little", signed=True) + data[at + 8 :])
            with pytest.raises(ArtifactError, match="not a readable Arrow file"):
                read_columns(file, WORD)
    start = data.index("się".encode())
    file.write_bytes(data[: start + 3] + b"\xff" + data[start + 4 :])
    with pytest.raises(ArtifactError, match="not a readable Arrow file"):
        read_columns(file, WORD)


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_compressed_columns_are_never_read(tmp_path: Path, codec: str) -> None:
    column = pa.array(np.zeros(5_000_000, np.int8))
    schema = pa.schema({"x": pa.int8()})
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.OSFile(str(tmp_path / "x"), "wb") as sink, pa.ipc.new_file(sink, schema, options=options) as writer:
        writer.write_batch(pa.record_batch([column], schema))
    del column
    before = pa.total_allocated_bytes()
    with pytest.raises(ArtifactError, match="the columns are compressed"):
        read_columns(tmp_path / "x", {"x": pa.int8()})
    assert pa.total_allocated_bytes() - before < 1 << 20


def test_one_batch_and_nothing_else(tmp_path: Path) -> None:
    batch = pa.record_batch([pa.array(["a"], pa.large_string())], names=["word"])
    for batches, reason in ((0, "no record batch"), (2, "more than one record batch")):
        with pa.OSFile(str(tmp_path / "x"), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
            for _ in range(batches):
                writer.write_batch(batch)
        with pytest.raises(ArtifactError, match=reason):
            read_columns(tmp_path / "x", WORD)
    with pytest.raises(ArtifactError, match=r"columns word: large_string, expected word: int32"):
        write_columns(tmp_path / "x", {"word": batch.column(0)})
        read_columns(tmp_path / "x", {"word": pa.int32()})
