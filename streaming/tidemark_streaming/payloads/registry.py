"""Find the schemas that records refer to by ID, in a folder or an HTTP registry.

Such a record begins with five bytes, as Confluent's serializers write them: a 0, and the schema's
ID as a big-endian number of four bytes. The schema of an ID never changes, so each schema is
requested only once.
"""

import math
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from tidemark.base.errors import DataError
from tidemark.base.secret import secret
from tidemark.base.settings import Settings
from tidemark_streaming.payloads.payload import UndecodableError
from tidemark_streaming.payloads.schema import Schema

_HEAD = struct.Struct(">bI")
_RETRY_SECONDS = 30.0
"""Seconds after which a missing schema is requested again."""


def split_id(value: bytes) -> tuple[int, bytes]:
    """Return the ID of a record's schema, and the bytes after the ID.

    Raises:
        UndecodableError: the value does not begin with a schema ID.
    """
    if len(value) < _HEAD.size or value[0] != 0:
        raise UndecodableError(
            "The record does not begin with a schema ID (a zero byte and four bytes). If records "
            "have no schema ID, set by_id=False."
        )
    return _HEAD.unpack_from(value)[1], value[_HEAD.size :]


def split_ids(values: pa.ChunkedArray) -> tuple[pa.ChunkedArray, dict[int, str]]:
    """Return the bytes of records after the IDs of their schemas, and the reasons of records that
    do not begin with a schema ID, by row."""
    contents = list[bytes | None]()
    reasons = dict[int, str]()
    for row, value in enumerate(values.to_pylist()):
        content = None
        if value is not None:
            try:
                content = split_id(value)[1]
            except UndecodableError as error:
                reasons[row] = str(error)
        contents.append(content)
    return pa.chunked_array([pa.array(contents, pa.binary())]), reasons


_OF_EIGHT_BYTES = (
    " Registries do not assign this ID. Serializers of Apicurio may write IDs of eight bytes: "
    "configure four bytes for the producer (apicurio.registry.as-confluent=true)."
)


class Registry:
    """Schemas by ID, cached once they are found.

    Args:
        location: a folder with a file `<id>.avsc` for each schema, or the address of a registry,
            http or https; default: the setting `schema_registry`.
    """

    def __init__(self, location: str | Path | None = None) -> None:
        self._place = location
        self._known = dict[int, Schema]()
        self._missing = dict[int, float]()
        self._source: Callable[[int], Schema | None] | None = None

    def find_schema(self, number: int) -> Schema:
        """Return the schema with an ID.

        Raises:
            DataError: the registry does not answer, or its answer is not valid.
            UndecodableError: the registry does not have the schema.
        """
        if number not in self._known:
            if self._missing.get(number, -math.inf) < time.monotonic() - _RETRY_SECONDS:
                self._source = self._source or _schema_finder(self._place)
                loaded = self._source(number)
                if loaded is None:
                    self._missing[number] = time.monotonic()
                else:
                    self._known[number] = loaded
            if number not in self._known:
                hint = _OF_EIGHT_BYTES if number == 0 else ""
                raise UndecodableError(
                    f"There is no schema with the record's schema ID {number}.{hint}"
                )
        return self._known[number]


def _schema_finder(location: str | Path | None) -> Callable[[int], Schema | None]:
    settings = Settings()
    where = settings.schema_registry if location is None else str(location)
    if not where.startswith(("http://", "https://")):
        return _Folder(Path(where)).find_schema
    # The HTTP client is slow to import, and few users have a registry server.
    from tidemark_streaming.payloads.server import Server

    auth = settings.schema_registry_auth
    return Server(where, None if auth is None else secret(auth).reveal()).find_schema


@dataclass(frozen=True)
class _Folder:
    path: Path

    def find_schema(self, number: int) -> Schema | None:
        file = self.path / f"{number}.avsc"
        try:
            return Schema("AVRO", file.read_text())
        except FileNotFoundError:
            if self.path.is_dir():
                return None
            raise DataError(
                f"There is no folder '{self.path}', which should have schemas by ID, such as "
                f"'{file.name}': create it, or correct the setting schema_registry "
                "(TIDEMARK_SCHEMA_REGISTRY)."
            ) from None
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise DataError(f"The schema file '{file}' can't be read: {why}.") from None
        except UnicodeDecodeError:
            raise DataError(f"The schema file '{file}' is not valid UTF-8 text.") from None
