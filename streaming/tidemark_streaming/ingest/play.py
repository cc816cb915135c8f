"""Play a recording: write its data as files to a source's folder, and ingest the files.

Recorded data (`Ingestion.play`) is therefore ingested in the same way as live data.
"""

from collections import deque
from collections.abc import Generator
from pathlib import Path

from tidemark.base.addresses import is_address
from tidemark.base.errors import DataError, DefinitionError
from tidemark.define.source import Source
from tidemark.store.event_log.log import Log
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.base import kafka_position
from tidemark_streaming.base.position import parse_with_text
from tidemark_streaming.connector import Excerpt, Ingestion
from tidemark_streaming.ingest.ingest import Ingested, fill_lookup_tables, ingest, ingest_each


def play_files(
    warehouse: Warehouse,
    ingestion: Ingestion,
    landing: Path | str,
    excerpt: Excerpt,
    *,
    batch: int | None = 1,
) -> Generator[Ingested]:
    """Play recorded data into a local folder, ingest the files, and yield after each commit.

    Without a speed, all files are written first and then ingested, `batch` of them per commit. With
    a speed, each file is ingested when it is written.

    Args:
        batch: the number of files per commit; None to commit as many as possible at once.
    """
    if ingestion.play is None:
        raise no_recording(ingestion.source)
    landing_folder = str(landing)
    if is_address(landing_folder):
        raise DefinitionError(
            f"A recording can't be played into '{landing_folder}': an object store sets the times "
            "of its "
            "files itself, so the arrivals would lose their times. Set TIDEMARK_LANDING to a "
            "folder on this machine."
        )
    _check_way(warehouse, ingestion.source)
    fill_lookup_tables(warehouse, ingestion)
    landed = ingestion.play(Path(landing_folder), excerpt)
    if excerpt.speed is None:
        deque(landed, maxlen=0)
        yield from ingest(warehouse, ingestion.connector(landing_folder), batch=batch)
        return
    connectors = ((ingestion.connector(landing_folder), file.number, file.total) for file in landed)
    yield from ingest_each(warehouse, ingestion.source, connectors, batch=batch)


def no_recording(source: Source) -> DataError:
    """Return the error for a source without recorded data."""
    return DataError(
        f"Source '{source.name}' has no recording: `tidemark ingest {source.name}` "
        "ingests its pending data."
    )


def _check_way(warehouse: Warehouse, source: Source) -> None:
    """Refuse to play files into an event log that has the same records from Kafka, because they
    would be ingested twice.
    """
    if not warehouse.has_table(source.timeline_table):
        return
    for arrival in reversed(Log(warehouse, source).read_timeline()):
        if parse_with_text(arrival.position, "file"):
            return
        if kafka_position.parse_position(arrival.position):
            raise DataError(
                f"Arrival {arrival.arrival} of '{source.name}' came through Kafka, so playing the "
                "recording as files would ingest the same records again. Continue with `tidemark "
                "demo --kafka`, or use another home (TIDEMARK_HOME)."
            )
