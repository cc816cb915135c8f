"""Blocked sources: the error that ended a source's newest ingest, if it requires manual action.

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
from tidemark_streaming.ingest.sole import beside


class Ingest:
    """The errors of other work that an ingest does, which do not block its source."""

    def __init__(self) -> None:
        self.beside: TidemarkError | None = None

    @contextmanager
    def doing(self) -> Iterator[None]:
        """Mark the block as other work."""
        try:
            yield
        except TidemarkError as error:
            self.beside = error
            raise


@contextmanager
def record_error(warehouse: Warehouse, source: Source) -> Iterator[Ingest]:
    """Run an ingest in the block: clear the stored error first, and store one that ends it."""
    ingest = Ingest()
    file = beside(warehouse.location, warehouse.database, source.name, "refused")
    # A full disk has its own error message.
    with suppress(OSError):
        file.unlink()
    try:
        yield ingest
    except ConflictError:
        raise
    except TidemarkError as error:
        if not error.retriable and error is not ingest.beside:
            with suppress(OSError):
                file.write_text(str(error))
        raise


def refusal(settings: Settings, source: str) -> str | None:
    """Return the error that blocks a source since its newest ingest; None if it is not blocked."""
    file = beside(settings.warehouse, settings.database, source, "refused")
    try:
        return file.read_text() or None
    except OSError:
        return None
