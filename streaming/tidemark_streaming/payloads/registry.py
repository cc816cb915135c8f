"""Where schemas are that a record names by a number: a folder, or a registry of HTTP.

A record that names one begins with five bytes, as Confluent's serializers write them: 0, and the
schema's id as a big-endian number of four. The id stands for one schema for ever, so that each is
asked for once.
"""

import json
import os
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from tidemark.base.errors import DataError
from tidemark.base.secret import secret
from tidemark.base.settings import Settings
from tidemark_streaming.payloads.payload import UndecodableError

_HEAD = struct.Struct(">bI")
_TIMEOUT = (5, 10)
_PASSING = (429, 500, 502, 503, 504)
"""What a server answers that may answer otherwise soon."""
_TRUSTED = "REQUESTS_CA_BUNDLE"
"""A variable of the client's: whom to trust."""
_AGAIN = 30.0
"""Seconds after which a schema is asked for again that was not there."""


def split(value: bytes) -> tuple[int, bytes]:
    """The id of a record's schema, and what follows it.

    Raises:
        UndecodableError: it begins with no id.
    """
    if len(value) < _HEAD.size or value[0] != 0:
        raise UndecodableError("It does not begin with the id of a schema, a zero and four bytes.")
    return _HEAD.unpack_from(value)[1], value[_HEAD.size :]


@dataclass(frozen=True)
class Schema:
    """A schema as its registry has it.

    Args:
        kind: AVRO, PROTOBUF or JSON.
        text: the schema.
        references: those that it refers to, first.
    """

    kind: str
    text: str
    references: "tuple[Schema, ...]" = ()


class Registry:
    """Schemas by their ids, each remembered once it was found.

    Args:
        place: a folder with a file `<id>.avsc` for each, or the address of a registry, http or
            https; by default the setting `schema_registry`.
    """

    def __init__(self, place: str | Path | None = None) -> None:
        self._place = place
        self._known = dict[int, Schema]()
        self._missing = dict[int, float]()
        self._source: Callable[[int], Schema | None] | None = None

    def schema(self, number: int) -> Schema:
        """The schema of an id.

        Raises:
            DataError: the registry does not answer, or not so that it is understood.
            UndecodableError: it has no such schema.
        """
        if number not in self._known:
            if self._missing.get(number, 0) < time.monotonic() - _AGAIN:
                self._source = self._source or _source(self._place)
                found = self._source(number)
                if found is None:
                    self._missing[number] = time.monotonic()
                else:
                    self._known[number] = found
            if number not in self._known:
                raise UndecodableError(f"There is no schema with the id {number}, which it names.")
        return self._known[number]


def _source(place: str | Path | None) -> Callable[[int], Schema | None]:
    settings = Settings()
    where = settings.schema_registry if place is None else str(place)
    if not where.startswith(("http://", "https://")):
        return _Folder(Path(where)).schema
    auth = settings.schema_registry_auth
    return _Server(where, None if auth is None else secret(auth).reveal()).schema


@dataclass(frozen=True)
class _Folder:
    """A folder of schemas."""

    path: Path

    def schema(self, number: int) -> Schema | None:
        file = self.path / f"{number}.avsc"
        try:
            return Schema("AVRO", file.read_text())
        except FileNotFoundError:
            if self.path.is_dir():
                return None
            raise DataError(
                f"There is no folder '{self.path}' for schemas by id, as '{file.name}': make it, "
                "or set schema_registry (TIDEMARK_SCHEMA_REGISTRY)."
            ) from None
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"Schema '{file}' can't be read: {error}.") from None


class _Server:
    """A registry that speaks Confluent's protocol.

    Args:
        auth: `user:password`, if it asks for them.
    """

    def __init__(self, url: str, auth: str | None) -> None:
        self._url = url.rstrip("/")
        self._session = requests.Session()
        if auth is not None:
            user, _, password = auth.partition(":")
            self._session.auth = (user, password)
        # What is passing is tried again for some seconds.
        passing = Retry(4, backoff_factor=0.2, status_forcelist=_PASSING, raise_on_status=False)
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, HTTPAdapter(max_retries=passing))

    def schema(self, number: int) -> Schema | None:
        told = self._get(f"/schemas/ids/{number}")
        return None if told is None else self._read(told)

    def _read(self, told: dict[str, Any]) -> Schema:
        references = list[Schema]()
        for one in told.get("references") or ():
            path = f"/subjects/{quote(one['subject'], safe='')}/versions/{one['version']}"
            found = self._get(path)
            if found is None:
                raise self._failed(path, "it has no such schema, to which another one refers")
            references.append(self._read(found))
        return Schema(told.get("schemaType", "AVRO"), told["schema"], tuple(references))

    def _get(self, path: str) -> dict[str, Any] | None:
        """What it answers; None where it has no such thing."""
        try:
            answer = self._session.get(self._url + path, timeout=_TIMEOUT)
            if answer.status_code == requests.codes.not_found and "error_code" in answer.text:
                return None
            if answer.status_code in (requests.codes.unauthorized, requests.codes.forbidden):
                raise self._failed(
                    path,
                    f"it refuses (HTTP {answer.status_code}); schema_registry_auth "
                    "(TIDEMARK_SCHEMA_REGISTRY_AUTH) says where its user and password are",
                )
            if not answer.ok:
                passing = answer.status_code in _PASSING
                raise self._failed(path, f"it answers HTTP {answer.status_code}", passing=passing)
            told = answer.json()
            if not isinstance(told, dict) or not isinstance(told.get("schema"), str):
                raise self._failed(path, "its answer has no schema")
        except json.JSONDecodeError:
            raise self._failed(path, "its answer is no JSON") from None
        except requests.exceptions.SSLError as error:
            if "CERTIFICATE_VERIFY_FAILED" not in str(error):
                raise self._failed(path, "it speaks no TLS that is understood") from None
            trusted = os.environ.get(_TRUSTED, "the package certifi's authorities")
            raise self._failed(
                path,
                f"its certificate is another host's, or none that {trusted} can vouch for; "
                f"{_TRUSTED} names the file of the authority's certificate",
            ) from None
        except requests.RequestException as error:
            reason = type(error).__name__.removesuffix("Error").lower()
            raise self._failed(path, f"it can't be reached ({reason})", passing=True) from None
        return told

    def _failed(self, path: str, reason: str, *, passing: bool = False) -> DataError:
        parts = urlsplit(self._url)
        host = parts.netloc.rpartition("@")[2]
        return DataError(
            f"The schema registry at {parts.scheme}://{host}{parts.path} does not give {path}: "
            f"{reason}. Nothing is lost: the next ingest asks again. Correct schema_registry "
            "(TIDEMARK_SCHEMA_REGISTRY) if it is another one.",
            passing=passing,
        )
