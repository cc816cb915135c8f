"""Leases: one of several processes is responsible for something for as long as it renews its lease.

Unlike a lock, a lease lasts for a time. A process that renews it every half minute holds it in
between, and a process that died loses it after a while. A renewal time far in the future means that
the clock was set back since, so that lease has expired too. A renewal time slightly in the future
is valid, because the clocks of two machines may differ.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tidemark.base.errors import ConflictError
from tidemark.base.files import atomic
from tidemark.base.files.private import make_folder, open_lock


def renew(file: Path, owner: str, lasts: float) -> None:
    """Take or keep the lease in `file` for `lasts` seconds."""
    with _lock(file):
        now = time.time()
        lease: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {"owner": owner}
        if lease["owner"] != owner and abs(now - lease["at"]) < lasts:
            raise ConflictError(
                f"Another supervisor is responsible for these streams, {lease['owner']} (seen "
                f"{max(now - lease['at'], 0):.0f} seconds ago): this one, {owner}, is idle."
            )
        atomic.write(file, json.dumps({"owner": owner, "at": now}))


@contextmanager
def _lock(file: Path) -> Iterator[None]:
    make_folder(file.parent)
    lock = open_lock(file.with_name(f".{file.name}.lock"))
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
