"""Read a table without the engine, for programs and notebooks."""

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from tidemark.base.errors import DataError
from tidemark.base.settings import Settings
from tidemark.store.committers.client_options import open_delta_table
from tidemark.store.refusals import translate_refusals


def read(table: str, *, version: int | None = None, settings: Settings | None = None) -> DeltaTable:
    """Return a table of the warehouse, opened without the engine.

    Its methods convert the rows for other libraries, as in `tm.read("orders_hourly").to_pandas()`.

    Args:
        table: the name of an asset, or of one of the further tables of an asset or a source, as in
            `orders_hourly_late` or `orders_log`.
        version: a version of the table; the newest one by default.
        settings: the settings of the project; by default, those of this process.

    Raises:
        DataError: the table does not exist.
        StoreError: the object store has refused the access.
    """
    settings = settings or Settings()
    path = f"{settings.warehouse}/{settings.database}/{table}"
    try:
        with translate_refusals(f"read table '{table}'"):
            return open_delta_table(path, version)
    except TableNotFoundError as error:
        raise DataError(
            f"There is no table '{table}' in '{settings.warehouse}/{settings.database}': check the "
            "name and the settings, and run the asset first, which creates the table."
        ) from error
