"""Recognize files that do not have one text record on each line, and say what they are instead."""

import re

from tidemark_streaming.payloads.payload import UndecodableError

_SIGNATURES = {
    b"PK\x03\x04": "a ZIP archive, as Excel workbooks (.xlsx) are: unpack it, or save it as CSV",
    b"\xd0\xcf\x11\xe0": "an Excel workbook (.xls): save it as CSV",
    b"\xfd7zXZ\x00": "compressed with xz: use gzip, zstd, bzip2, or lz4",
    b"7z\xbc\xaf": "a 7-Zip archive: unpack it",
    b"Rar!\x1a": "a RAR archive: unpack it",
    b"Obj\x01": "an Avro file, which this connector does not read: write it as JSON or Parquet",
    b"PAR1": "a Parquet file: set format='parquet'",
    b"ORC": "an ORC file, which this connector does not read: write it as Parquet",
    b"SQLite format 3\x00": "a database of SQLite: export its table as CSV",
}
"""The first bytes of files that are not text, with what they are and what to do."""
_BEGINNING = 4096
_CARRIAGE_RETURNS = (
    "its lines end with a carriage return (CR) alone: write them with a line feed (LF) at the end"
)
_NEXT_OBJECT = re.compile(rb"\}[ \t]*\r\s*\{")


class WrongContentError(UndecodableError):
    """A file has other content than records of its format. The message has the reason."""


def check_beginning(content: bytes) -> None:
    """Refuse a file that is not text.

    Args:
        content: the beginning of the file, without compression.

    Raises:
        WrongContentError: the file is of a known other kind.
    """
    beginning = content[:_BEGINNING]
    for signature, kind in _SIGNATURES.items():
        # A text may begin with the letters of a signature, but it has no zero bytes.
        is_text = signature.isascii() and signature.decode().isprintable()
        if content.startswith(signature) and not (is_text and b"\0" not in beginning):
            raise WrongContentError(f"it is {kind}")


def check_first_object(record: bytes, *, is_only: bool, is_valid: bool) -> None:
    """Refuse a file of JSON that does not have one object on each line.

    Without this check, the last object of an array can be the only one that is read.

    Args:
        record: the first line of the file.
        is_only: whether the file has no other line.
        is_valid: whether the line is JSON.

    Raises:
        WrongContentError: the objects are in an array, or on several lines.
    """
    begins = record.lstrip()
    if begins.startswith(b"[") and (is_only or not is_valid):
        raise WrongContentError(
            "its objects are in a JSON array: write each object on a line of its own, for example "
            "with `jq -c '.[]'`"
        )
    if begins.rstrip() == b"{":
        raise WrongContentError(
            "its objects have several lines: write each object on one line, for example with "
            "`jq -c .`"
        )
    if is_only and _NEXT_OBJECT.search(record):
        raise WrongContentError(_CARRIAGE_RETURNS)


def check_line_ends(record: bytes) -> None:
    """Refuse a file of CSV whose lines end with a carriage return alone.

    Args:
        record: the first line of the file, if it is not a record of CSV.
    """
    if b"\r" in record:
        raise WrongContentError(_CARRIAGE_RETURNS)
