"""Run a sink continuously: publish changes within a second of their commit.

If brokers do not answer, only the sink waits: it tries again with increasing delays. If another
process publishes the same asset, the sink waits and checks now and then whether that process is
still active.
"""

import logging
import threading
import time
from collections.abc import Callable

from tidemark.base.errors import ConflictError, TidemarkError
from tidemark.define.definition import Definition
from tidemark.store.warehouse import Place, Warehouse
from tidemark_streaming.outage import engine_lost
from tidemark_streaming.outbox.outbox import Emitted, Outbox

EVERY = 0.5
"""Seconds between two polls of the table, which take a millisecond."""

LONGEST = 30.0
"""The longest wait after a failure, in seconds. It is also the time between two checks of the topic
while the table does not change, because the topic may be deleted or recreated."""

ELSEWHERE = 10.0
"""Seconds to wait while another process publishes the asset."""

_attended: dict[str, threading.Thread] = {}


def follow(
    warehouse: Warehouse,
    transform: Definition,
    ended: threading.Event,
    told: Callable[[Emitted], None],
    failed: Callable[[TidemarkError], None],
) -> None:
    """Publish the asset's changes until `ended` is set.

    Args:
        told: takes the result whenever something was published, and after the recovery from a
            failure.
        failed: takes the error whenever publishing failed.
    """
    outbox, wait, done, fails = Outbox(warehouse, transform), EVERY, None, False
    looked = time.monotonic()
    while not ended.is_set():
        try:
            head = warehouse.head(transform.table)
            rests = head == done and time.monotonic() - looked < LONGEST
            if head is not None and not rests:
                emitted = outbox.emit()
                if emitted.transactions or fails:
                    told(emitted)
                done, wait, fails, looked = head, EVERY, False, time.monotonic()
        except ConflictError as error:
            failed(error)
            wait, fails = ELSEWHERE, True
        except TidemarkError as error:
            failed(error)
            wait, fails = min(wait * 2, LONGEST), True
        ended.wait(wait)


def attend(warehouse: Place, transform: Definition, opened: Callable[[], Warehouse]) -> None:
    """Publish an asset in a background thread until this process ends. Do nothing if the process
    does so already.

    Args:
        warehouse: the location of the asset.
        opened: opens the warehouse, called in the publishing thread.
    """
    name = f"{warehouse.location}/{warehouse.database}/{transform.name}"
    if transform.publishes_to is None or name in _attended:
        return
    log = logging.getLogger(__name__)

    def work() -> None:
        tables: Warehouse | None = None
        while True:
            try:
                # Each call opens another engine session, which lasts until the process ends.
                tables = tables or opened()
                follow(
                    tables,
                    transform,
                    threading.Event(),
                    lambda e: log.info("%s: published %s records", transform.name, e.records),
                    lambda error: log.warning("%s", error),
                )
            except Exception as error:
                # The table may be dropped and recreated at any time, or the disk may be full.
                log.exception("The sink of %s restarts", transform.name)
                tables = None if engine_lost(error) else tables
                time.sleep(LONGEST)

    _attended[name] = threading.Thread(target=work, name=f"sink {name}", daemon=True)
    _attended[name].start()
