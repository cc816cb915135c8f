"""Read the records of a text file, which may be compressed and may begin with a byte order mark.

Text is UTF-8. Text that begins with a byte order mark of UTF-16 is converted to UTF-8.
"""

import codecs
from collections.abc import Iterator
from pathlib import PurePath
from typing import Protocol

import pyarrow as pa

from tidemark.base import thresholds
from tidemark_streaming.payloads.payload import MAX_RECORD_BYTES, Payload
from tidemark_streaming.payloads.wrong_content import check_beginning

_BOM = b"\xef\xbb\xbf"
_UTF_16_BOMS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_COMPRESSED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
"""The first bytes of compressed files, with the compression. No UTF-8 text begins with them."""


_ENDINGS = {".bz2": "bz2", ".gz": "gzip", ".lz4": "lz4", ".zst": "zstd"}
"""The compressions of files by the endings of their names."""


class TextFormat(Payload, Protocol):
    """A format whose files are a sequence of text records."""

    def split_records(self, content: bytes, *, is_last: bool) -> tuple[list[bytes], bytes]: ...


def read_records(file: pa.NativeFile, name: str, form: TextFormat) -> Iterator[list[bytes]]:
    """Yield the records of a file in batches.

    Args:
        file: the file, which was just opened.
        name: the name of the file.

    Raises:
        OSError, pa.ArrowException: the file can't be read.
        WrongContentError: the file is not text.
    """
    remainder = b""
    begins = True
    is_cut = False
    utf_16: codecs.IncrementalDecoder | None = None
    with _open_text(file, name) as text:
        while True:
            block = text.read(thresholds.FILE_BLOCK_BYTES)
            is_last = not block
            if begins:
                check_beginning(block)
                if block.startswith(_UTF_16_BOMS):
                    utf_16 = codecs.getincrementaldecoder("utf-16")()
                block = block.removeprefix(_BOM)
                begins = False
            if utf_16 is not None:
                block = _to_utf_8(block, utf_16, is_last=is_last)
            if is_cut:
                # The remainder of a record that is too long, up to the end of its line.
                is_cut = b"\n" not in block
                block = block.partition(b"\n")[2]
            records, remainder = form.split_records(remainder + block, is_last=is_last)
            if len(remainder) > MAX_RECORD_BYTES:
                # Its beginning is a dead letter. Reading on would take time by the square of its
                # length.
                records.append(remainder[: MAX_RECORD_BYTES + 1])
                remainder = b""
                is_cut = True
            yield records
            if is_last:
                return


def _to_utf_8(block: bytes, utf_16: codecs.IncrementalDecoder, *, is_last: bool) -> bytes:
    """Convert the next block of a UTF-16 text.

    Raises:
        pa.ArrowInvalid: the text is not valid.
    """
    try:
        return utf_16.decode(block, is_last).encode()
    except UnicodeError:
        raise pa.ArrowInvalid("the text is not valid UTF-16") from None


def _open_text(file: pa.NativeFile, name: str) -> pa.NativeFile:
    """Return the text in a file. Its first bytes determine the compression, or else its name."""
    begin = file.read(max(map(len, _COMPRESSED)))
    file.seek(0)
    compression = next((how for magic, how in _COMPRESSED.items() if begin.startswith(magic)), None)
    compression = compression or _ENDINGS.get(PurePath(name).suffix)
    return pa.input_stream(file, compression=compression)
