"""A process that promotes a rebuilt source, as on another machine, and is paused at a given point.

Its arguments are the warehouse's location, the database and the point. The environment variable
`TEST_ENGINE_ADDRESS` has the address of the engine.
"""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from helpers.data.orders import ORDERS, PAYMENTS
from helpers.processes.machines import await_pause
from tidemark.base.settings import Settings
from tidemark.define.derived.union import union
from tidemark.engine.channel import Channel, open_session
from tidemark.engine.connect import engine_address
from tidemark.store.warehouse import Warehouse
from tidemark.store.workers import hold
from tidemark_streaming.derived import rebuild

ADDRESS = "TEST_ENGINE_ADDRESS"
LEASE_SECONDS = 2

MOVEMENTS = union(name="movements", of=[ORDERS, PAYMENTS])
"""The source that is promoted."""


@contextmanager
def paused_promotion(
    engine: Settings, warehouse: Warehouse, point: str
) -> Iterator["subprocess.Popen[str]"]:
    """Start the process, wait until it is paused, and yield it. Kill it at the end."""
    environment = {**os.environ, ADDRESS: engine_address(engine)}
    command = [sys.executable, "-m", __name__, warehouse.location, warehouse.database, point]
    folder = Path(__file__).parents[2]
    with subprocess.Popen(
        command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            await_pause(process)
            yield process
        finally:
            process.kill()


def _main(location: str, database: str, point: str) -> None:
    def pause(reached: str) -> None:
        if reached == point:
            os.kill(os.getpid(), signal.SIGSTOP)

    replace_rows = Warehouse.replace_rows

    def pause_and_replace(self: Warehouse, rows: Any, table: str, *rest: Any, **more: Any) -> Any:  # noqa: ANN401
        pause(f"before {table}")
        return replace_rows(self, rows, table, *rest, **more)

    patched: Any = Warehouse
    patched.replace_rows = pause_and_replace
    rebuild.pass_fail_point = pause
    socket.gethostname = lambda: "elsewhere"
    hold.LEASE_SECONDS = LEASE_SECONDS
    hold._RENEW_SECONDS = LEASE_SECONDS / 4
    session = open_session(Channel(os.environ[ADDRESS]))
    warehouse = Warehouse(session, location, database, registered=False)
    rebuild.promote_source(warehouse, MOVEMENTS)


if __name__ == "__main__":
    _main(*sys.argv[1:])
