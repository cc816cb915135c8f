"""Compute the rows of a derived source."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from tidemark.compute.derived.as_of_rows import as_of_rows, estimate_waiting_rows
from tidemark.compute.derived.chain_rows import chain_rows, estimate_recounted_rows
from tidemark.compute.derived.join_rows import estimate_older_rows, join_rows, join_settles
from tidemark.compute.derived.prepared_rows import prepared_rows
from tidemark.compute.derived.union_rows import union_rows
from tidemark.compute.derived.versions import keep_versions
from tidemark.define.derived.asof_join import AsOfJoin, AsOfSource
from tidemark.define.derived.chain import Chain
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.derived.join import Join
from tidemark.define.derived.row_asset import RowAsset
from tidemark.define.derived.union import Union
from tidemark.store.event_log.log import Log
from tidemark.store.event_log.steps import Steps
from tidemark.store.warehouse import Warehouse

# Each kind of derived source has a function of its own.
_Compute = Callable[[Any, Any, Sequence[Log], Steps], DataFrame]
_BY_KIND: Mapping[type[object], _Compute] = {
    AsOfJoin: as_of_rows,
    Chain: chain_rows,
    Join: join_rows,
    RowAsset: prepared_rows,
    Union: union_rows,
}
# Whether steps that bring no rows of the bases may still bring rows of the derived source. A kind
# that is missing here always may.
_Settles = Callable[[Any, Sequence[Log], Steps], bool]
_SETTLES: Mapping[type[object], _Settles] = {
    Join: join_settles,
    RowAsset: lambda *_: False,
    Union: lambda *_: False,
}
# About how many earlier rows of the event logs the steps also read. A kind that is missing here
# reads none.
_Older = Callable[[Any, Sequence[Log], Steps], int]
_OLDER: Mapping[type[object], _Older] = {
    AsOfJoin: estimate_waiting_rows,
    Chain: estimate_recounted_rows,
    Join: estimate_older_rows,
}


@dataclass(frozen=True)
class StepsToCompute:
    """Consecutive steps of a derived source, with the event logs of its bases."""

    source: DerivedSource
    logs: Sequence[Log]
    steps: Steps

    def can_have_rows(self) -> bool:
        """Return whether the steps may bring rows of the source, without querying the engine."""
        derivation = self.source.derivation
        settles = _SETTLES.get(type(derivation))
        if self.steps.count_rows() > 0 or settles is None:
            return True
        return settles(derivation, self.logs, self.steps)

    def estimate_rows_to_read(self) -> int:
        """Return about how many rows of event logs `compute_rows` reads."""
        derivation = self.source.derivation
        new_rows = self.steps.count_rows()
        estimate_older = _OLDER.get(type(derivation))
        if estimate_older is None:
            return new_rows
        return new_rows + estimate_older(derivation, self.logs, self.steps)

    def compute_rows(self) -> DataFrame:
        """Return the rows that the steps bring.

        The columns are those of the source, `STEP` with the index of the step, `position`,
        `read_from`, `correlation_id`, and for a paired source (`is_paired`) `DEAD`, which is not
        null for rows of the bases that take no part in the join.
        """
        derivation = self.source.derivation
        return _BY_KIND[type(derivation)](self.source, derivation, self.logs, self.steps)

    def store_versions(self) -> None:
        """Store the versions that later steps of an as-of join need.

        Later steps then do not read whole event logs. Only the ingest of the source may call this
        function.
        """
        if isinstance(self.source, AsOfSource):
            keep_versions(self.source, self.source.derivation, self.logs, self.steps)


def read_steps(
    warehouse: Warehouse,
    source: DerivedSource,
    positions: Sequence[str],
    logs: Sequence[Log] | None = None,
) -> StepsToCompute:
    """Return the steps that some positions describe.

    Args:
        positions: the positions of consecutive steps, as the timeline stores them.
        logs: the event logs of the bases, if they are restricted to some rows; by default, all rows
            are read.
    """
    logs = logs or [Log(warehouse, base) for base in source.base_sources]
    earlier = list[str]()
    if source.idle is not None and warehouse.has_table(source.timeline_table):
        rows = warehouse.load_rows(source.timeline_table, columns=["arrival", "position"])
        earlier = rows.sort_by("arrival")["position"].to_pylist()
    return StepsToCompute(source, logs, Steps.of_positions(logs, positions, earlier))
