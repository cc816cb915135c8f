"""Sources: the columns of the events, their event time, and how the watermark advances."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import ClassVar

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.base.arguments import checked_class
from tidemark.base.determinism import Sql
from tidemark.base.errors import DefinitionError
from tidemark.base.instants import EARLIEST, LATEST, format_duration, parse_duration
from tidemark.define import tables
from tidemark.define.column_type import UnknownTypeError, parse_columns, simple_type
from tidemark.define.helper_columns import PREFIX, is_helper
from tidemark.define.protection import Protection
from tidemark.define.tables import Role, TableName
from tidemark.define.tidemark_columns import EVENT_TABLES, find_table
from tidemark.define.watermarks import Watermark

CORRELATION = "correlation_id"
"""The only arrival column whose value may come from the data. It may be protected like a column of
the source.
"""

_SHORTEST_HEARTBEAT = parse_duration("1 second")

NAME = re.compile(r"[a-z][a-z0-9_]*")
_LONGEST_NAME = 100


@checked_class
@dataclass(frozen=True, init=False)
class Source:
    """A stream of events, ingested into one append-only event log.

    Example:
        visits = Source(
            name="visits",
            columns="at TIMESTAMP, page STRING",
            event_time="at",
            watermark=BoundedOutOfOrderness("1 minute"),
        )

    Args:
        name: lowercase letters, digits and underscores. The source's tables are `<name>_log`,
            `<name>_timeline` and `<name>_dead_letters`.
        columns: the events' columns and their types, as a DDL text of Spark or as a mapping, as in
            `{"at": "TIMESTAMP", "page": "STRING"}`.
        rename: maps fields of the data to columns with another name: with `{"position": "place"}`,
            the column `place` has the field `position`. All other fields have the name of their
            column.
        event_time: the column with the time at which an event happened, a `timestamp`.
        watermark: the strategy that advances the source's watermark.
        lookups: Delta tables that transforms may join with the events: names in the warehouse's
            database, or paths. Each arrival records the current versions of these tables.
        max_future_skew: how far an event time may be after the event's arrival, as in `"1 hour"`.
            An event beyond that does not advance the watermark and is not in any window; it is in
            the late tables, with the reason `future_timestamp`. By default, every date of the years
            2 to 9998 is accepted, so one event of the year 2099 advances the watermark to 2099.
        heartbeat: how often `tidemark ingest --follow` records a heartbeat while the source is
            silent: at least one second. None by default. A heartbeat is an
            arrival without rows, which needs no run unless it closes or fires a window. With `idle`
            in the watermark strategy, heartbeats close the last windows of a silent source. Without
            heartbeats, the watermark moves only with data.
        mask: maps columns, or `correlation_id`, to their protection, as in `{"email": Mask()}`.
            Values are protected before anything is written. The protection of a column that the
            event log already has can't be changed.

    Raises:
        DefinitionError: a name is not valid for a table; the event-time column is missing or not a
            timestamp; the watermark's column is missing; a column has an unsupported type, or the
            text with the columns is not valid; the name
            of a column or a field is not valid, is used twice, or is reserved for a column that
            Tidemark adds; a field in `rename` is a path; `computed` or `transient_fields` are
            not valid; a lookup table has no usable name; `max_future_skew` is negative;
            `heartbeat` is shorter than a second or longer than `idle` of the watermark, or is
            missing although the watermark has `idle`; a column can't be protected as `mask`
            specifies.
    """

    name: str
    columns: Mapping[str, str]
    event_time: str
    watermark: Watermark
    lookups: Sequence[str] = ()
    max_future_skew: str | timedelta | None = None
    mask: Mapping[str, Protection] = field(default_factory=dict[str, Protection])
    rename: Mapping[str, str] = field(default_factory=dict[str, str])
    heartbeat: str | timedelta | None = None
    computed: Mapping[str, Sql] = field(default_factory=dict[str, str])
    transient_fields: Mapping[str, str] = field(default_factory=dict[str, str])

    dead_letter_noun: ClassVar[str] = "dead letter"
    """The term that messages use for a row of `dead_letters_table`."""

    def __init__(
        self,
        name: str,
        columns: Mapping[str, str] | str,
        event_time: str,
        watermark: Watermark,
        lookups: Sequence[str] = (),
        max_future_skew: str | timedelta | None = None,
        mask: Mapping[str, Protection] | None = None,
        rename: Mapping[str, str] | None = None,
        heartbeat: str | timedelta | None = None,
        computed: Mapping[str, Sql] | None = None,
        transient_fields: Mapping[str, str] | None = None,
    ) -> None:
        set_field = partial(object.__setattr__, self)
        set_field("name", name)
        set_field("columns", read_columns(f"Source '{name}'", columns))
        set_field("event_time", event_time)
        set_field("watermark", watermark)
        set_field("lookups", lookups)
        set_field("max_future_skew", max_future_skew)
        set_field("mask", mask or {})
        set_field("rename", rename or {})
        set_field("heartbeat", heartbeat)
        set_field("computed", computed or {})
        set_field("transient_fields", transient_fields or {})
        self.__post_init__()

    def __post_init__(self) -> None:
        check_name("source", self.name)
        self._check_columns()
        self._check_rename()
        self._check_computed()
        self._check_names("column", list(self.columns) + list(self.transient_fields))
        self._check_names("field", [self.field_of(column) for column in self.record_columns])
        if self.future_skew is not None and self.future_skew < 0:
            raise DefinitionError(
                f"Source '{self.name}': max_future_skew must not be negative "
                f"(got '{self.max_future_skew}')."
            )
        self._check_heartbeat()
        self._check_lookups()
        for column, protection in self.mask.items():
            self._check_protection(column, protection)

    def _check_columns(self) -> None:
        if self.event_time not in self.columns:
            raise DefinitionError(
                f"Source '{self.name}': the event-time column '{self.event_time}' is not among "
                f"its columns: {', '.join(self.columns)}."
            )
        kinds = {name: self._parse_type(name, kind) for name, kind in self.columns.items()}
        kind = kinds[self.event_time]
        if kind != "timestamp":
            raise DefinitionError(
                f"Source '{self.name}': the event-time column '{self.event_time}' is declared as "
                f"{kind}: declare it as TIMESTAMP, or use another column."
            )
        by_column = self.watermark.group_column
        if by_column is not None and by_column not in self.columns:
            raise DefinitionError(
                f"Source '{self.name}': its watermark uses the column '{by_column}', which is "
                f"not among its columns: {', '.join(self.columns)}."
            )
        for column in self.columns:
            if table := find_table(column, EVENT_TABLES):
                raise DefinitionError(
                    f"Source '{self.name}': the column name '{column}' is reserved: Tidemark adds "
                    f"a column '{column.lower()}' to the {table}. Choose another name, such as "
                    f"'own_{column}', and map the field to it by "
                    f"rename={{'{self.field_of(column)}': 'own_{column}'}}."
                )

    def _check_rename(self) -> None:
        for name, column in self.rename.items():
            if list(self.rename.values()).count(column) > 1:
                raise DefinitionError(
                    f"Source '{self.name}': rename maps two fields to the column '{column}': "
                    "remove one."
                )
            if column not in {**self.columns, **self.transient_fields}:
                raise DefinitionError(
                    f"Source '{self.name}': rename maps the field '{name}' to the column "
                    f"'{column}', which is not among its columns: {', '.join(self.columns)}."
                )
            self._check_field(name, column)

    def _check_lookups(self) -> None:
        names = [lookup_name(lookup) for lookup in self.lookups]
        for name in names:
            if not NAME.fullmatch(name):
                raise DefinitionError(
                    f"Source '{self.name}': the lookup table '{name}' can't be a parameter of "
                    "functions. Rename the table, or the last part of its path: use lowercase "
                    "letters, digits and underscores, and start with a letter."
                )
            if names.count(name) > 1:
                raise DefinitionError(
                    f"Source '{self.name}': two lookup tables have the name '{name}', by which "
                    "functions read them. Rename one, or the last part of its path."
                )

    def _check_field(self, field_name: str, column: str) -> None:
        """Refuse a path in `rename`: it would be read as a name, which no field has."""
        if "." in field_name and not _is_quoted(field_name):
            raise DefinitionError(
                f"Source '{self.name}': rename has '{field_name}', but it takes names of fields, "
                "not paths. For a nested field, compute the column: "
                f"computed={{'{column}': '{field_name}'}}, and declare "
                f"'{field_name.partition('.')[0]}' in transient_fields. If the name of the field "
                f"has a period, write it in backticks: '`{field_name}`'."
            )

    def _check_computed(self) -> None:
        if self.transient_fields and not self.computed:
            raise DefinitionError(
                f"Source '{self.name}' has transient_fields, which only expressions of computed "
                "use: set computed, or declare the fields as columns."
            )
        for name, kind in self.transient_fields.items():
            if name in self.columns:
                raise DefinitionError(
                    f"Source '{self.name}': '{name}' is a column and a transient field: remove it "
                    "from transient_fields."
                )
            _ = self._parse_type(name, kind)
        for column, expression in self.computed.items():
            if column not in self.columns:
                raise DefinitionError(
                    f"Source '{self.name}': computed has the column '{column}', which is not among "
                    f"its columns: {', '.join(self.columns)}. Declare it with its type."
                )
            if column in self.rename.values():
                raise DefinitionError(
                    f"Source '{self.name}': the column '{column}' is computed, but rename maps a "
                    "field to it: remove it from rename or from computed."
                )
            if not expression.strip():
                raise DefinitionError(
                    f"Source '{self.name}': computed must have a SQL expression for the column "
                    f"'{column}' (got {expression!r})."
                )
        if not self.record_columns:
            raise DefinitionError(
                f"Source '{self.name}': all of its columns are computed. Declare the fields that "
                "the expressions use in transient_fields."
            )

    def _check_names(self, kind: str, names: Sequence[str]) -> None:
        for name in names:
            if is_helper(name):
                raise DefinitionError(
                    f"Source '{self.name}': the {kind} name '{name}' begins with '{PREFIX}', "
                    "which is reserved for Tidemark's helper columns. Choose another name."
                )
            twins = [same_name for same_name in names if same_name.lower() == name.lower()]
            if len(twins) > 1 and twins[0] != twins[1]:
                raise DefinitionError(
                    f"Source '{self.name}': the {kind}s '{twins[0]}' and '{twins[1]}' differ only "
                    "in case, which the engine ignores; give one of them another name."
                )
            if len(twins) > 1:
                raise DefinitionError(
                    f"Source '{self.name}': two columns would be read from the {kind} '{name}': "
                    "correct rename."
                )
            # Column names are passed to the engine in backticks.
            if "`" in name or not name:
                raise DefinitionError(
                    f"Source '{self.name}': '{name}' is not a valid {kind} name: it must not be "
                    "empty or contain a backtick. Rename it in the definition and, if it is there, "
                    "in the data."
                )

    def _check_heartbeat(self) -> None:
        if self.heartbeat is not None and parse_duration(self.heartbeat) < _SHORTEST_HEARTBEAT:
            raise DefinitionError(
                f"Source '{self.name}': heartbeat must be at least 1 second (got "
                f"'{self.heartbeat}')."
            )
        idle = self.watermark.shortest_silence
        if (
            self.heartbeat is not None
            and idle is not None
            and parse_duration(self.heartbeat) > idle
        ):
            raise DefinitionError(
                f"Source '{self.name}': heartbeat must not be longer than idle of the watermark "
                f"(got '{self.heartbeat}', and idle is {format_duration(idle)}), because only a "
                "heartbeat "
                f"detects that the source is idle. Set heartbeat to {format_duration(idle)} or "
                "less."
            )
        if self.heartbeat is None and self.watermark.needs_heartbeats:
            raise DefinitionError(
                f"Source '{self.name}': its watermark has idle, which takes effect only with "
                "heartbeats, because nothing else arrives from a silent source. Set heartbeat, for "
                "example heartbeat='1 minute', or remove idle."
            )

    def field_of(self, column: str) -> str:
        """Return the name of a column's field in the data."""
        for field_name, renamed_column in self.rename.items():
            if renamed_column != column:
                continue
            if _is_quoted(field_name):
                return field_name[1:-1]
            return field_name
        return column

    @property
    def record_columns(self) -> dict[str, str]:
        """The columns that connectors read from the data, with their types.

        These are the columns that are not computed, and the transient fields.
        """
        stored = {name: kind for name, kind in self.columns.items() if name not in self.computed}
        return {**stored, **self.transient_fields}

    @property
    def record_fields(self) -> dict[str, str]:
        """The fields of the data and their types, in the order of `record_columns`."""
        return {self.field_of(column): kind for column, kind in self.record_columns.items()}

    def _parse_type(self, column: str, kind: str) -> str:
        try:
            return simple_type(kind)
        except UnknownTypeError as error:
            raise DefinitionError(
                f"Source '{self.name}': column '{column}' can't have the type '{kind}': {error}."
            ) from None

    def _check_protection(self, column: str, way: Protection) -> None:
        refusal = f"Source '{self.name}' can't protect the column '{column}'"
        kinds = {**self.columns, **self.transient_fields, CORRELATION: "STRING"}
        if column not in kinds:
            raise DefinitionError(f"{refusal}, which is not among its columns: {', '.join(kinds)}.")
        for role, name in (
            ("event time", self.event_time),
            ("watermark", self.watermark.group_column),
        ):
            if column == name:
                raise DefinitionError(
                    f"{refusal}: the {role} needs its original values. Use another column for the "
                    f"{role}, or remove this one from mask."
                )
        kind = kinds[column].upper().replace(" ", "")
        if way.kinds and kind not in way.kinds:
            raise DefinitionError(
                f"{refusal} by {type(way).__name__}, which accepts {' or '.join(way.kinds)}, but "
                f"the column is declared as {kinds[column].upper()}: declare it as STRING, or use "
                "Drop()."
            )

    def valid_event_time(self, arrived_at: Column) -> Column:
        """Return the event time, a TIMESTAMP; null if missing, impossible or too far in the future.

        Args:
            arrived_at: the processing time of the event's arrival, BIGINT microseconds.
        """
        time = F.col(f"`{self.event_time}`")
        is_valid = self.has_possible_time
        if self.future_skew is not None:
            is_valid = is_valid & (F.unix_micros(time) <= arrived_at + self.future_skew)
        return F.when(is_valid, time)

    @property
    def future_skew(self) -> int | None:
        """The value of `max_future_skew` in microseconds."""
        if self.max_future_skew is None:
            return None
        return parse_duration(self.max_future_skew)

    @property
    def has_possible_time(self) -> Column:
        """The condition that an event time is possible: it lies in a year from 2 to 9998."""
        return _is_possible(F.col(f"`{self.event_time}`"))

    @property
    def base_owners(self) -> tuple[str, ...]:
        """The owners of the tables from which the source is computed; empty for most sources."""
        return ()

    @property
    def has_heartbeats(self) -> bool:
        """True if the source records heartbeats while it is silent."""
        return self.heartbeat is not None

    @property
    def log_table(self) -> TableName:
        return self._name_table("log", Role.EVENT_LOG)

    @property
    def timeline_table(self) -> TableName:
        return self._name_table("timeline", Role.TIMELINE)

    @property
    def dead_letters_table(self) -> TableName:
        return self._name_table("dead_letters", Role.DEAD_LETTERS)

    @property
    def own_tables(self) -> list[TableName]:
        """The tables that the source's ingest writes."""
        return [self.log_table, self.timeline_table, self.dead_letters_table]

    def lookup_table(self, name: str) -> TableName:
        """Return the name of a lookup table that the source's connector fills."""
        return TableName(name, tables.source_owner(self.name), Role.LOOKUP)

    def _name_table(self, suffix: str, role: Role) -> TableName:
        name = f"{self.name}_{suffix}"
        return TableName(name, tables.source_owner(self.name), role, bases=self.base_owners)


