"""Blocked sources: sources whose newest ingest ended with an error that requires manual action.

An incompatible change of the source, records that were deleted, a file that was changed: each
blocks that source alone, with one message. The message is stored next to the source's lock until
another ingest begins. Monitoring therefore sees it for any ingest process.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tidemark.base.errors import ConflictError, TidemarkError
from tidemark.base.settings import Settings
from tidemark.define.source import Source
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.ingest.ingest_lock import ingest_file


class Ingest:
    """The errors of other work that an ingest does, which do not block its source."""

    def __init__(self) -> None:
        self.other_error: TidemarkError | None = None

    @contextmanager
    def other_work(self) -> Iterator[None]:
        """Mark the block as other work."""
        try:
            yield
        except TidemarkError as error:
            self.other_error = error
            raise


@contextmanager
def record_error(warehouse: Warehouse, source: Source) -> Iterator[Ingest]:
    """Run an ingest in the block. Clear the stored error first, and store the error that ends the
    ingest.
    """
    ingest = Ingest()
    file = ingest_file(warehouse.location, warehouse.database, source.name, "refused")
    # A full disk has its own error message.
    with suppress(OSError):
        file.unlink()
    try:
        yield ingest
    except ConflictError:
        raise
    except TidemarkError as error:
        if not error.retriable and error is not ingest.other_error:
            with suppress(OSError):
                file.write_text(str(error))
        raise


def blocking_error(settings: Settings, source: str) -> str | None:
    """Return the error of a source's newest ingest that blocks it; None if it is not blocked."""
    file = ingest_file(settings.warehouse, settings.database, source, "refused")
    try:
        return file.read_text() or None
    except OSError:
        return None
