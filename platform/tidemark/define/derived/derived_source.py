"""Derived sources: sources whose events are computed from the event logs of other sources.

The *bases* of a derived source are the sources that it reads. Each arrival of a base is one
arrival, a *step*, of the derived source. The timeline records the steps in their order, so
everything else about a derived source is a function of the recorded steps and of the bases' event
logs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Protocol, Self

from pyspark.sql import Column

from tidemark.base.errors import DefinitionError
from tidemark.base.instants import INFINITY, checked_duration, earliest_watermark
from tidemark.define import tables
from tidemark.define.definition import Definition
from tidemark.define.source import Source
from tidemark.define.tables import Role, TableName
from tidemark.define.watermarks.strategy import Watermark, newest_event_time

INSTANT = "timestamp"
NUMBER = "bigint"


@dataclass(frozen=True)
class Lineage:
    """The columns of a derived row that identify the row of one base in the base's event log.

    Args:
        arrival, position: the names of the columns with the arrival and the position of the base's
            row. The columns are null if the derived row was computed without a row of this base.
        only: the values of further columns that identify the base itself, if several bases share
            the columns `arrival` and `position`: `{"origin": "orders"}` in a union. Otherwise,
            empty.
    """

    arrival: str
    position: str
    only: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def base_condition(self) -> str:
        """SQL that is true for derived rows in which `arrival` and `position` are of this base."""
        return " AND ".join(f"{name} = '{value}'" for name, value in self.only.items()) or "true"


class _Derivation(Protocol):
    """How a derived source is computed from its bases."""

    @property
    def base_sources(self) -> tuple[Source, ...]:
        """The bases, in the order that decides between arrivals of equal processing time."""
        ...

    @property
    def added_columns(self) -> tuple[str, ...]:
        """The columns that the derivation adds to the bases' columns.

        A further derivation, from the derived source, leaves them out.
        """
        ...

    @property
    def lineage_columns(self) -> tuple[Lineage, ...]:
        """For each base, the columns that identify its rows.

        Empty if derived rows do not record from which rows they were computed.
        """
        ...

    @property
    def partner_keys(self) -> tuple[str, ...] | None:
        """The columns whose values are equal in a derived row and in all rows that it depends on.

        All bases and the derived source have these columns. A row of a base therefore affects only
        derived rows with the same values. The result is empty if each derived row depends on a
        single row of one base. It is None if a derived row does not record all rows that it depends
        on.
        """
        ...

    @property
    def look_back(self) -> tuple[int, ...]:
        """For each base, the minimum lag of the derived watermark behind it, in microseconds."""
        ...

    @property
    def asset(self) -> Definition | None:
        """The asset whose results are the derived rows; None if they come from event logs.

        With an asset, an arrival of the base becomes a step only after the asset has published its
        results through that arrival.
        """
        ...

    @property
    def sql_expressions(self) -> Mapping[str, str]:
        """The SQL expressions of the definition, by the name of the argument."""
        ...

    @property
    def deciding_arguments(self) -> tuple[object, ...]:
        """The arguments that decide the derived rows, without bases and columns."""
        ...


@dataclass(frozen=True)
class WatermarkOfBases(Watermark):
    """The watermark of a derived source, computed by its connector from the bases' watermarks."""

    by_newest = True

    def __str__(self) -> str:
        return "the least of the bases' watermarks"

    def observe(self, event_time: Column) -> Column:
        return newest_event_time(event_time)

    def arrival_watermark(
        self, observed: str | None, connector_watermark: int | None
    ) -> int | None:
        return connector_watermark


