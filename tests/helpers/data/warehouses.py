"""Warehouses for tests that need no engine."""

from typing import Any

from tidemark.base.settings import Settings
from tidemark.store.warehouse import Warehouse


def warehouse_without_engine(settings: Settings) -> Warehouse:
    """Return the warehouse of a project, whose tables can be read and whose workers are recorded.

    It has no session, so computations fail.
    """
    no_session: Any = None
    return Warehouse(no_session, settings.warehouse, settings.database, registered=False)
