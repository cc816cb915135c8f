"""Unions: the events of several sources as one source."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType

from tidemark.base.arguments import check_arguments
from tidemark.base.errors import DefinitionError
from tidemark.define.column_type import simple_type
from tidemark.define.derived.derived_source import (
    NUMBER,
    DerivedSource,
    Lineage,
    WatermarkOfBases,
    check_idle,
    own_columns,
    refuse_retractions,
)
from tidemark.define.source import Source

ORIGIN = "origin"
"""The column with the name of an event's source."""
LINEAGE = ("origin_arrival", "origin_position")
"""The columns that identify an event in its source's event log."""


@dataclass(frozen=True)
class Union:
    """The derivation of a union: its sources, and the names of their columns in the union.

    Args:
        columns: for each base, its columns mapped to their names in the union.
    """

    base_sources: tuple[Source, ...]
    columns: tuple[Mapping[str, str], ...]

    asset = None
    partner_keys = ()
    sql_expressions = MappingProxyType[str, str]({})

    @property
    def deciding_arguments(self) -> tuple[object, ...]:
        return ()

    @property
    def added_columns(self) -> tuple[str, ...]:
        return (ORIGIN, *LINEAGE)

    @property
    def lineage_columns(self) -> tuple[Lineage, ...]:
        return tuple(Lineage(*LINEAGE, {ORIGIN: base.name}) for base in self.base_sources)

    @property
    def look_back(self) -> tuple[int, ...]:
        return (0,) * len(self.base_sources)


@check_arguments
def union(*, name: str, of: Sequence[Source], idle: str | timedelta | None = None) -> DerivedSource:
    """Return a source with the events of several sources.

    Columns of the same name become one column, which is null for events of sources that do not have
    it. All event times are in the event-time column of the first source. The column `origin` has
    the name of an event's source. The watermark is the earliest of the sources' watermarks.

    Example:
        movements = union(name="movements", of=[orders, payments])

    Args:
        name: the name of the union, with the same rules as for any source.
        of: at least two sources, which may be derived sources.
        idle: how long one source must be silent before it no longer holds back the others, such as
            "10 minutes". It needs `Source(heartbeat=...)`. From the first heartbeat after this
            time, the silent source counts as complete up to the earliest watermark of the others.
            Events that it sends later are late if they are before that watermark.

    Raises:
        DefinitionError: there are fewer than two sources, a source is given twice or has
            retractions, a column has two types, or the name of a column is reserved.
    """
    if len({base.name for base in of}) != len(of) or len(of) < 2:
        base_names = ", ".join(f"'{base.name}'" for base in of) or "none"
        raise DefinitionError(
            f"Union '{name}' needs at least two sources, each given once (got {base_names})."
        )
    refuse_retractions(f"Union '{name}'", of)
    columns = dict[str, str]()
    owners = dict[str, str]()
    mapped = list[Mapping[str, str]]()
    for base in of:
        names = _name_base_columns(name, base, of[0])
        for old, new in names.items():
            kind = simple_type(base.columns[old])
            first = owners.setdefault(new, base.name)
            if columns.setdefault(new, kind) != kind:
                raise DefinitionError(
                    f"Union '{name}': the column '{new}' has the type {columns[new]} in '{first}', "
                    f"but {kind} in '{base.name}'. Declare it with one type in both, or "
                    f"{_describe_renaming(base)}."
                )
        mapped.append(names)
    columns[ORIGIN] = "string"
    columns |= dict.fromkeys(LINEAGE, NUMBER)
    return DerivedSource(
        name=name,
        columns=columns,
        event_time=of[0].event_time,
        watermark=WatermarkOfBases(),
        idle=check_idle(name, idle, of),
        derivation=Union(base_sources=tuple(of), columns=tuple(mapped)),
    )


def _name_base_columns(name: str, base: Source, first_base: Source) -> dict[str, str]:
    """Return the columns of a base, mapped to their names in the union.

    Args:
        first_base: the base whose event-time column has the event times of the union.
    """
    names = {column: column for column in own_columns(base)}
    for column in (ORIGIN, *LINEAGE):
        if column in names:
            raise DefinitionError(
                f"Union '{name}': '{base.name}' has a column '{column}', but a union adds a "
                f"column of this name: {_describe_renaming(base)}."
            )
    time = first_base.event_time
    if time in names and base.event_time != time:
        raise DefinitionError(
            f"Union '{name}': the event time of each source gets the name '{time}', as in "
            f"'{first_base.name}', but '{base.name}' has a column '{time}' that is not its event "
            f"time: {_describe_renaming(base)}."
        )
    names[base.event_time] = time
    return names


def _describe_renaming(base: Source) -> str:
    return f"rename the column in the definition of '{base.name}', for example with `rename`"
