"""A proxy in front of an object store, which records each request, and can change or refuse it."""

import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

import pytest
import requests

_OWN_HEADERS = ("transfer-encoding", "connection", "content-length")
"""The headers that the proxy sets itself."""

_ANY_SIGNATURE = "AWS4-HMAC-SHA256 Credential=any/20260101/us-east-1/s3/aws4_request"
"""A header for a server that does not verify signatures, but refuses unsigned requests."""

_UNKNOWN_KEY = b"""<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>InvalidAccessKeyId</Code><Message>The key is unknown.</Message></Error>"""


class Request(NamedTuple):
    """A request to the object store.

    Args:
        kind: `LIST`, or the HTTP method.
        key: the key, or the prefix that is listed.
    """

    kind: str
    key: str


class StoreProxy:
    """The requests that pass through a proxy.

    Args:
        store: the address of the object store.
    """

    def __init__(self, store: str) -> None:
        self.store = store
        self.requests = list[Request]()
        self.signers = set[str]()
        """The key, the region and the session token of each signature, such as
        `KEY/us-east-1/TOKEN`."""
        self.drops_conditions = False
        """True if the proxy removes the condition that a key must not exist."""
        self.refused_keys = set[str]()
        """The access keys whose requests the proxy refuses."""
        self.speaks_google = False
        """True if the proxy translates between the protocols of Google's store and of S3."""
        self.is_away = False
        """True if the proxy closes each connection without a reply."""
        self.lost_answers = 0
        """The number of next commits whose answer does not reach the client."""

    @contextmanager
    def count(self) -> Iterator[list[Request]]:
        """Yield a list, which has the requests of the context after it has ended."""
        counted = list[Request]()
        start = len(self.requests)
        yield counted
        counted += self.requests[start:]


def summarize_requests(counted: list[Request]) -> str:
    """Return the number of requests by kind and file, for messages of tests."""
    kinds = Counter(f"{r.kind} {r.key.rpartition('/')[0][-40:]}" for r in counted)
    return f"{len(counted)} requests: {dict(kinds.most_common())}"


@contextmanager
def serve_proxy() -> Iterator[StoreProxy]:
    """Yield a proxy in front of the object store of `serve_bucket`, which clients use from now."""
    proxy = StoreProxy(os.environ["AWS_ENDPOINT_URL"])
    handler = type("Handler", (_Handler,), {"proxy": proxy})
    server = _Server(("127.0.0.1", 0), handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        yield proxy
    server.shutdown()
    server.server_close()
    thread.join()


@contextmanager
def serve_google(folder: Path) -> Iterator[StoreProxy]:
    """Yield a proxy that speaks the protocol of Google's store, and has the bucket `gs://tables`.

    Args:
        folder: a folder for the file with the account.
    """
    with serve_proxy() as proxy, pytest.MonkeyPatch.context() as patch:
        proxy.speaks_google = True
        account = {
            "gcs_base_url": os.environ["AWS_ENDPOINT_URL"],
            "disable_oauth": True,
            "client_email": "",
            "private_key": "",
            "private_key_id": "",
        }
        file = folder / "account.json"
        file.write_text(json.dumps(account))
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        patch.setenv("GOOGLE_SERVICE_ACCOUNT", str(file))
        yield proxy


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a client that has closed its connection before it has read the response."""


class _Handler(BaseHTTPRequestHandler):
    proxy: StoreProxy
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self._session = requests.Session()

    def finish(self) -> None:
        self._session.close()
        super().finish()

    def _forward(self) -> None:
        self.proxy.requests.append(self._parse())
        self.proxy.signers.add(self._find_signer())
        if self.proxy.is_away:
            self.close_connection = True
            return
        length = int(self.headers.get("Content-Length") or 0)
        if self._find_signer().partition("/")[0] in self.proxy.refused_keys:
            self.rfile.read(length)
            self._refuse_key()
            return
        response = self._session.request(
            self.command,
            f"{self.proxy.store}{self.path}",
            headers=self._translate_headers(),
            data=self.rfile.read(length),
            timeout=60,
        )
        is_commit = self.command == "PUT" and self.path.endswith(".json")
        if is_commit and self.proxy.lost_answers > 0:
            self.proxy.lost_answers -= 1
            self.close_connection = True
            return
        self.send_response(response.status_code)
        for name, value in response.headers.items():
            if name.lower() not in _OWN_HEADERS:
                self.send_header(name, value)
            if name.lower() == "etag" and self.proxy.speaks_google:
                # Like a generation, it differs for each content of the tests.
                self.send_header("x-goog-generation", value.strip('"'))
        size = response.headers.get("Content-Length") if self.command == "HEAD" else None
        self.send_header("Content-Length", size or str(len(response.content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.content)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _forward  # noqa: N815 (the names of methods)

    def _translate_headers(self) -> dict[str, str]:
        headers = {name: value for name, value in self.headers.items() if self._passes(name)}
        if not self.proxy.speaks_google:
            return headers
        headers["authorization"] = _ANY_SIGNATURE
        generation = headers.pop("x-goog-if-generation-match", None)
        if generation == "0":
            headers["If-None-Match"] = "*"
        elif generation is not None:
            headers["If-Match"] = f'"{generation}"'
        source = headers.pop("x-goog-copy-source", None)
        if source is not None:
            headers["x-amz-copy-source"] = source
        return headers

    def _passes(self, header: str) -> bool:
        name = header.lower()
        return name != "connection" and not (
            name == "if-none-match" and self.proxy.drops_conditions
        )

    def _refuse_key(self) -> None:
        content = b"" if self.command == "HEAD" else _UNKNOWN_KEY
        self.send_response(403)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _find_signer(self) -> str:
        # The header has, among others, `Credential=KEY/20260131/us-east-1/s3/aws4_request,`.
        _, _, scope = self.headers.get("Authorization", "").partition("Credential=")
        if not scope:
            return "unsigned"
        key, _, region, *_ = scope.split("/")
        return f"{key}/{region}/{self.headers.get('x-amz-security-token', '')}"

    def _parse(self) -> Request:
        address = urlsplit(self.path)
        query = parse_qs(address.query)
        if self.command == "GET" and ("list-type" in query or "prefix" in query):
            return Request("LIST", query.get("prefix", [""])[0])
        _, _, key = address.path.lstrip("/").partition("/")
        return Request(self.command, key)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (its own signature)
        """Stay silent."""