def _is_possible(time: Column) -> Column:
    micros = F.unix_micros(time)
    return (micros >= EARLIEST) & (micros < LATEST)


def untimed_reason(time: Column) -> Column:
    """Return why `Source.valid_event_time` is null for an event: a text.

    Args:
        time: the event time as it was written, TIMESTAMP.
    """
    reason = F.when(time.isNull(), "no_event_time").when(~_is_possible(time), "invalid_timestamp")
    return reason.otherwise("future_timestamp")


def _is_quoted(field_name: str) -> bool:
    return len(field_name) > len("``") and field_name[0] == field_name[-1] == "`"


def read_columns(owner: str, columns: Mapping[str, str] | str) -> Mapping[str, str]:
    """Return columns with their types, from a mapping or a DDL text.

    Args:
        owner: the start of an error message, as in "Source 'orders'".
    """
    if not isinstance(columns, str):
        return columns
    try:
        return parse_columns(columns)
    except UnknownTypeError as error:
        raise DefinitionError(
            f"{owner}: the text of columns is not valid: {error}. Write names and types, as in "
            'columns="at TIMESTAMP, amount DECIMAL(10,2)".'
        ) from None


def lookup_name(lookup: str) -> str:
    """Return the parameter name of a lookup table: its name, or the last part of its path."""
    return lookup.rstrip("/").rpartition("/")[2]


def check_name(kind: str, name: str) -> None:
    """Refuse a name that is too long or not valid; names of tables and folders begin with it.

    Args:
        kind: the kind of object that has the name, for the message, such as `source`.
    """
    if not NAME.fullmatch(name):
        raise DefinitionError(
            f"'{name}' is not a valid {kind} name: use lowercase letters, digits and underscores, "
            "and start with a letter."
        )
    if len(name) > _LONGEST_NAME:
        raise DefinitionError(
            f"The {kind} name '{name[:20]}…' has {len(name)} characters: use at most "
            f"{_LONGEST_NAME}."
        )
