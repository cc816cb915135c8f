"""Progress and summary of an ingest, for the commands that fill an event log."""

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, suppress
from json import loads
from typing import TYPE_CHECKING

from tidemark.base.counts import format_count
from tidemark.base.instants import iso
from tidemark.base.settings import Settings
from tidemark_streaming.base import logs
from tidemark_streaming.cli.console import (
    err,
    format_seconds,
    print_facts,
    print_status,
    print_warning,
    step,
)
from tidemark_streaming.cli.interrupt import handle_termination
from tidemark_streaming.cli.output import Output

if TYPE_CHECKING:
    from tidemark.define.source import Source
    from tidemark.store.event_log.arrival import Arrival
    from tidemark.store.warehouse import Warehouse
    from tidemark_streaming.ingest.ingest import Ingested

_MAX_LOGGED_LETTERS = 20
"""Maximum number of dead letters of a commit that are logged one by one."""


def ingest_and_report(
    verb: str,
    store: "Warehouse",
    source: "Source",
    commits: "Generator[Ingested]",
    settings: Settings,
    *,
    following: bool = False,
    also: Callable[[], str] = str,
) -> Output:
    """Run an ingest, and return its totals.

    Args:
        verb: the name of the work in the progress line.
        commits: the commits of the ingest, which runs only while they are iterated over.
        following: true if the ingest continues until it is stopped.
        also: returns text to append to the progress line.
    """
    from tidemark_streaming.ingest.future_watermark import find, future_timestamps, is_far_ahead
    from tidemark_streaming.snapshot.snapshot import Snapshot

    name = source.name
    began = time.monotonic()
    count = 0
    events = 0
    dead = 0
    first: Arrival | None = None
    last: Arrival | None = None
    undeclared = set[str]()
    ahead: int | None = None
    if following:
        handle_termination()
    # An interrupted ingest is closed here. Otherwise the interpreter would close it while it exits,
    # when neither errors nor requests to the engine are possible any more.
    with (
        step(f"{verb} {name}") as work,
        suppress(*([KeyboardInterrupt] if following else [])),
        closing(commits),
    ):
        for commit in commits:
            # Keep only totals, because an ingest that follows its source may run for days.
            first = first or commit.arrivals[0]
            last = commit.arrivals[-1]
            count += len(commit.arrivals)
            events += sum(a.rows for a in commit.arrivals)
            dead += sum(a.dead_letters for a in commit.arrivals)
            _warn_of_losses(name, commit.arrivals)
            _warn_of_undeclared(name, commit.arrivals, undeclared)
            if (
                warning := future_timestamps(Snapshot(settings), source, commit.arrivals)
            ) is not None:
                print_warning(warning)
            # Repeat the warning only if the watermark has changed since.
            if is_far_ahead(last.after, last.arrived_at) and last.after != ahead:
                ahead = last.after
                print_warning(str(find(Snapshot(settings), source)))
            _report_unreadable_marks(source, commit.arrivals)
            if logs.is_structured():
                _log(store, source, commit.arrivals)
            work.at(commit.done, commit.pending)
            letters = f", {format_count(dead, source.dead_letter_noun)}" if dead else ""
            work.note = (
                f"{format_count(count, 'arrival')}, {format_count(events, 'event')}{letters}"
            )
            if following:
                line = f"follow {name}: {work.note}"
                work.show(f"{line}{also()}")
                # A terminal shows the line in place. A file or a pipe needs a line per commit.
                if not err().is_terminal and not logs.is_structured():
                    err().print(line, soft_wrap=True, highlight=False)
    took = time.monotonic() - began
    ended = last or next(reversed(Snapshot(settings).timeline(name)), None)
    if ended is not None and ended.ends:
        print_status(
            f"The source '{name}' has ended with arrival {ended.arrival}: it accepts no more "
            "events."
        )
    result: dict[str, object] = {
        "source": name,
        "arrivals": count,
        "events": events,
        "dead_letters": dead,
        "first_arrival": None if first is None else first.arrival,
        "last_arrival": None if last is None else last.arrival,
        "watermark": None if last is None else iso(last.after),
        "seconds": round(took, 1),
    }

    def show() -> None:
        if first is not None and last is not None:
            print_facts(
                {
                    "arrivals": f"{first.arrival:,} to {last.arrival:,}",
                    "events": f"{events:,}",
                    f"{source.dead_letter_noun}s": f"{dead:,}",
                    "watermark": iso(last.after),
                    "took": format_seconds(took),
                }
            )
        elif ended is None or not ended.ends:
            print_status(f"No new arrivals for '{name}'.{_say_what_fills(source)}")

    return Output(result, show)