@dataclass(frozen=True, kw_only=True)
class DerivedSource(Source):
    """A source that is computed from other sources: a join, a union, a chain or a row asset.

    Args:
        derivation: how the source is computed from its bases.
        idle: how long a base must be silent, in microseconds, before its heartbeats raise its
            effective watermark (`define.derived.progress`). None if heartbeats never raise it.
        retraction: the BOOLEAN column that marks rows that take back an earlier row; None if no
            row does.
        side_of: for the side tables of a rebuild, the source that owns them; otherwise None.
    """

    derivation: _Derivation
    idle: int | None = None
    retraction: str | None = None
    side_of: str | None = None

    dead_letter_noun = "unjoined row"

    @property
    def base_sources(self) -> tuple[Source, ...]:
        """The sources from which this source is computed."""
        return self.derivation.base_sources

    @property
    def base_owners(self) -> tuple[str, ...]:
        """The owners of the tables that this source reads.

        A chain reads the windows of its asset, and the timeline of the asset's source.
        """
        owners = [tables.source_owner(base.name) for base in self.base_sources]
        if self.derivation.asset is not None:
            owners.insert(0, tables.asset_owner(self.derivation.asset.name))
        return tuple(owners)

    def with_side_tables(self, name: str) -> Self:
        """Return this definition with side tables.

        The names of the side tables begin with `<source>__<name>`. They belong to this source.
        """
        return replace(self, name=f"{self.name}__{name}", side_of=self.name)

    @property
    def input_tables(self) -> list[TableName]:
        """The tables that this source reads: event logs, or an asset's published table."""
        asset = self.derivation.asset
        if asset is None:
            return [base.log_table for base in self.base_sources]
        return [asset.published_table]

    @property
    def dead_letters_table(self) -> TableName:
        """The table of the bases' rows that take no part in the derivation, with the reason."""
        return self._name_table("unjoined", Role.DEAD_LETTERS)

    def _name_table(self, suffix: str, role: Role) -> TableName:
        name = f"{self.name}_{suffix}"
        if self.side_of is None:
            owner = tables.source_owner(self.name)
            return TableName(name, owner, role, bases=self.base_owners)
        owner = tables.source_owner(self.side_of)
        return TableName(name, owner, role, side=self.name, bases=self.base_owners)

    @property
    def has_heartbeats(self) -> bool:
        # A derived source is silent while all its bases are.
        return all(base.has_heartbeats for base in self.base_sources)

    def marks_of(self, reached: Sequence[int | None]) -> list[int | None]:
        """Return the watermark that each base allows, given the watermarks of the bases."""
        pairs = zip(reached, self.derivation.look_back, strict=True)
        return [_subtract_lag(mark, lag) for mark, lag in pairs]

    def watermark_of(self, reached: Sequence[int | None]) -> int | None:
        """Return the watermark of the derived source, given the watermarks of its bases.

        `INFINITY` if all bases have ended; None if one of them has no watermark yet.
        """
        return earliest_watermark(self.marks_of(reached))


def _subtract_lag(mark: int | None, lag: int) -> int | None:
    if mark is None or mark == INFINITY:
        return mark
    return mark - lag


def retraction_column(source: Source) -> str | None:
    """Return the column that marks the retractions of a source; None if it has no such column."""
    if isinstance(source, DerivedSource):
        return source.retraction
    return None


def refuse_retractions(reader: str, sources: Sequence[Source]) -> None:
    for source in sources:
        if retraction_column(source) is not None:
            raise DefinitionError(
                f"{reader} can't read the chain '{source.name}', whose rows may be retracted. "
                f"Define '{source.name}' with rows='final'."
            )


def check_idle(name: str, idle: str | timedelta | None, bases: Sequence[Source]) -> int | None:
    if idle is None:
        return None
    length = checked_duration(f"Derived source '{name}': idle", idle)
    if not any(base.has_heartbeats for base in bases):
        silent_sources = list[str]()
        for base in bases:
            silent_sources += _without_heartbeats(base)
        names = " and ".join(f"'{silent}'" for silent in dict.fromkeys(silent_sources))
        raise DefinitionError(
            f"Derived source '{name}': idle has no effect, because {names} record no heartbeats. "
            'Set heartbeat="1 minute" in those that can be silent.'
        )
    return length


def _without_heartbeats(source: Source) -> list[str]:
    """Return the names of the sources without heartbeats from which a source is computed."""
    if isinstance(source, DerivedSource):
        names = list[str]()
        for base in source.base_sources:
            names += _without_heartbeats(base)
        return names
    if source.has_heartbeats:
        return []
    return [source.name]


def own_columns(base: Source) -> list[str]:
    """Return the columns of a base, without those that the base's own derivation added.

    The event time is always included.
    """
    if not isinstance(base, DerivedSource):
        return list(base.columns)
    added = base.derivation.added_columns
    return [column for column in base.columns if column not in added or column == base.event_time]


def name_columns(
    name: str, columns: Sequence[tuple[str, str]], rename: Mapping[str, str], added: Sequence[str]
) -> dict[tuple[str, str], str]:
    """Return the name that each column of a base has in the derived source.

    Args:
        columns: the columns of the bases, each as the base's name and the column's name.
        rename: the new names, by `base.column`.
        added: the columns that the derivation adds.
    """
    by_text = {f"{base}.{column}": (base, column) for base, column in columns}
    new_names = {key: key[1] for key in columns}
    for old, new in rename.items():
        if old not in by_text:
            raise DefinitionError(
                f"Derived source '{name}': rename has '{old}', which is not one of the columns "
                f"{', '.join(by_text)}."
            )
        new_names[by_text[old]] = new
    owners = {column: f"'{column}', which the derivation adds," for column in added}
    for (base, column), new in new_names.items():
        text = f"{base}.{column}"
        if (owner := owners.setdefault(new.lower(), text)) != text:
            raise DefinitionError(
                f"Derived source '{name}': the columns {owner} and {text} would both be '{new}': "
                f"rename one of them, as in rename={{'{text}': '{base}_{column}'}}."
            )
    return new_names
