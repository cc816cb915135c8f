"""A search for values in every file of a folder tree.

It reads plain bytes, Parquet files and compressed data, such as Spark's shuffle files, Kafka's
batches and old logs.
"""

import os
import re
import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

_GZIP = b"\x1f\x8b\x08"
_PACKED = {
    b"\x04\x22\x4d\x18": "lz4",
    b"\x28\xb5\x2f\xfd": "zstd",
}
"""The first bytes of the other compression formats."""

_BLOCK = b"LZ4Block"
"""The first bytes of a block that Spark's Java code compresses."""

_HEAD = struct.Struct("<8sBIII")
_PIECE = 1 << 16


def found(folder: Path, *marks: str | int) -> list[str]:
    """Return the files that contain any of the values.

    A value is a text, or an integer, which is found as digits or as eight bytes.
    """
    wanted = [form for mark in marks for form in _forms(mark)]
    return [
        str(path)
        for path in sorted(_files(folder))
        if path.is_file() and any(_has(content, wanted) for content in _contents(path))
    ]


def _files(folder: Path) -> Iterator[Path]:
    """Yield all files, including those of a folder to which a direct child is a link.

    A running process may delete folders, which `os.walk` skips.
    """
    for root in (folder, *(path for path in folder.glob("*/") if path.is_symlink())):
        for place, _, names in os.walk(root):
            yield from (Path(place, name) for name in names)


def _forms(mark: str | int) -> list[bytes]:
    if isinstance(mark, str):
        return [mark.encode()]
    return [str(mark).encode(), struct.pack("<q", mark), struct.pack(">q", mark)]


def _has(content: bytes, wanted: list[bytes]) -> bool:
    return any(form in content for form in wanted)


def _contents(path: Path) -> Iterator[bytes]:
    """Yield the content of a file, as stored and decompressed."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        # A running process may delete its files.
        return
    yield content
    # A killed process may leave a file without a footer, which no reader opens.
    if path.suffix == ".parquet" and content[4:].endswith(b"PAR1"):
        yield _uncompressed(pq.read_table(path))
    yield from _unpacked(content)


def _uncompressed(table: pa.Table) -> bytes:
    """Return a table as Arrow bytes, because Python types lack some values (times after 9999)."""
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as stream:
        stream.write_table(table)
    return out.getvalue().to_pybytes()


def _unpacked(content: bytes) -> Iterator[bytes]:
    """Yield the decompressed parts of a content, wherever they begin."""
    for at in re.finditer(re.escape(_GZIP), content):
        with suppress(zlib.error):
            yield zlib.decompressobj(wbits=zlib.MAX_WBITS | 16).decompress(content[at.start() :])
    for begin, codec in _PACKED.items():
        for at in re.finditer(re.escape(begin), content):
            yield _stream(content[at.start() :], codec)
    blocks = (m.start() for m in re.finditer(re.escape(_BLOCK), content))
    # A value may span two blocks.
    if whole := b"".join(_block(content, at) for at in blocks):
        yield whole


def _stream(packed: bytes, codec: str) -> bytes:
    """Decompress as much as possible, because other bytes may follow the stream."""
    told = b""
    with (
        suppress(OSError, pa.ArrowException),
        pa.CompressedInputStream(pa.BufferReader(packed), codec) as stream,
    ):
        while piece := stream.read(_PIECE):
            told += piece
    return told


def _block(content: bytes, at: int) -> bytes:
    if at + _HEAD.size > len(content):
        return b""
    _, token, packed, size, _ = _HEAD.unpack_from(content, at)
    body = content[at + _HEAD.size :][:packed]
    if token & 0xF0 == 0x10:
        return body
    try:
        return pa.decompress(body, size, "lz4_raw", asbytes=True)
    except (OSError, pa.ArrowException):
        return b""
