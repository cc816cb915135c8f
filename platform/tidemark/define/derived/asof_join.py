"""As-of joins, which join an event with the version of its key that was valid at its event time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, get_args

from tidemark.base.arguments import check_arguments
from tidemark.base.determinism import Sql
from tidemark.base.errors import DefinitionError
from tidemark.base.instants import checked_duration
from tidemark.define.derived.derived_source import (
    NUMBER,
    DerivedSource,
    WatermarkOfBases,
    check_idle,
)
from tidemark.define.derived.pairing import (
    LINEAGE,
    SIDES,
    Pairing,
    check_keys,
    paired_columns,
)
from tidemark.define.source import Source
from tidemark.define.tables import Role, TableName

_How = Literal["inner", "left"]


@dataclass(frozen=True, kw_only=True)
class AsOfJoin(Pairing):
    """The derivation of an as-of join: which version of its key each left row is joined with.

    Each event of the right source is a version of its key, valid from its event time on. Each event
    of the left source is joined with the version that is valid at its event time.

    Args:
        how: `left` keeps left rows without a version, `inner` does not.
        lateness: how far a row may be behind the watermark of its own base and still take part, in
            microseconds.
        deleted: a SQL condition over the columns of the right source. An event that meets it ends
            the previous version, and is not a version itself. None if no event does.
    """

    how: _How
    lateness: int
    deleted: str | None

    added_columns = LINEAGE
    lineage_columns = SIDES

    @property
    def partner_keys(self) -> tuple[str, ...] | None:
        # Derived rows do not name the events that ended a version.
        if self.deleted is None:
            return self.on
        return None

    @property
    def deciding_arguments(self) -> tuple[object, ...]:
        return self.on, self.how, self.lateness, self.deleted

    @property
    def sql_expressions(self) -> Mapping[str, str]:
        if self.deleted is None:
            return {}
        return {"deleted": self.deleted}

    @property
    def look_back(self) -> tuple[int, ...]:
        # A left row waits until no version before it can take part any more.
        return 0, self.lateness


@dataclass(frozen=True, kw_only=True)
class AsOfSource(DerivedSource):
    """The source that an as-of join creates."""

    derivation: AsOfJoin

    @property
    def versions_table(self) -> TableName:
        """The table with the newest version of each key."""
        return self._name_table("versions", Role.VERSIONS)

    @property
    def own_tables(self) -> list[TableName]:
        return [*super().own_tables, self.versions_table]


@check_arguments
def asof_join(
    *,
    name: str,
    left: Source,
    right: Source,
    on: Sequence[str],
    how: str = "inner",
    allowed_lateness: str | timedelta = "0 seconds",
    deleted: Sql | None = None,
    rename: Mapping[str, str] | None = None,
    idle: str | timedelta | None = None,
) -> AsOfSource:
    """Return a source that joins each left event with the version of its key at its event time.

    Each event of the right source is a version of its key, valid from its event time until the next
    version. A left event gets the newest version that is not after it. If versions have equal event
    times, the one that arrived last is the newest. The rows do not depend on how the arrivals are
    cut into runs.

    Example:
        orders = Source(
            name="orders",
            columns={"at": "TIMESTAMP", "currency": "STRING", "amount": "DECIMAL(8,2)"},
            event_time="at",
            watermark=BoundedOutOfOrderness("10 minutes"),
        )
        rates = Source(
            name="rates",
            columns={"valid_from": "TIMESTAMP", "currency": "STRING", "rate": "DECIMAL(8,4)"},
            event_time="valid_from",
            watermark=BoundedOutOfOrderness("10 minutes"),
        )
        priced = tm.asof_join(name="priced", left=orders, right=rates, on=["currency"])

    Args:
        name: the name of the join, with the same rules as for any source.
        left: the source whose events get a version; it may be a derived source.
        right: the source of the versions.
        on: the columns with the keys; each must have the same type in both sources.
        how: "inner" gives only left events that have a version. "left" gives all left events; the
            right columns are null without a version.
        allowed_lateness: how far an event may be behind the watermark of its own source and still
            take part. Left events wait this much longer for versions. Events that take no part are
            in the table `<name>_unjoined`.
        deleted: a SQL condition over the columns of the right source, as in `"op = 'D'"`. An event
            that meets it ends the current version of its key.
        rename: new names for columns that both sources have, as in `{"rates.note": "rate_note"}`.
        idle: how long one source must be silent before it no longer holds back the other, such as
            "10 minutes". It needs `Source(heartbeat=...)`. Use it if versions change rarely: from
            the first heartbeat after this time, the versions count as complete up to the watermark
            of the left source. A version that arrives later is late if it is before that watermark.

    Raises:
        DefinitionError: an argument is not valid; the message says why.
    """
    owner = f"As-of join '{name}'"
    if how not in get_args(_How):
        raise DefinitionError(f"{owner}: how must be 'inner' or 'left' (got '{how}').")
    keys = check_keys(owner, left, right, on)
    lateness = checked_duration(f"{owner}: allowed_lateness", allowed_lateness, zero=True)
    columns, left_columns, right_columns = paired_columns(
        name, left, right, keys, rename or {}, dict.fromkeys(LINEAGE, NUMBER)
    )
    return AsOfSource(
        name=name,
        columns=columns,
        event_time=left_columns.get(left.event_time, left.event_time),
        watermark=WatermarkOfBases(),
        idle=check_idle(name, idle, (left, right)),
        derivation=AsOfJoin(
            left=left,
            right=right,
            on=keys,
            how=how,  # pyright: ignore[reportArgumentType]  (checked above)
            lateness=lateness,
            deleted=deleted,
            left_columns=left_columns,
            right_columns=right_columns,
        ),
    )
