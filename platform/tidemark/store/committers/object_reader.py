"""Read one object of an object store, and verify that it was not replaced in the meantime.

The reply to each request contains the object's tag. If it differs from the expected one, the object
was replaced, and nothing of the new object is returned.
"""

from typing import IO, TYPE_CHECKING, cast

import obstore
import pyarrow as pa

from tidemark.store.committers.file_systems import FileChangedError
from tidemark.store.committers.object_files import FileCache, open_store, store_errors

if TYPE_CHECKING:
    from obstore import GetOptions

READ_AHEAD_BYTES = 16 << 20
"""The minimum number of bytes that one request reads, unless the object ends before."""

_SMALL_BYTES = 4 << 20
"""The size up to which an object is kept in memory."""

_cache = FileCache()


def open_object(bucket: str, key: str, size: int, tag: str) -> pa.NativeFile:
    """Open an object. If the object is small, the newest of its readers share one request.

    Args:
        bucket: the address of the bucket.
        key: the name of the object in the bucket.
        tag: the tag of the object, as `plain_tag` returns it.

    Raises:
        FileNotFoundError: the object does not exist.
        FileChangedError: the object has another tag. A later read may raise it too.
    """
    if size > _SMALL_BYTES:
        reader = _ObjectReader(bucket, key, size, tag)
        return pa.PythonFile(cast("IO[bytes]", reader), mode="r")
    address = f"{bucket}/{key} {tag}"
    content = _cache.find_content(address)
    if content is None:
        content = _read_part(bucket, key, tag, {})
        _cache.keep_content(address, content)
    return pa.BufferReader(content)


def plain_tag(tag: str) -> str:
    """Return a tag without quotes: some stores use them in replies, but not in listings."""
    return tag.removeprefix("W/").strip('"')


class _ObjectReader:
    """A file-like object that reads a large object in parts."""

    def __init__(self, bucket: str, key: str, size: int, tag: str) -> None:
        self._bucket = bucket
        self._key = key
        self._size = size
        self._tag = tag
        self._place = 0
        self._part = b""
        self._part_start = 0
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        available = self._size - self._place
        count = available if size < 0 else min(size, available)
        if count <= 0:
            return b""
        if not self._has_bytes(count):
            end = min(self._place + max(count, READ_AHEAD_BYTES), self._size)
            options: GetOptions = {"range": (self._place, end)}
            self._part = _read_part(self._bucket, self._key, self._tag, options)
            self._part_start = self._place
        start = self._place - self._part_start
        self._place += count
        return self._part[start : start + count]

    def seek(self, offset: int, whence: int = 0) -> int:
        base = (0, self._place, self._size)[whence]
        self._place = base + offset
        return self._place

    def tell(self) -> int:
        return self._place

    def size(self) -> int:
        return self._size

    def close(self) -> None:
        self._part = b""
        self.closed = True

    def _has_bytes(self, size: int) -> bool:
        """Return whether the last part contains the next bytes."""
        end = self._part_start + len(self._part)
        return self._part_start <= self._place and self._place + size <= end


def _read_part(bucket: str, key: str, tag: str, options: "GetOptions") -> bytes:
    with store_errors():
        reply = obstore.get(open_store(bucket), key, options=options)
        if plain_tag(reply.meta["e_tag"] or "") not in ("", tag):
            raise FileChangedError(f"'{bucket}/{key}' has changed.")
        return bytes(reply.bytes())
