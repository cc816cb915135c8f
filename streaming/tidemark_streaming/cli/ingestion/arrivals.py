"""Progress and summary of an ingest, for the commands that fill an event log."""

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from json import loads
from typing import TYPE_CHECKING

from tidemark.base.counts import format_count
from tidemark.base.instants import format_instant
from tidemark.base.settings import Settings
from tidemark_streaming.base import logs
from tidemark_streaming.cli.console import (
    format_seconds,
    message_console,
    print_facts,
    print_status,
    print_warning,
    report_step,
)
from tidemark_streaming.cli.interrupt import handle_termination, suppress_interrupt
from tidemark_streaming.cli.output import Output

if TYPE_CHECKING:
    from tidemark.define.source import Source
    from tidemark.store.event_log.arrival import Arrival
    from tidemark.store.warehouse import Warehouse
    from tidemark_streaming.ingest.ingest import Ingested

_MAX_LOGGED_LETTERS = 20
"""Maximum number of dead letters of a commit that are logged one by one."""


class _Totals:
    """The totals of an ingest, instead of its arrivals: an ingest may run for days."""

    def __init__(self, source: "Source") -> None:
        self._source = source
        self.arrivals = 0
        self.events = 0
        self.dead_letters = 0
        self.first: Arrival | None = None
        self.last: Arrival | None = None

    def add_arrivals(self, arrivals: "Sequence[Arrival]") -> None:
        self.first = self.first or arrivals[0]
        self.last = arrivals[-1]
        self.arrivals += len(arrivals)
        self.events += sum(arrival.rows for arrival in arrivals)
        self.dead_letters += sum(arrival.dead_letters for arrival in arrivals)

    def describe_totals(self) -> str:
        """Return the totals in words, for the progress line."""
        parts = [format_count(self.arrivals, "arrival"), format_count(self.events, "event")]
        if self.dead_letters:
            parts.append(format_count(self.dead_letters, self._source.dead_letter_noun))
        return ", ".join(parts)

    def to_json(self, seconds: float) -> dict[str, object]:
        """Return the totals as values of JSON."""
        totals: dict[str, object] = {
            "source": self._source.name,
            "arrivals": self.arrivals,
            "events": self.events,
            "dead_letters": self.dead_letters,
            "first_arrival": None,
            "last_arrival": None,
            "watermark": None,
            "seconds": round(seconds, 1),
        }
        if self.first is not None and self.last is not None:
            totals["first_arrival"] = self.first.arrival
            totals["last_arrival"] = self.last.arrival
            totals["watermark"] = format_instant(self.last.after)
        return totals

    def list_facts(self, seconds: float) -> dict[str, str | None]:
        """Return the totals for a reader; none if nothing arrived."""
        if self.first is None or self.last is None:
            return {}
        return {
            "arrivals": f"{self.first.arrival:,} to {self.last.arrival:,}",
            "events": f"{self.events:,}",
            f"{self._source.dead_letter_noun}s": f"{self.dead_letters:,}",
            "watermark": format_instant(self.last.after),
            "took": format_seconds(seconds),
        }


class _Warnings:
    """Prints warnings about the arrivals of a source. A lasting problem is reported once."""

    def __init__(self, source: "Source", settings: Settings) -> None:
        self._source = source
        self._settings = settings
        self._undeclared = set[str]()
        self._reported_watermark: int | None = None

    def print_for(self, arrivals: "Sequence[Arrival]") -> None:
        _warn_of_losses(self._source.name, arrivals)
        _warn_of_undeclared(self._source.name, arrivals, self._undeclared)
        self._warn_of_future(arrivals)
        _report_unreadable_marks(self._source, arrivals)

    def _warn_of_future(self, arrivals: "Sequence[Arrival]") -> None:
        from tidemark_streaming.ingest.future_watermark import (
            find_future_watermark,
            future_timestamps,
            is_far_ahead,
        )
        from tidemark_streaming.snapshot.snapshot import Snapshot

        warning = future_timestamps(Snapshot(self._settings), self._source, arrivals)
        if warning is not None:
            print_warning(warning)
        newest = arrivals[-1]
        # Repeat the warning only if the watermark has changed since.
        has_moved = newest.after != self._reported_watermark
        if has_moved and is_far_ahead(newest.after, newest.arrived_at):
            self._reported_watermark = newest.after
            print_warning(str(find_future_watermark(Snapshot(self._settings), self._source)))


