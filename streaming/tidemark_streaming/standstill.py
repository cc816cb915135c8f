"""A source that stands: what its newest ingest was refused for, where a person must mend that.

An incompatible change of the source, records that are gone, a file that was changed: each stops
that source alone, with one sentence. It is kept beside the source's lock until an ingest begins
anew, so that who watches sees it, whoever ran the ingest.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tidemark.base.errors import ConflictError, TidemarkError
from tidemark.base.settings import Settings
from tidemark.define.source import Source
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.sole import beside


class Ingest:
    """What an ingest does beside bringing in: that is no refusal of its source."""

    def __init__(self) -> None:
        self.beside: TidemarkError | None = None

    @contextmanager
    def doing(self) -> Iterator[None]:
        """Something else in the block."""
        try:
            yield
        except TidemarkError as error:
            self.beside = error
            raise


@contextmanager
def kept(warehouse: Warehouse, source: Source) -> Iterator[Ingest]:
    """An ingest in the block: with what it is refused for is kept, and with its beginning what was
    kept goes."""
    ingest = Ingest()
    file = beside(warehouse.location, warehouse.database, source.name, "refused")
    # A disk that is full has its own sentence.
    with suppress(OSError):
        file.unlink()
    try:
        yield ingest
    except ConflictError:
        raise
    except TidemarkError as error:
        if not error.passing and error is not ingest.beside:
            with suppress(OSError):
                file.write_text(str(error))
        raise


def refusal(settings: Settings, source: str) -> str | None:
    """What the newest ingest of a source was refused for; None where it was not."""
    file = beside(settings.warehouse, settings.database, source, "refused")
    try:
        return file.read_text() or None
    except OSError:
        return None
