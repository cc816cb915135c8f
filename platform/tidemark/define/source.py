"""A source: what its events look like, when they happened, and how its watermark moves."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.base.errors import DefinitionError
from tidemark.base.instants import EARLIEST, LATEST, duration
from tidemark.define.helper_columns import PREFIX, is_helper
from tidemark.define.protection import Protection
from tidemark.define.watermarks import Watermark

ARRIVAL_COLUMNS = {
    "arrival": "BIGINT",
    "position": "BIGINT",
    "arrived_at": "TIMESTAMP",
    "watermark": "TIMESTAMP",
    "read_from": "STRING",
    "correlation_id": "STRING",
    "unparsed": "STRING",
}
"""The facts of an event's arrival, kept with it in the log (Spark DDL types).

`unparsed` is null: rows that can't be decoded are dead letters. Rows of before there were any have
their text there, and null columns.
"""

RUN_COLUMNS = (
    *("window_start", "window_end", "verdict", "admitted", "slot", "happened_at", "reached"),
    *("lag_seconds", "reason", "seq", "duplicate"),
)
"""What a run adds to an event."""

CORRELATION = "correlation_id"
"""The one fact of an arrival that comes from outside, and may be protected as a column is."""

NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class Source:
    """A stream of events, ingested into one append-only log.

    Example:
        visits = Source(
            name="visits",
            columns={"at": "TIMESTAMP", "page": "STRING"},
            event_time="at",
            watermark=BoundedOutOfOrderness("1 minute"),
        )

    Args:
        name: lower-case letters, digits and underscores; names the tables `<name>_log`,
            `<name>_timeline` and `<name>_dead_letters`.
        columns: the events' columns and their Spark DDL types.
        event_time: the column that says when an event happened, a `timestamp`.
        watermark: the strategy by which the source's watermark moves.
        references: Delta tables with which transforms may join its events: names in the
            warehouse's database, or paths. Each arrival records the versions that they have then.
        ahead: how far ahead of its arrival an event may be dated, as in `"5 minutes"`. An event
            that is dated further ahead is taken for one without an event time: it moves no
            watermark, is in no window, and goes to the late tables as `dated_ahead`. By default any
            date of the years 2 to 9998 is believed, and one event of the year 2099 moves a
            watermark there for good.
        protect: how columns, or `correlation_id`, are protected before anything is written; a log
            keeps that as it keeps its columns.

    Raises:
        DefinitionError: a name that cannot be a table's, an event-time column that is not there
            or not a timestamp, a column of the watermark's that is not there, a column that bears
            the name of an arrival's fact or of what a run adds, a reference without a name, a time
            ahead that is none, a column that can't be protected so.
    """

    name: str
    columns: Mapping[str, str]
    event_time: str
    watermark: Watermark
    references: Sequence[str] = ()
    ahead: str | timedelta | None = None
    protect: Mapping[str, Protection] = field(default_factory=dict[str, Protection])

    def __post_init__(self) -> None:
        check_name("source", self.name)
        if self.event_time not in self.columns:
            raise DefinitionError(
                f"Source '{self.name}': the event-time column '{self.event_time}' is not among "
                f"its columns: {', '.join(self.columns)}."
            )
        kind = self.columns[self.event_time].strip().lower()
        if kind != "timestamp":
            raise DefinitionError(
                f"Source '{self.name}': the event-time column '{self.event_time}' is a {kind}; "
                "it must be a timestamp (convert it where the source is read)."
            )
        by = self.watermark.by
        if by is not None and by not in self.columns:
            raise DefinitionError(
                f"Source '{self.name}': its watermark goes by the column '{by}', which is not "
                f"among its columns: {', '.join(self.columns)}."
            )
        for reserved, what in ((ARRIVAL_COLUMNS, "the facts of an arrival"), (RUN_COLUMNS, "runs")):
            taken = [c for c in self.columns if c.lower() in reserved]
            if taken:
                raise DefinitionError(
                    f"Source '{self.name}': the column name '{taken[0]}' is reserved for {what} "
                    f"({', '.join(reserved)}); rename it."
                )
        folded = [c.lower() for c in self.columns]
        for column in self.columns:
            if is_helper(column):
                raise DefinitionError(
                    f"Source '{self.name}': the column name '{column}' begins with '{PREFIX}', as "
                    "those of Tidemark's helper columns do; choose another name."
                )
            if folded.count(column.lower()) > 1:
                twins = [c for c in self.columns if c.lower() == column.lower()]
                raise DefinitionError(
                    f"Source '{self.name}': the columns {' and '.join(map(repr, twins))} differ "
                    "only in case, which the engine ignores; give one of them another name."
                )
            # The engine is told of columns by their names in such quotes.
            if "`" in column or not column:
                raise DefinitionError(
                    f"Source '{self.name}': no column can be called '{column}': its name must have "
                    "a character, and no backtick; rename it where the source is read."
                )
        if self.ahead is not None and duration(self.ahead) < 0:
            raise DefinitionError(
                f"Source '{self.name}': an event may be dated 0 seconds or more ahead of its "
                f"arrival, not '{self.ahead}'."
            )
        names = [reference_name(r) for r in self.references]
        for name in names:
            if not NAME.fullmatch(name) or names.count(name) > 1:
                raise DefinitionError(
                    f"Source '{self.name}': functions can't take the reference '{name}' by that "
                    "name: use lower-case letters, digits and underscores, a letter first, and "
                    "each name once."
                )
        for column, way in self.protect.items():
            self._check_protection(column, way)

    def _check_protection(self, column: str, way: Protection) -> None:
        what = f"Source '{self.name}' can't protect the column '{column}'"
        kinds = {**self.columns, CORRELATION: "STRING"}
        if column not in kinds:
            raise DefinitionError(f"{what}: it is not among its columns: {', '.join(kinds)}.")
        if not isinstance(way, Protection):
            raise DefinitionError(f"{what} by {way!r}: say Tokenise(), Mask() or Drop().")
        for role, name in (("event time", self.event_time), ("watermark", self.watermark.by)):
            if column == name:
                raise DefinitionError(
                    f"{what}: its {role} goes by that; let another column say when or where."
                )
        kind = kinds[column].upper().replace(" ", "")
        if way.kinds and kind not in way.kinds:
            raise DefinitionError(
                f"{what}, a {kinds[column].upper()}, by {type(way).__name__}, which takes a "
                f"{' or '.join(way.kinds)}: declare it as STRING, or Drop() it."
            )

    def happened(self, arrived_at: Column) -> Column:
        """When an event happened, a TIMESTAMP, as far as that is believed: null without an event
        time, with an impossible one, and where it is dated too far ahead of its arrival.

        Args:
            arrived_at: the clock at its arrival, BIGINT microseconds.
        """
        time = F.col(f"`{self.event_time}`")
        believed = self.possible
        if self.ahead is not None:
            believed = believed & (F.unix_micros(time) <= arrived_at + duration(self.ahead))
        return F.when(believed, time)

    @property
    def possible(self) -> Column:
        """Whether an event can have happened at its event time: in a year from 2 to 9998."""
        micros = F.unix_micros(F.col(f"`{self.event_time}`"))
        return (micros >= EARLIEST) & (micros < LATEST)

    @property
    def log_table(self) -> str:
        return f"{self.name}_log"

    @property
    def timeline_table(self) -> str:
        return f"{self.name}_timeline"

    @property
    def dead_letters_table(self) -> str:
        return f"{self.name}_dead_letters"


def reference_name(reference: str) -> str:
    """The name by which functions take a reference: the table's, or the last part of its path."""
    return reference.rstrip("/").rpartition("/")[2]


def check_name(what: str, name: str) -> None:
    """Refuse a name that cannot be a table's."""
    if not NAME.fullmatch(name):
        raise DefinitionError(
            f"The {what} name '{name}' can't name a table: use lower-case letters, digits and "
            "underscores, a letter first."
        )
