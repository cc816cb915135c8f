"""Compute the rows of a derived source."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame

from tidemark.compute.derived.chain_rows import chain_rows
from tidemark.compute.derived.join_rows import join_rows
from tidemark.compute.derived.prepared_rows import prepared_rows
from tidemark.compute.derived.union_rows import union_rows
from tidemark.define.derived.chain import Chain
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.derived.join import Join
from tidemark.define.derived.row_asset import RowAsset
from tidemark.define.derived.union import Union
from tidemark.store.event_log.log import Log
from tidemark.store.event_log.steps import Steps
from tidemark.store.warehouse import Warehouse

# Each kind of derived source has a function of its own.
_Compute = Callable[[DerivedSource, Any, Sequence[Log], Steps], DataFrame]
_BY_KIND: Mapping[type[object], _Compute] = {
    Chain: chain_rows,
    Join: join_rows,
    RowAsset: prepared_rows,
    Union: union_rows,
}


def compute_rows(
    warehouse: Warehouse, source: DerivedSource, positions: Sequence[str]
) -> DataFrame:
    """Return the rows that consecutive steps bring to a derived source.

    The columns are those of the source, `STEP` with the index of the step, `position`, `read_from`,
    `correlation_id`, and for a join `DEAD`, which is not null for rows that take no part.

    Args:
        positions: the positions of the steps.
    """
    logs = [Log(warehouse, base) for base in source.bases]
    steps = Steps.of_positions(logs, positions)
    return _BY_KIND[type(source.derivation)](source, source.derivation, logs, steps)
