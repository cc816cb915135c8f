"""Read and write single files of an object store, with the client that delta-rs uses.

Each function is one request, except for a file or a listing that is too large for one.
"""

import os
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple, cast

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import ObjectStore, from_url

from tidemark.store.committers.client_options import client_options

if TYPE_CHECKING:
    from obstore import ObjectMeta, PutMode
    from obstore.store import S3Config

_SETTINGS = ("AWS_", "AZURE_", "GOOGLE_")
"""How the names of the environment variables begin that configure a client."""

PAGE_FILES = 1000
"""The number of files that one request lists."""

THREADS = 8
"""The number of requests that are sent in parallel."""

_CACHED_BYTES = 64 << 20
_CACHED_FILE_BYTES = 1 << 20


class ListedFile(NamedTuple):
    """The name and the tag of a file, as a listing of an object store shows them.

    Args:
        name: the path in the listed folder.
        tag: differs whenever the content of the file differs.
    """

    name: str
    tag: str


class FileVersion(NamedTuple):
    """Identifies the content of a file, for a write that must not follow another one.

    Args:
        tag: the tag of the file.
        generation: the number that Google's store compares in place of the tag; None if the store
            does not number its files.
    """

    tag: str
    generation: str | None


class ObjectFolder:
    """A folder of an object store.

    Args:
        url: the address of the folder.
    """

    def __init__(self, url: str) -> None:
        self._bucket, self._path = split_address(url)

    def list_after(self, folder: str, name: str | None = None) -> Iterator[list[ListedFile]]:
        """Yield the files of a subfolder in pages, sorted by name. Each page is one request.

        Args:
            name: list only files with names after this one.
        """
        prefix = self._absolute_path(folder).rstrip("/")
        offset = None if name is None else f"{prefix}/{name}"
        with store_errors():
            for page in obstore.list(self._store, prefix, offset=offset, chunk_size=PAGE_FILES):
                yield [_listed_file(file, prefix) for file in page]

    def read_files(self, paths: Sequence[str]) -> list[bytes]:
        """Return the contents of files, which are read in parallel."""
        if len(paths) < 2:
            return [self._read_file(path) for path in paths]
        with ThreadPoolExecutor(min(len(paths), THREADS)) as pool:
            return list(pool.map(self._read_file, paths))

    def read_cached(self, paths: Sequence[str]) -> list[bytes]:
        """Return the contents of small files that never change. They are read once."""
        contents = dict[str, bytes]()
        missing_paths = list[str]()
        for path in paths:
            content = _cache.find_content(self._cache_key(path))
            if content is None:
                missing_paths.append(path)
            else:
                contents[path] = content
        read_contents = self.read_files(missing_paths)
        for path, content in zip(missing_paths, read_contents, strict=True):
            contents[path] = content
            _cache.keep_content(self._cache_key(path), content)
        return [contents[path] for path in paths]

    def write_file(self, path: str, content: Path | bytes) -> None:
        """Write a file, and replace an existing one."""
        with store_errors():
            obstore.put(self._store, self._absolute_path(path), content)

    def write_cached(self, path: str, file: Path) -> None:
        """Write a file that never changes. If it is small, it need not be read later."""
        self.write_file(path, file)
        if file.stat().st_size <= _CACHED_FILE_BYTES:
            _cache.keep_content(self._cache_key(path), file.read_bytes())

    def _cache_key(self, path: str) -> str:
        return f"{self._bucket}/{self._absolute_path(path)}"

    def create_file(self, path: str, content: bytes) -> str | None:
        """Create a file. Return its tag; None if the file exists already."""
        try:
            with store_errors():
                created = obstore.put(
                    self._store, self._absolute_path(path), content, mode="create"
                )
        except AlreadyExistsError:
            return None
        return created["e_tag"]

    def read_tagged(self, path: str) -> tuple[bytes, FileVersion] | None:
        """Return the content and the version of a file; None if it does not exist."""
        try:
            with store_errors():
                reply = obstore.get(self._store, self._absolute_path(path))
                version = FileVersion(_read_tag(reply.meta), reply.meta["version"])
                return bytes(reply.bytes()), version
        except FileNotFoundError:
            return None

    def replace_file(
        self, path: str, content: bytes, version: FileVersion | None
    ) -> FileVersion | None:
        """Replace a file if it has a version. Return the new one; None if it has another one now.

        Args:
            version: the version that the file must have; None if it must not exist.
        """
        mode: PutMode = "create"
        if version is not None:
            mode = {"e_tag": version.tag}
            if version.generation is not None:
                mode["version"] = version.generation
        try:
            with store_errors():
                written = obstore.put(self._store, self._absolute_path(path), content, mode=mode)
        except (AlreadyExistsError, PreconditionError):
            return None
        return FileVersion(written["e_tag"] or "", written["version"])

    def _read_file(self, path: str) -> bytes:
        with store_errors():
            return bytes(obstore.get(self._store, self._absolute_path(path)).bytes())

    def _absolute_path(self, path: str) -> str:
        if self._path:
            return f"{self._path}/{path}"
        return path

    @property
    def _store(self) -> ObjectStore:
        return open_store(self._bucket)


def _listed_file(file: "ObjectMeta", folder: str) -> ListedFile:
    name = file["path"].removeprefix(f"{folder}/")
    return ListedFile(name, _read_tag(file))


def _read_tag(file: "ObjectMeta") -> str:
    return file["e_tag"] or str(file["last_modified"])


class FileCache:
    """The contents of the files that this process has read last."""

    def __init__(self) -> None:
        self._contents = OrderedDict[str, bytes]()
        self._size = 0
        self._lock = Lock()

    def find_content(self, key: str) -> bytes | None:
        with self._lock:
            content = self._contents.get(key)
            if content is not None:
                self._contents.move_to_end(key)
            return content

    def keep_content(self, key: str, content: bytes) -> None:
        with self._lock:
            if key in self._contents:
                return
            self._contents[key] = content
            self._size += len(content)
            while self._size > _CACHED_BYTES:
                _, oldest = self._contents.popitem(last=False)
                self._size -= len(oldest)


_cache = FileCache()


def split_address(url: str) -> tuple[str, str]:
    """Return the address of the bucket of a folder, and the path of the folder in it."""
    scheme, _, address = url.replace("s3a://", "s3://", 1).partition("://")
    bucket, _, path = address.rstrip("/").partition("/")
    return f"{scheme}://{bucket}", path


def open_store(bucket: str) -> ObjectStore:
    """Return a client for a bucket, with the present environment variables and options."""
    settings = {n: v for n, v in os.environ.items() if n.startswith(_SETTINGS)}
    options = client_options(bucket)
    return _create_client(bucket, tuple(sorted(settings.items())), tuple(sorted(options.items())))


@lru_cache(maxsize=8)
def _create_client(
    bucket: str, settings: tuple[tuple[str, str], ...], options: tuple[tuple[str, str], ...]
) -> ObjectStore:
    """Return a client, which keeps its connections open.

    Args:
        settings: the environment variables that the client reads.
        options: the options that it gets in addition.
    """
    # The client accepts the names of variables, which its types do not list.
    return from_url(bucket, config=cast("S3Config", dict(options)))


@contextmanager
def store_errors() -> Iterator[None]:
    """Raise errors of the client as `OSError`, so that `store.refusals` explains them."""
    try:
        yield
    except (AlreadyExistsError, PreconditionError):
        raise
    except BaseError as error:
        raise OSError(describe_error(error)) from error


def describe_error(error: BaseError) -> str:
    """Return the message of an error of the client, without its internal details."""
    return str(error).partition("\n\nDebug source")[0]
