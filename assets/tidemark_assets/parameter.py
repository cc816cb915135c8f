"""Windows as a parameter of a plain Python asset: read-only, without the engine.

    @dg.asset(partitions_def=days)
    def report(departures_hourly: pd.DataFrame) -> None: ...

This asset gets the windows of the run's partitions, or all windows if it has no partitions. The
parameter's type determines their form: a pandas or a Polars DataFrame, or an Arrow table.
"""

import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import dagster as dg
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds

from tidemark.base.errors import DataError
from tidemark.base.instants import parse_instant
from tidemark.store.commits.conditions import Condition, window_starts_in
from tidemark_assets.base.names import PLAIN, Names
from tidemark_assets.base.steps import failing_with_message
from tidemark_streaming.snapshot.tables import Tables

__all__ = ["FINAL", "WINDOWS", "Reader", "windows_reader"]

WINDOWS = "tidemark_windows"
"""The key of the IO manager that reads windows."""

FINAL = "final"
"""A metadata key of an input; if true, only final windows are read."""


class Reader(dg.IOManager):
    """An IO manager that loads windows as a pandas DataFrame, or as the parameter's type."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def handle_output(self, context: dg.OutputContext, obj: object) -> None:
        """Do nothing: the step that computes windows has published them."""

    def load_input(self, context: dg.InputContext) -> object:
        table = context.asset_key.path[-1]
        requested_type = context.dagster_type.typing_type
        ways = _converters()
        if requested_type not in ways:
            raise dg.Failure(
                f"The windows of '{table}' can be loaded as a pandas or Polars DataFrame or as an "
                f"Arrow table, not as {getattr(requested_type, '__name__', requested_type)}: "
                "change the type of "
                "the parameter.",
                allow_retries=False,
            )
        with failing_with_message():
            rows = self._read(table, context)
        return ways[requested_type](rows)

    def _read(self, table: str, context: dg.InputContext) -> pa.Table:
        bounds = list[Condition]()
        if context.has_asset_partitions:
            span = context.asset_partitions_time_window
            bounds.append(window_starts_in(((parse_instant(span.start), parse_instant(span.end)),)))
        final = (context.definition_metadata or {}).get(FINAL)
        rows = self._tables.read(table, where=ds.field("final") if final else None, bounds=bounds)
        if rows is None:
            raise DataError(f"The table '{table}' does not exist yet: materialize its asset first.")
        return rows


@cache
def reader(names: Names) -> dg.IOManagerDefinition:
    """Return the IO manager that passes windowed assets to downstream assets as parameters."""

    @dg.io_manager(
        required_resource_keys=names.needs,
        description="Reads the windows of Tidemark's assets. It writes nothing.",
    )
    def read(context: dg.InitResourceContext) -> Reader:
        return Reader(names.tidemark(context).snapshot().tables)

    return read


windows_reader = reader(PLAIN)
"""The IO manager of assets whose keys have no prefix."""


def _converters() -> dict[Any, Callable[[pa.Table], object]]:
    """Return the conversion of windows for each type of parameter."""
    ways: dict[Any, Callable[[pa.Table], object]] = {
        Any: pa.Table.to_pandas,
        pd.DataFrame: pa.Table.to_pandas,
        pa.Table: lambda rows: rows,
    }
    # Code that uses Polars as a type has already imported it.
    if (polars := sys.modules.get("polars")) is not None:
        ways[polars.DataFrame] = polars.from_arrow
    return ways
