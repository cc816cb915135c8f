"""Read the records of a text file, which may be compressed and may begin with a byte order mark."""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from tidemark.base import thresholds
from tidemark_streaming.payloads.payload import Payload

_BOM = b"\xef\xbb\xbf"
_COMPRESSED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
"""The first bytes of compressed files, with the compression. No UTF-8 text begins with them."""


class TextFormat(Payload, Protocol):
    """A format whose files are a sequence of text records."""

    def split(self, content: bytes, *, last: bool) -> tuple[list[bytes], bytes]: ...


def read_records(path: Path, form: TextFormat) -> Iterator[list[bytes]]:
    """Yield the records of a file in batches.

    Raises:
        OSError, pa.ArrowException: the file can't be read.
    """
    rest, begins = b"", True
    with pa.input_stream(str(path), compression=_compression(path)) as file:
        while True:
            block = file.read(thresholds.FILE_BLOCK_BYTES)
            if begins:
                block, begins = block.removeprefix(_BOM), False
            records, rest = form.split(rest + block, last=not block)
            yield records
            if not block:
                return


def _compression(path: Path) -> str:
    """Return the compression of a file from its first bytes; else "detect", for Arrow to determine
    the compression from the name."""
    with path.open("rb") as file:
        begin = file.read(max(map(len, _COMPRESSED)))
    found = (how for magic, how in _COMPRESSED.items() if begin.startswith(magic))
    return next(found, "detect")
