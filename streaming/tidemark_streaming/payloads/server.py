"""Client of an HTTP schema registry with Confluent's protocol."""

import json
import os
import re
from typing import Any
from urllib.parse import quote

import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from tidemark.base.errors import DataError
from tidemark_streaming.payloads.schema import Schema

_TIMEOUT_SECONDS = (5, 10)
_RETRIABLE = (429, 500, 502, 503, 504)
"""Status codes of temporary failures."""
_NOT_FOUND = range(40401, 40500)
"""Error codes of a registry: the subject, version or schema does not exist."""
_TRUSTED = "REQUESTS_CA_BUNDLE"
"""The environment variable with the file of certificates that the client trusts."""
_UNTRUSTED = re.compile(r"certificate verify failed: (.*?)\.? \(_ssl")
"""Matches OpenSSL's reason in an error message of the client."""


class Server:
    """A registry that speaks Confluent's protocol.

    Args:
        auth: `user:password`, if the registry requires them.
    """

    def __init__(self, url: str, auth: str | None) -> None:
        self._url = url.rstrip("/")
        self._session = requests.Session()
        if auth is not None:
            user, _, password = auth.partition(":")
            self._session.auth = (user, password)
        # Retries temporary failures for some seconds.
        retriable = Retry(
            4,
            backoff_factor=0.2,
            status_forcelist=_RETRIABLE,
            raise_on_status=False,
            # The server's Retry-After may be hours.
            respect_retry_after_header=False,
        )
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, HTTPAdapter(max_retries=retriable))

    def find_schema(self, number: int) -> Schema | None:
        path = f"/schemas/ids/{number}"
        answer = self._request_schema(path)
        if answer is None:
            return None
        return self._read_schema(answer, path)

    def _read_schema(self, answer: dict[str, Any], path: str) -> Schema:
        references = list[Schema]()
        for other in self._reference_paths(answer, path):
            answer_found = self._request_schema(other)
            if answer_found is None:
                raise self._request_error(
                    other, "it does not have this schema, to which another schema refers"
                )
            references.append(self._read_schema(answer_found, other))
        return Schema(answer.get("schemaType", "AVRO"), answer["schema"], tuple(references))

    def _reference_paths(self, answer: dict[str, Any], path: str) -> list[str]:
        """Return the paths of the schemas that a schema refers to."""
        try:
            return [
                f"/subjects/{quote(reference['subject'], safe='')}/versions/{reference['version']}"
                for reference in answer.get("references") or ()
            ]
        except (LookupError, TypeError):
            reason = "its answer has a reference without a subject or a version"
            raise self._request_error(path, reason) from None

    def _request_schema(self, path: str) -> dict[str, Any] | None:
        """Return the registry's answer; None if the registry does not have the schema at `path`."""
        try:
            answer = self._session.get(self._url + path, timeout=_TIMEOUT_SECONDS)
            if answer.status_code == requests.codes.not_found and _is_not_found(answer):
                return None
            if answer.status_code in (requests.codes.unauthorized, requests.codes.forbidden):
                raise self._request_error(
                    path,
                    f"it denies access (HTTP {answer.status_code}); set schema_registry_auth "
                    "(TIDEMARK_SCHEMA_REGISTRY_AUTH) to where its user and password are stored",
                )
            if not answer.ok:
                retriable = answer.status_code in _RETRIABLE
                raise self._request_error(
                    path, f"it answers HTTP {answer.status_code}", retriable=retriable
                )
            parsed = answer.json()
            if not isinstance(parsed, dict) or not isinstance(parsed.get("schema"), str):
                raise self._request_error(path, "its answer has no schema")
        except json.JSONDecodeError:
            raise self._request_error(path, "its answer is not JSON") from None
        except requests.exceptions.SSLError as error:
            untrusted = _UNTRUSTED.search(str(error))
            if untrusted is None:
                raise self._request_error(
                    path, "it does not use TLS, or uses an unsupported version of it"
                ) from None
            raise self._request_error(
                path,
                f"its certificate can't be verified ({untrusted[1]}); if a private authority "
                "signed "
                f"it, set {_TRUSTED} to the certificate file of that authority",
            ) from None
        except ValueError:
            raise self._request_error(path, "its address is not valid") from None
        except requests.RequestException as error:
            reason = type(error).__name__.removesuffix("Error").lower()
            raise self._request_error(
                path, f"it can't be reached ({reason})", retriable=True
            ) from None
        except OSError:
            trusted = os.environ.get(_TRUSTED, "")
            reason = (
                f"there is no file '{trusted}' of trusted certificates, which {_TRUSTED} specifies"
            )
            raise self._request_error(path, reason) from None
        return parsed

    def _request_error(self, path: str, reason: str, *, retriable: bool = False) -> DataError:
        scheme, _, address = self._url.partition(":")
        # Text before the last @ may be a password, even in an invalid address.
        host = address.partition("?")[0].rpartition("@")[2].lstrip("/")
        return DataError(
            f"The schema registry at {scheme}://{host} does not return {path}: {reason}. No "
            "record is lost: the next ingest requests the schema again. If the address is wrong, "
            "correct schema_registry (TIDEMARK_SCHEMA_REGISTRY).",
            retriable=retriable,
        )


def _is_not_found(answer: requests.Response) -> bool:
    """Return whether a registry reports that it does not have a schema.

    A server that is not a registry, or that has the registry at another path, also answers 404, but
    without an error code of a registry.
    """
    try:
        parsed = answer.json()
    except ValueError:
        return False
    return isinstance(parsed, dict) and parsed.get("error_code") in _NOT_FOUND