def _say_what_fills(source: "Source") -> str:
    """Return a text on how a derived source gets new arrivals; empty for other sources."""
    from tidemark.define.derived.derived_source import DerivedSource

    if not isinstance(source, DerivedSource):
        return ""
    if (asset := source.derivation.asset) is not None:
        return (
            f" It takes the windows that '{asset.name}' has published: see `tidemark run "
            f"{asset.name}`."
        )
    bases = [base.name for base in source.bases]
    commands = " and ".join(f"`tidemark ingest {name}`" for name in bases)
    return f" It takes the arrivals of {' and '.join(bases)}: see {commands}."


def _warn_of_losses(source: str, arrivals: "Sequence[Arrival]") -> None:
    from tidemark_streaming.ingest.accepted_losses import skipped_losses

    for arrival in arrivals:
        if lost := skipped_losses(arrival.position):
            print_warning(
                f"Arrival {arrival.arrival} of '{source}' skips lost data, because its loss was "
                f"accepted: {'; '.join(lost)}."
            )


def _warn_of_undeclared(source: str, arrivals: "Sequence[Arrival]", warned: set[str]) -> None:
    """Warn once about each field that the source does not declare. `warned` collects the fields."""
    seen = {name for a in arrivals if a.undeclared for name in loads(a.undeclared)}
    if new := sorted(seen - warned):
        warned |= seen
        print_warning(
            f"'{source}' does not declare some of the received fields, so they are ignored: "
            f"{', '.join(new)}. Declare them as nullable columns to ingest them from then on."
        )


def _report_unreadable_marks(source: "Source", arrivals: "Sequence[Arrival]") -> None:
    for arrival in arrivals:
        if count := arrival.unreadable_marks:
            print_warning(
                f"The watermark of '{source.name}' ({source.watermark}) can't be read from "
                f"{format_count(count, 'event')} of arrival {arrival.arrival}, which the event log "
                "has, but which did not advance the watermark."
            )


def _log(store: "Warehouse", source: "Source", arrivals: "Sequence[Arrival]") -> None:
    from tidemark.store.commits.conditions import number_in

    for a in arrivals:
        if a.silent_since is not None:
            logs.log("heartbeat", source=source.name, arrival=a.arrival, watermark=iso(a.after))
            continue
        logs.log(
            "arrived",
            source=source.name,
            arrival=a.arrival,
            events=a.rows,
            dead_letters=a.dead_letters,
            bytes=a.bytes,
            watermark=iso(a.after),
            undeclared=loads(a.undeclared) if a.undeclared else None,
            unreadable_marks=a.unreadable_marks,
        )
    if not any(a.dead_letters for a in arrivals):
        return
    within = number_in("arrival", arrivals[0].arrival, arrivals[-1].arrival + 1)
    columns = ("arrival", "position", "read_from", "correlation_id", "reason")
    letters = store.take(source.dead_letters_table, within, columns=columns)
    order = [("arrival", "ascending"), ("position", "ascending")]
    for letter in letters.sort_by(order).slice(0, _MAX_LOGGED_LETTERS).to_pylist():
        logs.warn("dead letter", source=source.name, **letter)
    if letters.num_rows > _MAX_LOGGED_LETTERS:
        logs.warn(
            "more dead letters", source=source.name, letters=letters.num_rows - _MAX_LOGGED_LETTERS
        )
