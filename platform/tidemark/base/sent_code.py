"""Code that is sent to an engine elsewhere, and that a process of the engine has received.

The Python of the engine may lack every other package, so this module imports none.
"""

import re
from typing import NamedTuple

PATH = re.compile(r"(?:.*/tidemark-code-[0-9a-f]+\.zip|/proc/self/fd/\d+)/")
"""The beginning of the path of a module that was sent: a file of a worker's, or one in memory."""


class SentCode(NamedTuple):
    """A zip file with Python packages and modules.

    Args:
        name: the file name, which contains the hash of the contents.
        content: the bytes of the file.
    """

    name: str
    content: bytes


class _Process:
    received: SentCode | None = None


def receive_code(name: str, content: bytes) -> None:
    """Record that this process imports its modules from the given code."""
    _Process.received = SentCode(name, content)


def code_of_process() -> SentCode | None:
    """Return the code that this process has received; None if it imports its own."""
    return _Process.received
