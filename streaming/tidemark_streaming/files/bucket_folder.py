"""List the files of a folder in an object store, and detect objects that were replaced.

An object is complete as soon as it is listed. It never changes, but it can be replaced by another
one. Its tag then differs.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar

import obstore
import pyarrow as pa
from obstore.exceptions import InvalidPathError

from tidemark.base.errors import DataError
from tidemark.store.committers.file_systems import FileChangedError
from tidemark.store.committers.object_files import (
    PAGE_FILES,
    THREADS,
    describe_error,
    open_store,
    split_address,
    store_errors,
)
from tidemark.store.committers.object_reader import open_object, plain_tag
from tidemark_streaming.files.landed_file import Facts, LandedFile, hash_content
from tidemark_streaming.files.listing_rules import is_selected, is_skipped

if TYPE_CHECKING:
    from obstore import ObjectMeta

_CACHED_CHECKSUMS = 1 << 16


@dataclass(frozen=True)
class LandedObject(LandedFile):
    """A landed file that is an object in an object store.

    Args:
        modified: the time at which the object was written, which only the store sets.
        tag: the tag of the object, which differs if the content differs.
        bucket: the address of the bucket.
        key: the name of the object in the bucket.
    """

    tag: str
    bucket: str
    key: str

    copies_keep_time: ClassVar[bool] = False
    writing_advice: ClassVar[str] = "Write each object once, under a name of its own."

    @property
    def location(self) -> str:
        return f"{self.bucket}/{self.key}"

    @property
    def facts(self) -> Facts:
        return {"bytes": self.size, "tag": self.tag}

    @property
    def checksum(self) -> str:
        stored_checksum = _compute_checksum(self)
        if stored_checksum is None:
            raise FileNotFoundError(f"'{self.location}' does not exist.")
        return stored_checksum

    def open(self) -> pa.NativeFile:
        return open_object(self.bucket, self.key, self.size, self.tag)

    def check_unchanged(self) -> None:
        """Do nothing: each reply to a read was checked."""


class BucketFolder:
    """A landing folder in an object store.

    Args:
        address: the address of the folder.
    """

    poll_seconds: float = 2.0

    def __init__(self, address: str) -> None:
        self._bucket, self._path = split_address(address)

    def list_files(self, names: Sequence[str] = ()) -> list[LandedFile]:
        files = [file for file in self._list_landed() if is_selected(file.name, names)]
        return sorted(files, key=attrgetter("modified", "name"))

    def find_file(self, position: Mapping[str, Any]) -> LandedFile:
        return self._landed_object(
            position["modified"], position["file"], position["bytes"], position["tag"]
        )

    def compute_checksums(self, files: Sequence[LandedFile]) -> None:
        """Read files in parallel, because each request to a store takes long."""
        pool = ThreadPoolExecutor(THREADS)
        try:
            for _ in pool.map(_try_checksum, files):
                pass
        finally:
            # If the store does not answer, the other files need not be tried.
            pool.shutdown(cancel_futures=True)

    def _list_landed(self) -> Iterator[LandedFile]:
        for listed in self._list_objects():
            name = listed["path"].removeprefix(self._path).removeprefix("/")
            # The folder itself may have an object, as a marker.
            if name and not any(map(is_skipped, name.split("/"))):
                yield self._landed_object(
                    int(listed["last_modified"].timestamp() * 1000) * 1_000_000,
                    name,
                    listed["size"],
                    _tag_of(listed),
                )

    def _list_objects(self) -> Iterator["ObjectMeta"]:
        store = open_store(self._bucket)
        with store_errors():
            try:
                for page in obstore.list(store, self._path or None, chunk_size=PAGE_FILES):
                    yield from page
            except InvalidPathError as error:
                raise DataError(
                    f"An object in '{self._bucket}' can't be ingested: {describe_error(error)}. "
                    "Rename the object, or move it out of the folder."
                ) from None

    def _landed_object(self, modified: int, name: str, size: int, tag: str) -> LandedFile:
        key = f"{self._path}/{name}" if self._path else name
        return LandedObject(modified, name, size, tag, self._bucket, key)


def _tag_of(listed: "ObjectMeta") -> str:
    return plain_tag(listed["e_tag"] or str(listed["last_modified"]))


def _try_checksum(file: LandedFile) -> None:
    # These errors occur again when the checksum is requested.
    with suppress(FileNotFoundError, FileChangedError):
        _ = file.checksum


@lru_cache(_CACHED_CHECKSUMS)
def _compute_checksum(file: LandedObject) -> str | None:
    """Return the SHA-256 of an object.

    Return None if the store lists it as an empty object, but does not have it: programs that show
    folders create such objects, and a listing does not show the `/` at the end of their names.
    """
    try:
        with file.open() as content:
            return hash_content(content)
    except FileNotFoundError:
        if file.size:
            raise
        return None
