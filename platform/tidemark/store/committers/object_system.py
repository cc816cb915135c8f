"""Give Arrow the files of an object store, with the client that delta-rs uses.

One client means one set of environment variables and one kind of error. Arrow's own clients read
other variables than delta-rs, and refuse some addresses that delta-rs accepts.

An object store has no folders. A path is a folder if the name of a file begins with it.
"""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import PurePosixPath
from typing import IO, TYPE_CHECKING, cast

import obstore
import pyarrow as pa
import pyarrow.fs as pafs

from tidemark.store.committers.object_files import THREADS, open_store, store_errors

if TYPE_CHECKING:
    from obstore import ObjectMeta, ReadableFile, WritableFile
    from obstore.store import ObjectStore
    from typing_extensions import Buffer


class ObjectSystem(pafs.FileSystemHandler):
    """Lets Arrow read and write the files of a bucket.

    Paths begin with the bucket.

    Args:
        bucket: the address of the bucket.
    """

    def __init__(self, bucket: str) -> None:
        self._address = bucket
        self._bucket = bucket.partition("://")[2]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectSystem) and other._address == self._address

    def __hash__(self) -> int:
        return hash(self._address)

    def get_type_name(self) -> str:
        return "object store"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: Sequence[str]) -> list[pafs.FileInfo]:
        if len(paths) < 2:
            return [self._find_files(path) for path in paths]
        with ThreadPoolExecutor(min(len(paths), THREADS)) as pool:
            return list(pool.map(self._find_files, paths))

    def get_file_info_selector(self, selector: pafs.FileSelector) -> list[pafs.FileInfo]:
        folder = selector.base_dir
        entries = list[pafs.FileInfo]()
        subfolders = list[str]()
        if selector.recursive:
            entries.extend(self._list_below(folder))
            subfolders = _parents_below(folder, [info.path for info in entries])
        else:
            with store_errors():
                listed = obstore.list_with_delimiter(self._store, self._object_key(folder))
            entries.extend(map(self._describe_file, listed["objects"]))
            subfolders = [f"{self._bucket}/{key}" for key in listed["common_prefixes"]]
        for path in subfolders:
            entries.append(pafs.FileInfo(path, pafs.FileType.Directory))
        if not entries and not selector.allow_not_found:
            raise FileNotFoundError(f"There is no folder '{folder}'.")
        return entries

    def create_dir(self, path: str, recursive: bool) -> None:
        """Do nothing: a folder exists as soon as it has a file."""

    def delete_dir(self, path: str) -> None:
        paths = [self._object_key(info.path) for info in self._list_below(path)]
        with store_errors():
            obstore.delete(self._store, paths)

    def delete_dir_contents(
        self,
        path: str,
        missing_dir_ok: bool = False,
    ) -> None:
        self.delete_dir(path)

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError("A bucket is never deleted as a whole.")

    def delete_file(self, path: str) -> None:
        with store_errors():
            obstore.delete(self._store, self._object_key(path))

    def move(self, src: str, dest: str) -> None:
        with store_errors():
            obstore.rename(self._store, self._object_key(src), self._object_key(dest))

    def copy_file(self, src: str, dest: str) -> None:
        with store_errors():
            obstore.copy(self._store, self._object_key(src), self._object_key(dest))

    def open_input_file(self, path: str) -> pa.PythonFile:
        with store_errors():
            file = obstore.open_reader(self._store, self._object_key(path))
        return pa.PythonFile(cast("IO[bytes]", _Reader(file)), mode="r")

    def open_input_stream(self, path: str) -> pa.PythonFile:
        return self.open_input_file(path)

    def open_output_stream(self, path: str, metadata: object) -> pa.PythonFile:
        with store_errors():
            file = obstore.open_writer(self._store, self._object_key(path))
        return pa.PythonFile(cast("IO[bytes]", _Writer(file)), mode="w")

    def open_append_stream(self, path: str, metadata: object) -> pa.PythonFile:
        raise NotImplementedError("A file of an object store can't be extended.")

    def _find_files(self, path: str) -> pafs.FileInfo:
        key = self._object_key(path)
        with store_errors():
            if key:
                with suppress(FileNotFoundError):
                    return self._describe_file(obstore.head(self._store, key))
            listed = next(iter(obstore.list(self._store, key or None, chunk_size=1)), [])
        return pafs.FileInfo(path, pafs.FileType.Directory if listed else pafs.FileType.NotFound)

    def _list_below(self, folder: str) -> Iterator[pafs.FileInfo]:
        with store_errors():
            for page in obstore.list(self._store, self._object_key(folder) or None):
                yield from map(self._describe_file, page)

    def _describe_file(self, file: "ObjectMeta") -> pafs.FileInfo:
        return pafs.FileInfo(
            f"{self._bucket}/{file['path']}",
            pafs.FileType.File,
            mtime=file["last_modified"],
            size=file["size"],
        )

    def _object_key(self, path: str) -> str:
        """Return the name of a file or folder in the bucket."""
        return path.removeprefix(self._bucket).strip("/")

    @property
    def _store(self) -> "ObjectStore":
        return open_store(self._address)


class _Reader:
    """A file that Arrow reads."""

    def __init__(self, file: "ReadableFile") -> None:
        self._file = file
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        with store_errors():
            return bytes(self._file.read(None if size < 0 else size))

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def size(self) -> int:
        return self._file.size

    def close(self) -> None:
        self.closed = True


class _Writer:
    """A file that Arrow writes. It exists after it was closed."""

    def __init__(self, file: "WritableFile") -> None:
        self._file = file
        self.closed = False

    def write(self, content: "Buffer") -> int:
        with store_errors():
            # Arrow's buffers are of signed bytes, which the client refuses.
            return self._file.write(memoryview(content).cast("B"))

    def flush(self) -> None:
        """Do nothing: the file is written in parts of the client's size."""

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            with store_errors():
                self._file.close()


def _parents_below(folder: str, paths: Iterable[str]) -> list[str]:
    """Return the folders between a folder and files below it."""
    top = PurePosixPath(folder)
    between = set[str]()
    for path in paths:
        for parent in PurePosixPath(path).parents:
            if top in parent.parents:
                between.add(str(parent))
    return sorted(between)
