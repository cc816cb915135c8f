"""A server of the S3 protocol that refuses each request."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

_REPLY = """<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>{code}</Code><Message>It is refused.</Message><RequestId>1</RequestId></Error>"""


@contextmanager
def serve_refusals(status: int, code: str) -> Iterator[str]:
    """Yield the address of a bucket, which environment variables make accessible.

    Args:
        status, code: the HTTP status of each reply, and the code in its content.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _refuse(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            content = _REPLY.format(code=code).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _refuse  # noqa: N815 (names of methods)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (its signature)
            """Stay silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        patch.setenv("AWS_ALLOW_HTTP", "true")
        patch.setenv("AWS_REGION", "us-east-1")
        patch.setenv("AWS_ACCESS_KEY_ID", "tester")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "canary-of-the-secret-key")
        yield "s3a://tables"
    server.shutdown()
    server.server_close()
    thread.join()
