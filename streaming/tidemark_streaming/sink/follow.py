"""Run a sink continuously: publish changes within a second of their commit.

If brokers do not answer, only the sink waits: it tries again with increasing delays. If another
process publishes the same asset, the sink waits and checks now and then whether that process is
still active.
"""

import logging
import threading
import time
from collections.abc import Callable

from tidemark.base.errors import ConflictError, EngineLostError, TidemarkError
from tidemark.define.definition import Definition
from tidemark.store.warehouse import Place, Warehouse
from tidemark_streaming.base.outage import engine_lost
from tidemark_streaming.sink.writer import PublishResult, SinkWriter

_POLL_SECONDS = 0.5
"""Seconds between two polls of the table. A poll takes a millisecond."""

MAX_WAIT_SECONDS = 30.0
"""The longest wait after a failure, in seconds. While the table does not change, it is also the
time between two checks of the topic, which may be deleted or recreated."""

_CONFLICT_WAIT_SECONDS = 10.0
"""Seconds to wait while another process publishes the asset."""

_followed: dict[str, threading.Thread] = {}


def follow_asset(
    warehouse: Warehouse,
    definition: Definition,
    stop: threading.Event,
    on_published: Callable[[PublishResult], None],
    on_failure: Callable[[TidemarkError], None],
) -> None:
    """Publish the asset's changes until `stop` is set.

    Args:
        on_published: called with the result whenever something was published, and after the
            recovery from a failure.
        on_failure: called with the error whenever publishing failed.

    Raises:
        EngineLostError: the warehouse's engine was lost.
    """
    writer = SinkWriter(warehouse, definition)
    wait = _POLL_SECONDS
    published_head = None
    fails = False
    looked = time.monotonic()
    while not stop.is_set():
        try:
            head = warehouse.find_head(definition.published_table)
            rests = head == published_head and time.monotonic() - looked < MAX_WAIT_SECONDS
            if head is not None and not rests:
                published = writer.publish_changes()
                if published.transactions or fails:
                    on_published(published)
                published_head = head
                wait = _POLL_SECONDS
                fails = False
                looked = time.monotonic()
        except EngineLostError:
            # The warehouse can't be used any more.
            raise
        except ConflictError as error:
            on_failure(error)
            wait = _CONFLICT_WAIT_SECONDS
            fails = True
        except TidemarkError as error:
            on_failure(error)
            wait = min(wait * 2, MAX_WAIT_SECONDS)
            fails = True
        stop.wait(wait)


def follow_in_background(
    warehouse: Place, definition: Definition, open_warehouse: Callable[[], Warehouse]
) -> None:
    """Publish an asset in a background thread until this process ends. Do nothing if the asset
    has no sink, or if this process already publishes the asset.

    Args:
        warehouse: the location and name of the asset's database.
        open_warehouse: a function that opens the warehouse; it is called in the publishing thread.
    """
    name = f"{warehouse.location}/{warehouse.database}/{definition.name}"
    if definition.sink is None or name in _followed:
        return
    log = logging.getLogger(__name__)

    def run_follower() -> None:
        tables: Warehouse | None = None
        while True:
            try:
                # Reuse the warehouse: `open_warehouse` opens an engine session that lasts until the
                # process ends.
                tables = tables or open_warehouse()
                follow_asset(
                    tables,
                    definition,
                    threading.Event(),
                    lambda e: log.info("%s: published %s records", definition.name, e.records),
                    lambda error: log.warning("%s", error),
                )
            except EngineLostError as error:
                log.warning("%s", error)
                tables = None
                time.sleep(MAX_WAIT_SECONDS)
            except Exception as error:
                # The table may be dropped and recreated at any time, or the disk may be full.
                log.exception("The sink of %s restarts", definition.name)
                tables = None if engine_lost(error) else tables
                time.sleep(MAX_WAIT_SECONDS)

    _followed[name] = threading.Thread(target=run_follower, name=f"sink {name}", daemon=True)
    _followed[name].start()
