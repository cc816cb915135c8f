"""Roll-ups: larger windows that are merged from the partials of smaller ones.

A roll-up stores no state: it merges the partials in the state of its base. Each window of the base
lies completely inside one window of the roll-up, so no event has to be aggregated again. Counts,
minima, maxima and sketches are equal, to the bit, to results that are computed from the events.

An event counts in the larger window if it counts in its smaller one, so the hours of a day add up
to the day. The event's lateness is classified again: an event that was late for its hour may be on
time for its day. `compute.rollups` explains how the partials are read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidemark.base.arguments import check_arguments
from tidemark.base.errors import DefinitionError
from tidemark.define.definition import Definition
from tidemark.define.tables import TableName
from tidemark.define.transform import WindowedTransform
from tidemark.define.windows import Calendar, Tumbling


@dataclass(frozen=True, kw_only=True, repr=False)
class RollUp(Definition):
    """An asset whose windows are merged from those of another asset. Created by `rollup`."""

    base: WindowedTransform

    @property
    def state_table(self) -> TableName:
        """The state table of the base."""
        return self.base.state_table

    @property
    def rolled_up_name(self) -> str:
        return self.base.name

    @property
    def further_details(self) -> Mapping[str, str]:
        return {"rolled up from": self.base.name}


def base_transform(definition: Definition) -> WindowedTransform:
    """Return the transform that aggregates events: the asset itself, or a roll-up's base."""
    match definition:
        case RollUp(base=base):
            return base
        case WindowedTransform():
            return definition
        case _:
            raise TypeError(
                f"Expected a windowed transform or a roll-up (got {type(definition).__name__})."
            )


@check_arguments
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
    """Define an asset whose windows are merged from those of another asset, its base.

    The roll-up has the source and the allowed lateness of the base.

    Example:
        daily = rollup(of=visits_hourly, name="visits_daily", window=Tumbling("1 day"))

    Args:
        of: the base: an asset with tumbling or calendar windows. Its trigger must have the default
            for late firings: one at each arrival with late events.
        name: the name of the roll-up, and of its published table.
        window: windows that contain each window of the base completely.
        keys: the keys of the base to keep; all by default.
        aggregates: the aggregates of the base to keep; all by default.
        expectations: the expectations that rows must meet to be published.
        description: the description of the roll-up; the default names the base and the windows.

    Raises:
        DefinitionError: the base can't be rolled up, the window would split a window of the base,
            or the base lacks one of the given keys or aggregates.
    """
    if isinstance(of, RollUp):
        raise DefinitionError(
            f"Roll-up '{name}': '{of.name}' is itself a roll-up. Roll up its base "
            f"'{of.base.name}' instead: the result is the same."
        )
    if not of.trigger.late.by_arrival:
        raise DefinitionError(
            f"Roll-up '{name}': the trigger of '{of.name}' sets `late` ({of.trigger.late}), so the "
            "asset's state does not record when each late event arrived. Omit `late`: by default, "
            "a window fires at each arrival with late events."
        )
    if not window.contains_windows(of.window):
        raise DefinitionError(
            f"Roll-up '{name}': the windows of '{of.name}' ({of.window}) can't be merged into "
            f"larger windows ({window}). The base must have tumbling or calendar windows, each "
            "within one larger window. Calendar windows fit only into calendar windows in the same "
            "time zone."
        )
    chosen = _select_columns(name, "aggregate", of.name, tuple(of.aggregates), aggregates)
    return RollUp(
        name=name,
        description=description or f"{of.name}, merged into larger windows: {window}.",
        source=of.source,
        keys=_select_columns(name, "key", of.name, of.keys, keys),
        window=window,
        allowed_lateness=of.allowed_lateness,
        aggregates={column: of.aggregates[column] for column in chosen},
        expectations=tuple(expectations),  # pyright: ignore[reportArgumentType]
        base=base_transform(of),
    )


def _select_columns(
    name: str, kind: str, base: str, available: tuple[str, ...], selected: Sequence[str] | None
) -> tuple[str, ...]:
    for column in selected or ():
        if column not in available:
            raise DefinitionError(
                f"Roll-up '{name}': '{base}' has no {kind} '{column}'; it has: "
                f"{', '.join(available) or 'none'}."
            )
    if selected is None:
        return available
    return tuple(selected)
