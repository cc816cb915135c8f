"""Windows as a parameter of an asset in plain Python: read only, without the engine.

    @dg.asset(partitions_def=days)
    def report(departures_hourly: pd.DataFrame) -> None: ...

gets the windows of the run's partitions, or all of them where it has none.
"""

from datetime import UTC
from typing import Any

import dagster as dg
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds

from tidemark.base.errors import DataError
from tidemark_assets.steps import one_sentence
from tidemark_streaming.glance import Glance

WINDOWS = "tidemark_windows"
"""The key of the IO manager that reads windows."""

FINAL = "final"
"""Metadata of an input: whether to read only windows that nothing can change any more."""


class Reader(dg.IOManager):
    """Gives windows as a pandas DataFrame, or as an Arrow table where the parameter says so."""

    def __init__(self, glance: Glance) -> None:
        self._glance = glance

    def handle_output(self, context: dg.OutputContext, obj: object) -> None:
        """Nothing: the step that computes windows has published them."""

    def load_input(self, context: dg.InputContext) -> pd.DataFrame | pa.Table:
        table = context.asset_key.path[-1]
        wanted = context.dagster_type.typing_type
        if wanted not in (Any, pd.DataFrame, pa.Table):
            raise dg.Failure(
                f"The windows of '{table}' come as a pandas DataFrame or an Arrow table, not as "
                f"{getattr(wanted, '__name__', wanted)}: change the type of the parameter.",
                allow_retries=False,
            )
        with one_sentence():
            rows = self._read(table, context)
        return rows if wanted is pa.Table else rows.to_pandas()

    def _read(self, table: str, context: dg.InputContext) -> pa.Table:
        chosen: ds.Expression | None = None
        if context.has_asset_partitions:
            span, start = context.asset_partitions_time_window, ds.field("window_start")
            chosen = (start >= _instant(span.start)) & (start < _instant(span.end))
        if (context.definition_metadata or {}).get(FINAL):
            final = ds.field("final")
            chosen = final if chosen is None else chosen & final
        rows = self._glance.select(table, None, chosen)
        if rows is None:
            raise DataError(f"The table '{table}' is not there yet: materialize it first.")
        return rows


@dg.io_manager(
    required_resource_keys={"tidemark"},
    description="Reads the windows of Tidemark's assets, and writes nothing.",
)
def windows_reader(context: dg.InitResourceContext) -> Reader:
    """The IO manager of windowed assets: downstream assets get them as parameters."""
    return Reader(context.resources.tidemark.glance())


def _instant(moment: Any) -> pa.Scalar:  # noqa: ANN401 (Dagster's own subclass of datetime)
    return pa.scalar(moment.astimezone(UTC), pa.timestamp("us", tz="UTC"))
