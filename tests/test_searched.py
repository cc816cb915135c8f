"""Test that the search finds values in every file format."""

import struct
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers.data.searched import found

VALUE = b"x" * 100_000 + b"rawvalue"


def stream(codec: str) -> bytes:
    """Return the compressed value between other bytes."""
    packed = pa.BufferOutputStream()
    with pa.CompressedOutputStream(packed, codec) as out:
        out.write(VALUE)
    return b"before" + packed.getvalue().to_pybytes() + b"\0after"


def block() -> bytes:
    """Return the value in two blocks, as in Spark's shuffle files."""
    told = b""
    for part in (VALUE[:-4], VALUE[-4:]):
        packed = pa.compress(part, "lz4_raw", asbytes=True)
        told += b"LZ4Block" + struct.pack("<BIII", 0x26, len(packed), len(part), 0) + packed
    return told


def parquet() -> bytes:
    out = pa.BufferOutputStream()
    beyond = pa.array([2**62], pa.timestamp("us"))
    pq.write_table(pa.table({"a": [VALUE], "b": beyond}), out, compression="snappy")
    return out.getvalue().to_pybytes()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("plain.log", lambda: VALUE),
        ("old.log.gz", lambda: stream("gzip")),
        ("0.log", lambda: stream("lz4")),
        ("events.zst", lambda: stream("zstd")),
        ("shuffle.data", block),
        ("some.parquet", parquet),
    ],
)
def test_a_text_is_found_in_each_kind_of_file(
    tmp_path: Path, name: str, content: Callable[[], bytes]
) -> None:
    file = tmp_path / "in" / name
    file.parent.mkdir()
    file.write_bytes(content())
    assert found(tmp_path, "rawvalue") == [str(file)]
    assert found(tmp_path, "no such value", 4242424242) == []


@pytest.mark.parametrize("form", ["<q", ">q"])
def test_a_number_is_found_as_text_and_as_bytes(tmp_path: Path, form: str) -> None:
    (tmp_path / "text").write_text("n=4242424242")
    (tmp_path / "bytes").write_bytes(b"n" + struct.pack(form, 4242424242))
    assert found(tmp_path, 4242424242) == [str(tmp_path / name) for name in ("bytes", "text")]
