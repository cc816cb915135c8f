"""Roll-ups: larger windows, made of the partials of smaller ones.

A roll-up has no state of its own: its state is its base's, read by larger windows. Every window of
the base lies whole in one of the roll-up's, and partials merge, so nothing is counted again:
counts, minima, maxima and sketches are equal to the bit to those of the events themselves.

An event counts in the larger window if it counts in its smaller one, so the hours of a day add up
to the day. Whether it is late is judged anew: what was late for its hour may be on time for its
day. How the partials are read is told by `compute.rollups`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidemark.base.arguments import checked
from tidemark.base.errors import DefinitionError
from tidemark.define.definition import Definition
from tidemark.define.tables import TableName
from tidemark.define.transform import WindowedTransform
from tidemark.define.windows import Calendar, Tumbling


@dataclass(frozen=True, kw_only=True)
class RollUp(Definition):
    """An asset whose windows are made of another's. Made by `rollup`."""

    base: WindowedTransform

    @property
    def state_table(self) -> TableName:
        """The stored panes of its base."""
        return self.base.state_table

    @property
    def follows(self) -> str:
        return self.base.name

    @property
    def remarks(self) -> Mapping[str, str]:
        return {"rolled up from": self.base.name}


def counting(definition: Definition) -> WindowedTransform:
    """The transform that counts the events of which an asset's windows are made: the asset itself,
    or the base of a roll-up."""
    match definition:
        case RollUp(base=base):
            return base
        case WindowedTransform():
            return definition
        case _:
            raise TypeError(f"A windowed transform or a roll-up, not {type(definition).__name__}.")


@checked
def rollup(
    *,
    of: Definition,
    name: str,
    window: Tumbling | Calendar,
    keys: Sequence[str] | None = None,
    aggregates: Sequence[str] | None = None,
    expectations: Sequence[object] = (),
    description: str = "",
) -> RollUp:
    """Define larger windows of an asset. Its allowed lateness is that of the base.

    Example:
        daily = rollup(of=visits_hourly, name="visits_daily", window=Tumbling("1 day"))

    Args:
        of: the base: an asset of tumbling or calendar windows that fires at each late arrival.
        name: the name of the roll-up, and of its published table.
        window: windows each of which holds windows of the base whole.
        keys: those of the base's by which it answers; all by default.
        aggregates: those of the base's that it has; all by default.
        expectations: what its rows must be like to be published.
        description: what it is.

    Raises:
        DefinitionError: a base that can't be rolled up, a window that would cut one of the base's,
            a key or an aggregate that the base does not have.
    """
    if isinstance(of, RollUp):
        raise DefinitionError(
            f"Roll-up '{name}': '{of.name}' is a roll-up itself; roll up its base "
            f"'{of.base.name}' instead, which gives the same."
        )
    if not of.trigger.late.by_arrival:
        raise DefinitionError(
            f"Roll-up '{name}': '{of.name}' fires late {of.trigger.late}, so its state does not "
            "tell when each late event came; let it fire late at each arrival, the default."
        )
    if not window.holds(of.window):
        raise DefinitionError(
            f"Roll-up '{name}': its windows ({window}) don't hold those of '{of.name}' "
            f"({of.window}) whole; the base is tumbling, or calendar in the same time zone, and "
            "each of its windows lies in one larger window."
        )
    chosen = _chosen(name, "aggregate", of.name, tuple(of.aggregates), aggregates)
    return RollUp(
        name=name,
        description=description or f"{of.name} by larger windows: {window}.",
        source=of.source,
        keys=_chosen(name, "key", of.name, of.keys, keys),
        window=window,
        allowed_lateness=of.allowed_lateness,
        aggregates={column: of.aggregates[column] for column in chosen},
        expectations=tuple(expectations),  # pyright: ignore[reportArgumentType]
        base=counting(of),
    )


def _chosen(
    name: str, what: str, base: str, there: tuple[str, ...], asked: Sequence[str] | None
) -> tuple[str, ...]:
    for column in asked or ():
        if column not in there:
            raise DefinitionError(
                f"Roll-up '{name}': '{base}' has no {what} '{column}'; it has "
                f"{', '.join(there) or 'none'}."
            )
    return there if asked is None else tuple(asked)
