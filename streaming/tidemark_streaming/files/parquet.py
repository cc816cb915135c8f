"""Read Parquet files, and decode their rows in this process, some thousands at a time."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidemark.base import thresholds
from tidemark.base.errors import DefinitionError
from tidemark.define.protection import Drop
from tidemark.define.source import Source
from tidemark.store.event_log.dead_letters import dead_letters_of
from tidemark_streaming.files.landed_file import LandedFile
from tidemark_streaming.files.reading import (
    arrival_rows,
    check_missing,
    explain_errors,
    unreadable_error,
)
from tidemark_streaming.ingest.row_masking import mask_columns
from tidemark_streaming.payloads.arrow_values import (
    OtherTypeError,
    find_name,
    fit_values,
    rows_finer_than_micros,
)
from tidemark_streaming.payloads.column_types import arrow_type
from tidemark_streaming.payloads.faults import Fault
from tidemark_streaming.payloads.payload import Decoded, Results
from tidemark_streaming.payloads.time_rules import FINER_OPTION, TRUNCATE, ZONE_OPTION, TimeRules

_INDEX = re.compile(r"__index_level_\d+__")
"""The columns with which pandas stores the index of a table, which is not data."""
_Names = Mapping[str, str]
"""The columns of a source that a file has, each with its name in the file."""


@dataclass(frozen=True)
class Parquet:
    """Parquet files, whose columns are matched by name; case is ignored.

    Args:
        options: `timeZone`, the zone of times without a zone, which are refused without it;
            `finer`, `truncate` to drop the digits of times beyond microseconds.

    Raises:
        DefinitionError: another option, or an invalid value.
    """

    options: Mapping[str, str | bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if unknown := sorted(set(self.options) - {ZONE_OPTION, FINER_OPTION}):
            raise DefinitionError(
                f"Parquet has no option '{unknown[0]}': its options are {ZONE_OPTION} and "
                f"{FINER_OPTION}."
            )
        _ = self.time_rules

    @property
    def time_rules(self) -> TimeRules:
        """What to do with times without a zone, and with times finer than microseconds."""
        zone, finer = (self.options.get(name) for name in (ZONE_OPTION, FINER_OPTION))
        return TimeRules(
            None if zone is None else str(zone),
            None if finer is None else str(finer),
            "The options of Parquet",
        )


def read_parquet(
    file: LandedFile, chunk: int, source: Source, form: Parquet, undeclared: set[str]
) -> Iterator[pa.Table]:
    """Yield the rows of a file in order, as at least one table.

    Args:
        chunk: the value of the column `CHUNK` in all rows of the file.
        undeclared: gets the names of columns that the source does not declare.
    """
    first = 0
    for batch in _read_batches(file, source, undeclared):
        events = _decode_batch(file, batch, source, form.time_rules)
        columns = mask_columns(pa.table(dict(events.columns)), source)
        letters = dead_letters_of(events.rows, events.reasons, {})
        yield arrival_rows(columns, letters, (chunk, first, file.name))
        first += events.rows


_Batch = tuple[_Names, pa.RecordBatch, pa.RecordBatch | None]
"""Three parts: the names of the columns that are read; some rows of a file; and the INT96 columns
of the same rows, in nanoseconds, or None if the file has no INT96 columns."""


def _read_batches(file: LandedFile, source: Source, undeclared: set[str]) -> Iterator[_Batch]:
    """Yield the rows of a file as at least one batch."""
    damaged = "it is damaged, or not a Parquet file"
    with explain_errors(file, source, damaged), ExitStack() as open_:
        if not file.size:
            # An empty file is a heartbeat.
            yield {}, pa.RecordBatch.from_pydict({}), None
            return
        content = open_.enter_context(file.open())
        parquet = open_.enter_context(pq.ParquetFile(content, coerce_int96_timestamp_unit="us"))
        names = _column_names(file, parquet.schema_arrow, source)
        if not source.mask:
            further_names = set(parquet.schema_arrow.names).difference(names.values())
            undeclared.update(name for name in further_names if not _INDEX.fullmatch(name))
        if parquet.metadata.num_rows:
            check_missing(file, source, names)
        leaves = [parquet.schema.column(n) for n in range(len(parquet.schema))]
        paths = [f"{leaf.path}." for leaf in leaves if leaf.physical_type == "INT96"]
        int96 = set[str]()
        for name in names.values():
            # A field with subfields has several leaves.
            if any(path.startswith(f"{name}.") for path in paths):
                int96.add(name)
        nanos: Iterator[pa.RecordBatch | None] = repeat(None)
        if int96:
            other = open_.enter_context(pq.ParquetFile(content))
            nanos = other.iter_batches(thresholds.PARQUET_BATCH_ROWS, columns=sorted(int96))
        columns = list(names.values())
        for batch in parquet.iter_batches(thresholds.PARQUET_BATCH_ROWS, columns=columns):
            yield names, batch, next(nanos)
        if not parquet.metadata.num_rows:
            yield {}, pa.RecordBatch.from_pydict({}), None


def _column_names(file: LandedFile, schema: pa.Schema, source: Source) -> _Names:
    """Return the source's columns that a file has, each with its name in the file.

    Names are compared without regard to case. Columns that the source protects with `Drop()` are
    left out.
    """
    by_column = dict[str, str]()
    for column in source.record_columns:
        if isinstance(source.mask.get(column), Drop):
            continue
        field = source.field_of(column)
        try:
            index = find_name(schema.names, field)
        except OtherTypeError:
            raise unreadable_error(file, source, f"it has the column '{field}' twice") from None
        if index is not None:
            by_column[column] = schema.names[index]
    return by_column


def _find_faults(
    values: "pa.Array[Any]", misfits: Sequence[int], kind: pa.DataType, rules: TimeRules
) -> dict[int, Fault]:
    """Return what is wrong with the values that do not fit a type, by row."""
    faults = dict.fromkeys(misfits, Fault.MISFIT)
    if not misfits or not pa.types.is_timestamp(kind):
        return faults
    # A value is at fault only for its precision if it fits without this rule.
    truncating = replace(rules, finer=TRUNCATE)
    _, unfit = fit_values(values.take(pa.array(misfits)), kind, truncating)
    finer = set(range(len(misfits))).difference(unfit)
    return faults | {misfits[index]: Fault.FINER for index in finer}


def _decode_batch(file: LandedFile, batch: _Batch, source: Source, rules: TimeRules) -> Decoded:
    names, rows, nanos = batch
    results = Results(rows.num_rows)
    for column, kind in source.record_columns.items():
        target = arrow_type(kind)
        if column not in names:
            results.add_column(column, pa.nulls(rows.num_rows, target))
            continue
        name = names[column]
        stored = rows.column(name)
        try:
            values, misfits = fit_values(stored, target, rules)
        except OtherTypeError as error:
            reason = f"its column '{name}' is {stored.type}, which does not fit {kind.upper()}"
            reason += f": {error}" if error.args else ""
            raise unreadable_error(file, source, reason) from None
        faults = _find_faults(stored, misfits, target, rules)
        if not rules.is_truncating and nanos is not None and name in nanos.schema.names:
            finer = rows_finer_than_micros(stored, nanos.column(name))
            faults |= dict.fromkeys(finer, Fault.FINER)
        results.add_column(column, values)
        results.add_faults(faults, source.field_of(column), kind)
    return results.finish_events()
