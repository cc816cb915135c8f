"""Refuse arrivals whose rows show that the format of the data has changed."""

from collections.abc import Callable, Mapping, Sequence

from tidemark.base.counts import format_count
from tidemark.base.errors import DataError
from tidemark.define.source import Source
from tidemark.store.event_log.arrival import Arrival
from tidemark_streaming.ingest.chunk_summary import ChunkSummary

MIN_UNUSABLE_ROWS = 100
"""The minimum number of consecutive rows that, if none of them can be decoded or none has an event
time, show that the format of the data has changed."""


class UnusableArrivalError(DataError):
    """An arrival of which no row can be decoded, or no row has an event time.

    Args:
        arrivals_before: the number of arrivals in the same commit that come before this arrival.
            These can be ingested.
    """

    def __init__(self, message: str, arrivals_before: int) -> None:
        super().__init__(message)
        self.arrivals_before = arrivals_before


def check_decodable(
    source: str, summaries: Mapping[int, ChunkSummary], timeline: Sequence[Arrival]
) -> None:
    """Refuse many consecutive rows of which none can be decoded.

    A row that can't be decoded becomes a dead letter, and the stream continues without it. If many
    rows arrive and none can be decoded, the cause is not a few damaged rows: the producers write
    another format or other types, or the source is declared incorrectly. Continuing would publish
    windows without any of these rows. A person must decide. The reasons of the dead letters don't
    matter: each format and each fault has its own. A stream that is followed has few rows in each
    arrival, so the rows of consecutive arrivals are counted together.

    Args:
        summaries: the summaries of a commit's arrivals, by index.
        timeline: the arrivals before the commit.

    Raises:
        UnusableArrivalError: the rows of an arrival, and many rows before them, can't be
            decoded.
    """
    undecodable = _count_unusable(timeline, _has_events, _count_dead_letters)
    for index, summary in sorted(summaries.items()):
        if summary.rows:
            undecodable = 0
            continue
        undecodable += summary.dead_letters
        if not summary.dead_letters or undecodable < MIN_UNUSABLE_ROWS:
            continue
        reason = (summary.reason or "").removesuffix(".")
        beginning = "One of several reasons is" if summary.has_several_reasons else "The reason is"
        raise UnusableArrivalError(
            f"None of the next {undecodable:,} rows of source '{source}' can be decoded. "
            f"{beginning}: {reason}. The producers have probably changed their format, or the "
            "source is declared with another one, so the source stops: the next arrival is not "
            "ingested, and remains pending. Correct the declaration, or the data. To write these "
            f"rows to the dead letters instead, run `tidemark ingest {source} "
            "--allow-schema-change`.",
            index,
        )


def check_event_times(
    source: Source,
    summaries: Mapping[int, ChunkSummary],
    timeline: Sequence[Arrival],
    *,
    must_have_event_times: bool,
) -> None:
    """Refuse arrivals of which no event has an event time, because the field is not in the data.

    An event without an event time goes to the late tables, and the stream continues. If no event of
    a source has one, the field probably has another name or spelling. Single events can lack an
    event time by intention, for example tombstones, and rows that announce a watermark. A source
    therefore stops only if its first events have undeclared fields instead, or after many events,
    or if its connector requires event times in each arrival.

    Args:
        summaries: the summaries of a commit's arrivals, by index.
        timeline: the arrivals before the commit.
        must_have_event_times: true if the connector can't know whether the field is in the data.

    Raises:
        UnusableArrivalError: no event of an arrival has an event time.
    """
    untimed = _count_unusable(timeline, _has_event_time, _count_events)
    has_events = any(arrival.rows for arrival in timeline)
    for index, summary in sorted(summaries.items()):
        if not summary.rows:
            continue
        if _has_event_time(summary):
            untimed = 0
            has_events = True
            continue
        untimed += summary.rows
        is_misspelled = not has_events and bool(summary.undeclared)
        has_events = True
        is_suspicious = (must_have_event_times or is_misspelled) and source.watermark.by_newest
        if not is_suspicious and untimed < MIN_UNUSABLE_ROWS:
            continue
        name = source.name
        events = format_count(summary.rows, "event")
        event_time = source.event_time
        origin = f"the field '{source.field_of(event_time)}'"
        if event_time in source.computed:
            origin = f"the expression {source.computed[event_time]!r} of '{event_time}'"
        undeclared = ""
        if summary.undeclared:
            undeclared = f"; the undeclared fields are {', '.join(summary.undeclared)}"
        raise UnusableArrivalError(
            f"None of the {events} of the next arrival of source '{name}' has an event time: "
            f"{origin} is missing, null, or not a possible time in all of them. Names of JSON, "
            f"Avro, and Protobuf fields are case-sensitive{undeclared}. The source stops: the "
            "arrival is not ingested, and remains pending. Correct the data, or map the right "
            f"field to the column '{event_time}' by `rename`. To write these events to the late "
            "tables instead, run "
            f"`tidemark ingest {name} --allow-schema-change`.",
            index,
        )


def _count_unusable(
    timeline: Sequence[Arrival],
    is_usable: Callable[[Arrival], bool],
    count: Callable[[Arrival], int],
) -> int:
    """Return the number of unusable rows since the last usable arrival, or since the last time that
    a person accepted unusable rows.

    Args:
        count: returns the number of unusable rows of an arrival that is not usable.
    """
    counts = list[int]()
    for arrival in reversed(timeline):
        if is_usable(arrival):
            break
        counts.append(count(arrival))
    total = 0
    for unusable in reversed(counts):
        total += unusable
        # These rows would not be in the timeline if a person had not accepted them.
        if total >= MIN_UNUSABLE_ROWS:
            total = 0
    return total


def _has_events(arrival: Arrival) -> bool:
    return arrival.rows > 0


def _count_dead_letters(arrival: Arrival) -> int:
    return arrival.dead_letters


def _has_event_time(summary: Arrival | ChunkSummary) -> bool:
    # A time that is too far in the future is an event time, too.
    return summary.min_event_time is not None or summary.future_timestamps > 0


def _count_events(arrival: Arrival) -> int:
    return arrival.rows
