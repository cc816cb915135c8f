"""`tidemark ingest`: bring arrivals into a source's log."""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from tidemark.base.errors import DefinitionError
from tidemark.base.instants import iso
from tidemark.base.settings import Settings
from tidemark_streaming import logs
from tidemark_streaming.cli.console import Json, emit, err, facts, out, say, seconds, step, warn
from tidemark_streaming.cli.context import SourceName, bounds, warehouse
from tidemark_streaming.cli.interrupt import until_terminated

if TYPE_CHECKING:
    from tidemark.define.source import Source
    from tidemark.store.arrival import Arrival
    from tidemark.store.warehouse import Warehouse
    from tidemark_streaming.direct import Direct
    from tidemark_streaming.feed import Feed

SPAN = "6 hours"

LETTERS = 20
"""Dead letters of a commit that are logged one by one."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("ingest")(command)


def command(
    source: SourceName,
    days: Annotated[
        int | None, typer.Option(min=1, help="Play so many days of the recording.")
    ] = None,
    begin: Annotated[
        str | None,
        typer.Option("--from", metavar="DATE", help="Play what arrived from here on (ISO 8601)."),
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", metavar="DATE", help="Play what arrived before this.")
    ] = None,
    speed: Annotated[
        float | None,
        typer.Option(help="Seconds of the recording for each second; as fast as possible if left."),
    ] = None,
    span: Annotated[
        str | None,
        typer.Option(help="How much recorded time makes one arrival.", show_default=SPAN),
    ] = None,
    bulk: Annotated[
        bool, typer.Option("--bulk", help="All arrivals in one commit: the same log, sooner.")
    ] = False,
    following: Annotated[
        bool, typer.Option("--follow", help="Go on with what comes, until Ctrl-C or SIGTERM.")
    ] = False,
    run: Annotated[
        list[str] | None,
        typer.Option(
            "--run",
            metavar="ASSET",
            help="With --follow: run this asset on each commit, in this process. Repeatable.",
        ),
    ] = None,
    accept_loss: Annotated[
        bool,
        typer.Option("--accept-loss", help="Go on after what Kafka or a Delta table has no more."),
    ] = False,
    json: Json = False,
) -> None:
    """Bring a source's arrivals into its log, exactly once.

    A source that has recorded data plays it into its landing folder, in the order in which its
    records *arrived*; then whatever lies in the folder and is not in the log is ingested. A source
    of Kafka takes what its topics have, and one of a Delta table its versions. Killed and
    started again, it goes on where the log ends.

    Example: `tidemark ingest flights --days 60 --bulk`
    """
    from tidemark_streaming import domains
    from tidemark_streaming.feed import Excerpt
    from tidemark_streaming.glance import Glance
    from tidemark_streaming.ingest import follow, furnish, ingest, replay

    bounds(begin, end)
    if days is not None and end is not None:
        raise DefinitionError("Give --days or --to, not both.")
    if bulk and speed is not None:
        raise DefinitionError("A bulk load takes everything at once: leave --speed or --bulk.")
    settings = Settings()
    if following:
        logs.begin(settings, "ingest")
    inlet = domains.inlet(settings, source)
    given = {"--days": days, "--from": begin, "--to": end, "--speed": speed, "--span": span}
    asked = [option for option, value in given.items() if value is not None]
    if following and asked:
        raise DefinitionError(f"--follow takes what comes: leave {', '.join(asked)}.")
    if run and not following:
        raise DefinitionError(
            "--run goes with --follow: to run an asset once, `tidemark run ASSET` after the ingest."
        )
    if inlet.play is None and asked:
        raise DefinitionError(
            f"Source '{source}' has no recorded data to play, so {', '.join(asked)} can't be "
            f"heeded: without, `tidemark ingest {source}` takes what lies in its landing folder."
        )
    place, store = settings.landing / source, warehouse(settings)
    batch = None if bulk else 1
    feed = _accepting(inlet.feed(place)) if accept_loss else inlet.feed(place)
    if following or inlet.play is None:
        furnish(store, inlet)
        then = _direct(settings, source, run) if run else None
        commits = (
            follow(store, feed, then=then, again=lambda: warehouse(settings), tell=warn)
            if following
            else ingest(store, feed, batch=batch)
        )
    else:
        part = Excerpt(start=begin, end=end, days=days, span=span or SPAN, speed=speed)
        if end is None and days is None:
            err().print("All that is recorded is played: --days or --to plays a part.")
        commits = replay(store, inlet, place, part, batch=batch)
    began, count, events, dead = time.monotonic(), 0, 0, 0
    first: Arrival | None = None
    last: Arrival | None = None
    if following:
        until_terminated()
    with step(f"ingest {source}") as work, suppress(*([KeyboardInterrupt] if following else [])):
        for commit in commits:
            # Only what is told in the end: who follows does so for days.
            first, last = first or commit.arrivals[0], commit.arrivals[-1]
            count += len(commit.arrivals)
            events += sum(a.rows for a in commit.arrivals)
            dead += sum(a.dead_letters for a in commit.arrivals)
            if logs.structured():
                _log(store, inlet.source, commit.arrivals)
            work.at(commit.done, commit.pending)
            letters = f", {dead:,} dead letters" if dead else ""
            work.note = f"{count:,} arrivals, {events:,} events{letters}"
            if following:
                work.tell(f"follow {source}: {work.note}")
    ended = last or next(reversed(Glance(settings).timeline(source)), None)
    if ended is not None and ended.ends:
        say(f"The stream '{source}' has ended with arrival {ended.arrival}: it takes nothing more.")
    elif not count and not json:
        say(f"Nothing new has arrived for '{source}'.")
    result: dict[str, object] = {
        "source": source,
        "arrivals": count,
        "events": events,
        "dead_letters": dead,
        "first_arrival": None if first is None else first.arrival,
        "last_arrival": None if last is None else last.arrival,
        "watermark": None if last is None else iso(last.after),
        "seconds": round(time.monotonic() - began, 1),
    }
    if json:
        emit(result)
    elif count:
        shown = {**result, "seconds": seconds(time.monotonic() - began)}
        out().print(facts("", shown))


def _log(store: "Warehouse", source: "Source", arrivals: "Sequence[Arrival]") -> None:
    """Log what has arrived, and which rows of it could not be decoded."""
    from tidemark.store.conditions import Within

    for a in arrivals:
        logs.tell(
            "arrived",
            source=source.name,
            arrival=a.arrival,
            events=a.rows,
            dead_letters=a.dead_letters,
            bytes=a.bytes,
            watermark=iso(a.after),
        )
    if not any(a.dead_letters for a in arrivals):
        return
    within = Within("arrival", ((arrivals[0].arrival, arrivals[-1].arrival + 1),), instants=False)
    columns = ("arrival", "position", "read_from", "correlation_id", "reason")
    letters = store.take(source.dead_letters_table, within, columns=columns)
    order = [("arrival", "ascending"), ("position", "ascending")]
    for letter in letters.sort_by(order).slice(0, LETTERS).to_pylist():
        logs.warn("dead letter", source=source.name, **letter)
    if letters.num_rows > LETTERS:
        logs.warn("more dead letters", source=source.name, letters=letters.num_rows - LETTERS)


def _direct(settings: Settings, source: str, assets: Sequence[str]) -> "Direct":
    """The runs of assets that follow each commit."""
    from tidemark_streaming import domains
    from tidemark_streaming.direct import Direct, check

    transforms = [domains.transform(settings, asset) for asset in dict.fromkeys(assets)]
    check(settings, source, transforms)
    return Direct(transforms, lambda: warehouse(settings))


def _accepting(feed: "Feed") -> "Feed":
    """The feed, as one that goes on after what is gone."""
    from tidemark_streaming.delta import DeltaFeed
    from tidemark_streaming.kafka import KafkaFeed

    if not isinstance(feed, KafkaFeed | DeltaFeed):
        raise DefinitionError(
            f"Source '{feed.source.name}' comes neither from Kafka nor from a Delta table: leave "
            "--accept-loss."
        )
    return replace(feed, accept_loss=True)
