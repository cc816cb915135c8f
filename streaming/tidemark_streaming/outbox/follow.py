"""An outbox that goes on: what is published goes out within a second, for as long as it runs.

Brokers that don't answer hold up nothing but the outbox: it tries again, later each time. Where
another process brings the same asset out, it waits, and looks now and then whether that one is
still at it.
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
"""Seconds between two looks at the table, which cost a millisecond."""

LONGEST = 30.0
"""Seconds at most that it waits after a failure; and between two looks at a topic whose table
stands, as it may be deleted or made anew."""

ELSEWHERE = 10.0
"""Seconds to leave to another process that brings it out."""

_attended: dict[str, threading.Thread] = {}


def follow(
    warehouse: Warehouse,
    transform: Definition,
    ended: threading.Event,
    told: Callable[[Emitted], None],
    failed: Callable[[TidemarkError], None],
) -> None:
    """Bring out what is published until `ended` is set.

    Args:
        told: what was brought out, whenever something was, and when all is well after a failure.
        failed: why something could not be, whenever that is.
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
    """Let this process bring an asset out beside its other work, once, until it ends.

    Args:
        warehouse: where the asset is.
        opened: gives the warehouse, in the thread that brings out.
    """
    name = f"{warehouse.location}/{warehouse.database}/{transform.name}"
    if transform.publishes_to is None or name in _attended:
        return
    log = logging.getLogger(__name__)

    def work() -> None:
        tables: Warehouse | None = None
        while True:
            try:
                # Each opened anew is one more session of the engine, until the process ends.
                tables = tables or opened()
                follow(
                    tables,
                    transform,
                    threading.Event(),
                    lambda e: log.info("%s: %s records out", transform.name, e.records),
                    lambda error: log.warning("%s", error),
                )
            except Exception as error:
                # A table may be dropped and made anew under it, or a disk be full.
                log.exception("The outbox of %s begins again", transform.name)
                tables = None if engine_lost(error) else tables
                time.sleep(LONGEST)

    _attended[name] = threading.Thread(target=work, name=f"outbox {name}", daemon=True)
    _attended[name].start()
