"""A local server of the S3 protocol."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic, sleep
from uuid import uuid4

import pytest
import requests

from tidemark.engine.ports import free_port

_SERVER = """
import threading
from moto.s3.responses import S3Response
from moto.server import main

write_lock, put_object = threading.Lock(), S3Response.put_object


def put_atomically(response):
    with write_lock:
        return put_object(response)


S3Response.put_object = put_atomically
main()
"""
"""The program of the server. Each write compares and replaces in one step, as in an object store.
Moto does not do this by itself: of two writers with the same condition, both may succeed."""


BUCKET = "s3a://tables"


@dataclass(frozen=True)
class ObjectStore:
    """A server with the bucket `BUCKET`, which keeps its objects in memory."""

    process: subprocess.Popen[bytes]

    def pause(self) -> None:
        """Let the server answer no more. It accepts connections."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let the server answer again, also the requests that have waited."""
        self.process.send_signal(signal.SIGCONT)


@contextmanager
def serve_bucket() -> Iterator[str]:
    """Yield the address of a bucket, which environment variables make accessible."""
    with serve_store():
        yield BUCKET


@contextmanager
def serve_store() -> Iterator[ObjectStore]:
    """Yield a server with a bucket, which environment variables make accessible."""
    port = free_port()
    running = subprocess.Popen(
        [sys.executable, "-c", _SERVER, "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    address, deadline = f"http://127.0.0.1:{port}", monotonic() + 60
    while True:
        try:
            assert requests.put(f"{address}/tables", timeout=5).ok
            break
        except (requests.ConnectionError, requests.Timeout):
            assert running.poll() is None
            assert monotonic() < deadline
            sleep(0.1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", address)
        patch.setenv("AWS_ALLOW_HTTP", "true")
        patch.setenv("AWS_REGION", "us-east-1")
        patch.setenv("AWS_ACCESS_KEY_ID", "tester")
        patch.setenv("AWS_SECRET_ACCESS_KEY", uuid4().hex)
        try:
            yield ObjectStore(running)
        finally:
            # A server that is paused would not end.
            running.send_signal(signal.SIGCONT)
            running.terminate()
            running.wait(60)
