"""`tidemark trace`: follow one event from its origin to every row that contains it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.tree import Tree

from tidemark.base.counts import format_count
from tidemark.base.errors import DataError
from tidemark.base.instants import as_datetime, format_instant
from tidemark_streaming.cli.console import (
    NONE,
    format_keys,
    format_time,
    message_console,
    report_step,
    result_console,
)
from tidemark_streaming.cli.context import Home
from tidemark_streaming.cli.output import Output, with_json

if TYPE_CHECKING:
    from tidemark.define.definition import Definition
    from tidemark.define.source import Source
    from tidemark.store.warehouse import Warehouse
    from tidemark.verify.event_fates import Fate, WindowMembership
    from tidemark.verify.traced_events import Event
    from tidemark_streaming.dbt.mart_rows import MartRows
    from tidemark_streaming.home.domains import Domains

_MOST = 20
"""Maximum number of events with one correlation id to trace."""

_SHOWN = 3
"""Maximum number of rows of a mart to list."""


@with_json
def trace_event(
    correlation_id: Annotated[str, typer.Argument(help="The `correlation_id` of the event.")],
    source: Annotated[
        str | None, typer.Option(help="Search only this source's event log; all if omitted.")
    ] = None,
) -> Output:
    """Trace one event to every window, pane, late row and mart that contains it.

    The command shows the event's origin, arrival and watermark, and for each asset of its source
    the event's lateness and the rows that contain it. If several events share an id, it traces each
    of them. It follows an event into joins and unions, and a row of a join back to the events that
    it was computed from.

    Example: `tidemark trace orders:0:17`
    """
    from tidemark.verify.event_fates import find_fates
    from tidemark.verify.traced_events import add_origins, find_events
    from tidemark_streaming.snapshot.source_rows import has_correlation_id
    from tidemark_streaming.snapshot.tables import Tables

    home = Home()
    domains = home.definitions
    sources = [home.find_source(source)] if source else list(domains.sources.values())
    named = {any_source.name: any_source for any_source in domains.all_sources()}
    names = ", ".join(f"'{searched.name}'" for searched in sources)
    unknown = DataError(
        f"No arrival of {names} has an event with the correlation id '{correlation_id}'."
    )
    # Without a match, the engine need not start.
    if not has_correlation_id(Tables.of_database(home.settings), sources, correlation_id):
        raise unknown
    store = home.open_warehouse()
    with report_step(f"find {correlation_id}") as work:
        events = list["Event"]()
        for searched in sources:
            events += islice(find_events(store, searched, correlation_id), _MOST + 1)
        if source is None:
            events = _follow_events(store, domains, named, events)
        work.note = f"{len(events)} found" if len(events) <= _MOST else f"more than {_MOST}"
    if not events:
        raise unknown
    if len(events) > _MOST:
        message_console().print(
            f"More than {_MOST} events have this id: only the first {_MOST} are traced."
        )
    traces = list[dict[str, Any]]()
    trees = list[Tree]()
    for event in events[:_MOST]:
        with report_step(f"trace it from arrival {event.arrival.arrival} of {event.source}"):
            event = add_origins(store, named[event.source], event)
            fates = find_fates(store, list(domains.transforms.values()), event)
            rows = _find_mart_rows(home, store, domains.transforms, fates)
        traces.append(_to_plain(event, fates, rows))
        trees.append(_draw_tree(event, fates, rows))
    return Output(traces, lambda: result_console().print(*trees))


def _follow_events(
    store: "Warehouse",
    domains: "Domains",
    named: Mapping[str, "Source"],
    events: Sequence["Event"],
) -> list["Event"]:
    """Return the events, and all rows of derived sources that were computed from them.

    Each is returned once. Stop at `_MOST` + 1 results, from which the caller sees that there are
    more than `_MOST`.

    Args:
        named: all sources, by name.
        events: the events.
    """
    from tidemark.verify.traced_events import find_derived

    reached = dict[tuple[str, int, int, bool], "Event"]()
    waiting = list(events)
    while waiting and len(reached) <= _MOST:
        event = waiting.pop(0)
        if event.identity in reached:
            continue
        reached[event.identity] = event
        for source in domains.derived_from(named[event.source]):
            waiting += islice(find_derived(store, source, event), _MOST + 1)
    return list(reached.values())


def _find_mart_rows(
    home: Home,
    store: "Warehouse",
    transforms: Mapping[str, "Definition"],
    fates: Sequence["Fate"],
) -> dict[tuple[str, int], list["MartRows"]]:
    """Return the mart rows of the windows that contain an event.

    Returns:
        The rows by asset and by the index of the window in `Fate.places`.
    """
    from tidemark_streaming.dbt import mart_rows
    from tidemark_streaming.dbt.marts import Marts, has_project

    if not has_project(home.settings):
        return {}
    project = Marts(home.settings)
    rows = dict[tuple[str, int], list["MartRows"]]()
    for fate in fates:
        transform = transforms[fate.asset]
        for n, membership in enumerate(fate.places):
            if membership.in_row and membership.row is not None:
                resting = mart_rows.resting_on(store, project, transform, membership.row)
                rows[fate.asset, n] = list(resting)
    return rows


def _to_plain(
    event: "Event", fates: Sequence["Fate"], marts: Mapping[tuple[str, int], list["MartRows"]]
) -> dict[str, Any]:
    assets = list[dict[str, Any]]()
    for fate in fates:
        places = list[dict[str, Any]]()
        for n, membership in enumerate(fate.places):
            window = asdict(membership)
            window["start"] = format_instant(membership.start)
            window["end"] = format_instant(membership.end)
            window["marts"] = [asdict(rows) for rows in marts.get((fate.asset, n), [])]
            places.append(window)
        assets.append(
            {
                "asset": fate.asset,
                "follows": fate.follows,
                "state": fate.state,
                "watermark": format_instant(fate.watermark),
                "places": places,
            }
        )
    return {**_plain_event(event), "assets": assets}


def _plain_event(event: "Event") -> dict[str, Any]:
    came = event.arrival
    return {
        "correlation_id": event.correlation_id,
        "source": event.source,
        "arrival": came.arrival,
        "position": event.position,
        "read_from": event.read_from,
        "arrived_at": format_instant(came.arrived_at),
        "watermark": format_instant(came.before),
        "dead_letter": event.dead_letter,
        "event": dict(event.columns),
        "origins": [_plain_event(origin) for origin in event.origins],
    }


def _draw_tree(
    event: "Event", fates: Sequence["Fate"], marts: Mapping[tuple[str, int], list["MartRows"]]
) -> Tree:
    tree = Tree(f"[bold]{escape(event.correlation_id)}[/]")
    _add_origin(tree, event)
    for fate in fates:
        title = f"[bold]{fate.asset}[/]"
        if fate.follows:
            title += f" [dim]rolls up {fate.follows}[/]"
        branch = tree.add(title)
        if not fate.places:
            branch.add(_explain_absence(fate))
        for n, membership in enumerate(fate.places):
            where = branch.add(_describe_membership(membership))
            for line in _describe_rows(fate, membership):
                where.add(line)
            for mart in marts.get((fate.asset, n), []):
                where.add(_describe_mart(mart))
    return tree


def _add_origin(tree: Tree, event: "Event") -> None:
    came = event.arrival
    origin = tree.add(
        f"arrival [bold]{came.arrival}[/] of {event.source}, position {event.position}"
    )
    origin.add(f"[dim]read from[/] {escape(event.read_from or NONE)}")
    origin.add(f"[dim]arrived[/] {format_instant(came.arrived_at)}")
    origin.add(f"[dim]watermark before its arrival[/] {format_instant(came.before) or '-infinity'}")
    if event.dead_letter is None:
        origin.add(f"[dim]event[/] {escape(_format_values(event.columns))}")
    elif event.origins:
        origin.add(f"[red]takes no part[/]: {escape(event.dead_letter)}")
    else:
        position = f"{came.arrival} position {event.position}"
        origin.add(f"[red]a dead letter[/]: {escape(event.dead_letter)}")
        origin.add(
            f"`tidemark dead-letters show {event.source}` shows its bytes (arrival {position})"
        )
    for base_event in event.origins:
        _add_origin(origin.add("[dim]computed from[/]"), base_event)


def _explain_absence(fate: "Fate") -> str:
    from tidemark.verify.event_fates import LEFT_OUT, NOT_RUN, NOT_YET

    left_out = "left out: the function of the asset returns no row for the event"
    if fate.follows is not None:
        left_out = f"left out: it counts in no window of {fate.follows}"
    sentences = {
        NOT_RUN: f"has not run yet: `tidemark run {fate.asset}`",
        NOT_YET: f"has not processed the arrival yet: `tidemark run {fate.asset}`",
        LEFT_OUT: left_out,
    }
    return sentences[fate.state]


def _describe_membership(membership: "WindowMembership") -> str:
    keys = format_keys(membership.keys)
    colour = {"on_time": "green", "late": "yellow"}.get(membership.verdict, "red")
    verdict = f"[{colour}]{membership.verdict.replace('_', ' ')}[/]"
    if membership.verdict == "late":
        verdict += ", counted"
    elif membership.verdict == "too_late":
        verdict += ", counted by a correction" if membership.counts else ", not counted"
    if membership.start is None or membership.end is None:
        return f"no window {escape(keys)}: {verdict}"
    span = f"{_format_time(membership.start)} to {_format_time(membership.end)}"
    return f"{span} {escape(keys)}: {verdict}"


def _describe_rows(fate: "Fate", membership: "WindowMembership") -> Iterator[str]:
    if membership.late is not None:
        table = fate.follows or fate.asset
        line = f"in [bold]{table}_late[/]: {membership.late['reason']}"
        lag = membership.late["lateness_seconds"]
        if lag is not None:
            line += f", {lag:,.0f} s behind the watermark"
        yield line
    row = membership.row
    if membership.start is None or membership.end is None:
        return
    if row is not None:
        yield _describe_published_row(membership, row)
    elif membership.counts and membership.quarantined is None:
        mark = format_instant(fate.watermark) or "-infinity"
        yield f"waits for its window to fire: the watermark is at {mark}"
    if membership.quarantined is not None:
        failures = list[str]()
        for failed in membership.quarantined["failed_expectations"]:
            if failed["level"] == "error":
                failures.append(f"{failed['expectation']}: {failed['observed']}")
        status = membership.quarantined["quarantine_status"]
        yield f"[red]in quarantine[/] ({status}): {escape('; '.join(failures))}"
    for pane in membership.panes:
        line = f"pane {pane['pane']}, {pane['timing']}"
        if pane["retraction"]:
            line = f"retraction in {line}"
        if pane["is_last"]:
            line += ", the last"
        yield line


def _describe_published_row(membership: "WindowMembership", row: Mapping[str, Any]) -> str:
    parts = list[str]()
    if not membership.in_row:
        # If the event counts, a later revision includes it.
        parts.append("without it" if membership.counts else "permanently without it")
    parts.append(f"revision {row['revision']}")
    parts.append(row["timing"])
    parts.append("final" if row["final"] else "not final yet")
    if row["quality"]:
        parts.append(row["quality"])
    values = escape(_format_values(_select_measures(membership, row)))
    return f"published {', '.join(parts)}: {values}"


def _select_measures(membership: "WindowMembership", row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a published row to show: its columns without the window, the keys, and
    most of the columns that Tidemark adds."""
    hidden = {
        "window_start",
        "window_end",
        *membership.keys,
        "revision",
        "timing",
        "final",
        "quality",
        "as_of",
        "commit_number",
        "last_arrival",
    }
    return {name: value for name, value in row.items() if name not in hidden}


def _describe_mart(mart_rows: "MartRows") -> str:
    mart = f"mart [bold]{mart_rows.mart}[/]"
    if mart_rows.by is None:
        return f"{mart} reads this table"
    values = escape(_format_values(mart_rows.by))
    if not mart_rows.rows:
        return f"{mart} has no row of {values} yet: `tidemark dbt build {mart_rows.mart}`"
    if len(mart_rows.rows) > _SHOWN:
        return f"{mart}: {format_count(len(mart_rows.rows), 'row')} of {values}"
    rows = list[str]()
    for row in mart_rows.rows:
        further_values = {name: value for name, value in row.items() if name not in mart_rows.by}
        rows.append(_format_values(further_values))
    return f"{mart}, {values}: {escape('; '.join(rows))}"


def _format_values(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_format_value(value)}" for name, value in row.items())


def _format_value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if value is None:
        return NONE
    return str(value)


def _format_time(micros: int) -> str:
    return format_time(as_datetime(micros)).removesuffix(":00")
