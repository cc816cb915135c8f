"""The bytes of an Avro record, from which values are read one after the other."""

from collections.abc import Callable
from typing import Any

from tidemark.base.counts import format_count
from tidemark_streaming.payloads.payload import UndecodableError

MAX_ITEMS = 1_000_000
"""The maximum number of items of all arrays and maps of a record. Items may have no bytes, so a
short record can contain any number of them."""

_MAX_VARINT_BYTES = 10

_ONE_BYTE = tuple((value >> 1) ^ -(value & 1) for value in range(0x80))
"""The numbers that are written in one byte, by this byte."""


class Input:
    """The bytes of a record, with the number of items and levels that are read."""

    __slots__ = ("content", "depth", "items", "position")

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.position = 0
        self.items = 0
        self.depth = 0

    def take_bytes(self, size: int) -> bytes:
        """Return the next bytes.

        Raises:
            EOFError: the record has fewer bytes.
            ValueError: the size is negative.
        """
        start = self.position
        if size < 0:
            raise ValueError("a negative size")
        end = start + size
        if end > len(self.content):
            raise EOFError
        self.position = end
        return self.content[start:end]

    def read_number(self) -> int:
        """Return the next varint in zigzag."""
        content = self.content
        position = self.position
        try:
            byte = content[position]
            # Most numbers are sizes and branches of unions, which have one byte.
            if byte < 0x80:
                self.position = position + 1
                return _ONE_BYTE[byte]
            value = byte & 0x7F
            shift = 7
            while True:
                position += 1
                byte = content[position]
                value |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
                shift += 7
                if shift >= 7 * _MAX_VARINT_BYTES:
                    raise ValueError("a number that is too long")
        except IndexError:
            raise EOFError from None
        self.position = position + 1
        return (value >> 1) ^ -(value & 1)

    def read_text(self) -> str:
        """Return the next text.

        Raises:
            EOFError: the record has fewer bytes.
            ValueError: the text is not UTF-8, or its size is negative.
        """
        size = self.read_number()
        start = self.position
        self.position = end = start + size
        content = self.content[start:end]
        if len(content) != size:
            raise ValueError("a negative size") if size < 0 else EOFError
        return content.decode()

    def add_items(self, count: int) -> None:
        """Count items that are about to be read.

        Raises:
            UndecodableError: the record has too many items.
        """
        self.items += count
        if self.items > MAX_ITEMS:
            raise UndecodableError(
                f"The record has more than {format_count(MAX_ITEMS, 'item')} in arrays and maps."
            )


Read = Callable[[Input], Any]
