"""A schema registry for tests: a real server with Confluent's protocol."""

import json
import ssl
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any


@dataclass
class Registered:
    """A schema registry over HTTP: its answers by path, and the requested paths.

    Args:
        user: `user:password`, if it requires authentication.
        fails: the status of all answers while it does not work.
        later: the value of `Retry-After` in seconds.
    """

    url: str
    answers: dict[str, tuple[int, object]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    user: str | None = None
    fails: int | None = None
    later: str | None = None

    def has(self, number: int, schema: object, **more: object) -> None:
        self.answers[f"/schemas/ids/{number}"] = (200, {"schema": json.dumps(schema), **more})

    def register(self, told: dict[str, Any]) -> int:
        """Register a posted schema. Return its ID, which is the existing one or the next."""
        schema = {
            name: told[name] for name in ("schema", "schemaType", "references") if told.get(name)
        }
        number = 1
        while self.answers.setdefault(f"/schemas/ids/{number}", (200, schema)) != (200, schema):
            number += 1
        return number


@contextmanager
def serving(certificate: Path | None = None) -> Iterator[Registered]:
    """Serve Confluent's protocol: clients register schemas and read them by ID.

    Args:
        certificate: the server's certificate, for TLS.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            registered.asked.append(self.path)
            missing = (404, {"error_code": 40403, "message": "Schema not found"})
            self._answer(*registered.answers.get(self.path, missing))

        def do_POST(self) -> None:
            told = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path.partition("?")[0].endswith("/versions"):
                self._answer(200, {"id": registered.register(told)})
            else:
                self._answer(404, {"error_code": 40401, "message": "Subject not found"})

        def _answer(self, status: int, told: object) -> None:
            if registered.fails is not None:
                status, told = registered.fails, {"error_code": registered.fails}
            if registered.user is not None:
                wanted = f"Basic {b64encode(registered.user.encode()).decode()}"
                if self.headers["Authorization"] != wanted:
                    status, told = 401, {"error_code": 401, "message": "Unauthorized"}
            body = told if isinstance(told, bytes) else json.dumps(told).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            if registered.later is not None:
                self.send_header("Retry-After", registered.later)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (its name)
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        registered = Registered(f"http://127.0.0.1:{server.server_port}")
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
            registered.url = registered.url.replace("http:", "https:")
        thread = Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield registered
        finally:
            server.shutdown()
            thread.join()