def ingest_and_report(
    store: "Warehouse",
    source: "Source",
    commits: "Generator[Ingested]",
    settings: Settings,
    *,
    following: bool = False,
    describe_runs: Callable[[], str] = str,
) -> Output:
    """Run an ingest, and return its totals.

    Args:
        commits: the commits of the ingest, which runs only while they are iterated over.
        following: true if the ingest continues until it is stopped.
        describe_runs: returns text on the newest runs, to append to the progress line.
    """
    from tidemark_streaming.snapshot.snapshot import Snapshot

    name = source.name
    began = time.monotonic()
    totals = _Totals(source)
    warnings = _Warnings(source, settings)
    if following:
        handle_termination()
    # An interrupted ingest is closed here. Otherwise the interpreter would close it while it exits,
    # when neither errors nor requests to the engine are possible any more.
    with (
        report_step(f"ingest {name}") as work,
        suppress_interrupt(following=following),
        closing(commits),
    ):
        for commit in commits:
            totals.add_arrivals(commit.arrivals)
            warnings.print_for(commit.arrivals)
            if logs.is_structured():
                _log_arrivals(store, source, commit.arrivals)
            work.show_count(commit.committed, commit.pending)
            work.note = totals.describe_totals()
            if following:
                line = f"follow {name}: {work.note}"
                work.show_activity(f"{line}{describe_runs()}")
                # A terminal shows the line in place. A file or a pipe needs a line per commit.
                if not message_console().is_terminal and not logs.is_structured():
                    message_console().print(line, soft_wrap=True, highlight=False)
    seconds = time.monotonic() - began
    newest = totals.last or next(reversed(Snapshot(settings).read_timeline(name)), None)
    has_ended = newest is not None and newest.ends_source
    if newest is not None and has_ended:
        print_status(
            f"The source '{name}' has ended with arrival {newest.arrival}: it accepts no more "
            "events."
        )

    def show() -> None:
        if facts := totals.list_facts(seconds):
            print_facts(facts)
        elif not has_ended:
            print_status(f"No new arrivals for '{name}'.{_say_what_fills(source)}")

    return Output(totals.to_json(seconds), show)


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
    bases = [base.name for base in source.base_sources]
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
    seen = set[str]()
    for arrival in arrivals:
        if arrival.undeclared:
            seen.update(loads(arrival.undeclared))
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


def _log_arrivals(store: "Warehouse", source: "Source", arrivals: "Sequence[Arrival]") -> None:
    from tidemark.store.commits.conditions import number_in

    for a in arrivals:
        if a.silent_since is not None:
            logs.log_event(
                "heartbeat",
                source=source.name,
                arrival=a.arrival,
                watermark=format_instant(a.after),
            )
            continue
        logs.log_event(
            "arrived",
            source=source.name,
            arrival=a.arrival,
            events=a.rows,
            dead_letters=a.dead_letters,
            bytes=a.bytes,
            watermark=format_instant(a.after),
            undeclared=loads(a.undeclared) if a.undeclared else None,
            unreadable_marks=a.unreadable_marks,
        )
    if not any(a.dead_letters for a in arrivals):
        return
    within = number_in("arrival", arrivals[0].arrival, arrivals[-1].arrival + 1)
    columns = ("arrival", "position", "read_from", "correlation_id", "reason")
    letters = store.load_rows(source.dead_letters_table, within, columns=columns)
    order = [("arrival", "ascending"), ("position", "ascending")]
    for letter in letters.sort_by(order).slice(0, _MAX_LOGGED_LETTERS).to_pylist():
        logs.log_warning("dead letter", source=source.name, **letter)
    if letters.num_rows > _MAX_LOGGED_LETTERS:
        logs.log_warning(
            "more dead letters", source=source.name, letters=letters.num_rows - _MAX_LOGGED_LETTERS
        )
