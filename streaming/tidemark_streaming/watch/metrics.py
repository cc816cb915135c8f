"""The metrics: each with its name, its labels, what it says, and how it is told of a sight.

Names and units are those of Prometheus: counters end in `_total`, durations and instants are
seconds, sizes bytes. What is not known has no sample: a watermark before the first event, a lag
after the end of a stream.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from tidemark.base.instants import INFINITY
from tidemark_streaming.supervisor import RUNNING
from tidemark_streaming.watch.history import Histogram
from tidemark_streaming.watch.sight import AssetSight, Sight, SourceSight
from tidemark_streaming.watch.ways_out import OutletSight

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"

Sample = tuple[tuple[str, ...], float | int | Histogram | None]
"""Values of the labels, and what is measured; None has no sample."""


@dataclass(frozen=True)
class Told:
    """A metric.

    Args:
        name: as Prometheus has it, a counter's with `_total`.
        meaning: one sentence.
    """

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str
    samples: Callable[[Sight], Iterable[Sample]]


def _source(
    name: str,
    kind: str,
    meaning: str,
    value: Callable[[SourceSight], float | None],
) -> Told:
    def samples(sight: Sight) -> Iterator[Sample]:
        return (((source.name,), value(source)) for source in sight.sources)

    return Told(f"tidemark_source_{name}", kind, ("source",), meaning, samples)


def _asset(
    name: str,
    kind: str,
    meaning: str,
    value: Callable[[AssetSight], float | Histogram | None],
) -> Told:
    def samples(sight: Sight) -> Iterator[Sample]:
        return (((asset.name,), value(asset)) for asset in sight.assets)

    return Told(f"tidemark_asset_{name}", kind, ("asset",), meaning, samples)


def _of_assets(
    name: str,
    kind: str,
    labels: tuple[str, ...],
    meaning: str,
    values: Callable[[AssetSight], Mapping[tuple[str, ...], float | Histogram]],
) -> Told:
    def samples(sight: Sight) -> Iterator[Sample]:
        for asset in sight.assets:
            yield from (((asset.name, *more), value) for more, value in values(asset).items())

    return Told(f"tidemark_asset_{name}", kind, ("asset", *labels), meaning, samples)


def _tables(name: str, meaning: str, attribute: str) -> Told:
    def samples(sight: Sight) -> Iterator[Sample]:
        return (((table,), getattr(size, attribute)) for table, size in sight.tables.items())

    return Told(f"tidemark_table_{name}", GAUGE, ("table",), meaning, samples)


def _waiting(sight: Sight) -> Iterator[Sample]:
    for source in sight.sources:
        waiting = {} if source.backlog is None else source.backlog.waiting
        for (topic, partition), count in sorted(waiting.items()):
            yield (source.name, topic, str(partition)), count


def _up(sight: Sight) -> Iterator[Sample]:
    for source in sight.sources:
        if source.backlog is not None:
            yield (source.name,), int(not source.backlog.silent)


def _refused(sight: Sight) -> Iterator[Sample]:
    for source in sight.sources:
        if source.backlog is not None:
            yield (source.name,), int(source.backlog.refused)


def _carried(sight: Sight) -> Iterator[Sample]:
    for lane in sight.lanes:
        for (topic, partition), count in sorted(lane.waiting.items()):
            yield (lane.name, topic, str(partition)), count


def _outlets(
    value: Callable[[OutletSight, Sight], float | None],
) -> Callable[[Sight], Iterable[Sample]]:
    return lambda s: (((o.asset, o.topic), value(o, s)) for o in s.outlets)


def _seconds(instant: int | None) -> float | None:
    return None if instant is None or instant >= INFINITY else instant / 1e6


METRICS: tuple[Told, ...] = (
    _source("events_total", COUNTER, "Events that have arrived.", lambda s: s.arrivals.events),
    _source("arrivals_total", COUNTER, "Arrivals in the timeline.", lambda s: s.arrivals.count),
    _source("bytes_total", COUNTER, "Bytes that were read.", lambda s: s.arrivals.bytes),
    _source(
        "dead_letters",
        GAUGE,
        "What came and could not be decoded: rows of the source's table of dead letters, "
        "those too that have come back.",
        # A series that begins with the first of them would not be seen to have risen.
        lambda s: s.dead_letters or 0,
    ),
    _source(
        "undeclared_fields",
        GAUGE,
        "Fields of JSON from Kafka that are no columns of the source, and were passed over, as far "
        "as was looked.",
        lambda s: s.undeclared,
    ),
    _source(
        "last_arrival_timestamp_seconds",
        GAUGE,
        "Processing time of the newest arrival.",
        lambda s: _seconds(s.arrivals.arrived_at[-1]) if s.arrivals.count else None,
    ),
    _source(
        "newest_event_timestamp_seconds",
        GAUGE,
        "Event time of the newest event.",
        lambda s: _seconds(s.arrivals.newest_event),
    ),
    _source(
        "watermark_timestamp_seconds",
        GAUGE,
        "The watermark; none before the first event, and once the stream has ended.",
        lambda s: _seconds(s.arrivals.watermark),
    ),
    _source(
        "watermark_lag_seconds",
        GAUGE,
        "How far the watermark is behind the source's clock: the wall's, or, of a recording that "
        "is played, its newest event.",
        lambda s: s.lag,
    ),
    _source(
        "watermark_ahead_seconds",
        GAUGE,
        "How far the watermark is ahead of the processing clock of the newest arrival; 0 if it is "
        "not.",
        lambda s: s.ahead,
    ),
    Told(
        "tidemark_kafka_up",
        GAUGE,
        ("source",),
        "1 where the brokers of a Kafka source answer, else 0.",
        _up,
    ),
    Told(
        "tidemark_kafka_refused",
        GAUGE,
        ("source",),
        "1 where they answer and a source can't be read all the same, else 0: no such topic, a "
        "missing right, a wrong password, a certificate; the page says which.",
        _refused,
    ),
    Told(
        "tidemark_kafka_consumer_lag",
        GAUGE,
        ("source", "topic", "partition"),
        "Offsets that are in Kafka and not in the log yet; none while that can't be asked.",
        _waiting,
    ),
    Told(
        "tidemark_ingest_up",
        GAUGE,
        ("source",),
        "1 while an ingest of the source is at work on this machine; 0 where `tidemark ingest "
        "--follow` has ended and nobody ended it. Else none.",
        lambda s: (
            ((n,), None if i.up is None else int(i.up)) for n, i in s.services.ingests.items()
        ),
    ),
    Told(
        "tidemark_source_stands",
        GAUGE,
        ("source",),
        "1 where the newest ingest of the source was refused, until a person mends what it says: "
        "an incompatible change, records that are gone; else 0.",
        lambda s: (((n,), int(i.refused is not None)) for n, i in s.services.ingests.items()),
    ),
    Told(
        "tidemark_outbox_up",
        GAUGE,
        ("asset", "topic"),
        "Of each asset that publishes to a topic, 1 where it is known how far that is, else 0.",
        _outlets(lambda o, _: int(o.trouble is None)),
    ),
    Told(
        "tidemark_outbox_versions_behind",
        GAUGE,
        ("asset", "topic"),
        "Versions of the published table that its topic has not; none while that is not known.",
        _outlets(lambda o, _: o.behind),
    ),
    Told(
        "tidemark_outbox_lag_seconds",
        GAUGE,
        ("asset", "topic"),
        "How long the first of these has waited; 0 where none does.",
        _outlets(lambda o, s: o.waits(s.at)),
    ),
    Told(
        "tidemark_emit_up",
        GAUGE,
        ("asset",),
        "Of each `tidemark emit --follow`, 1 while it brings out, 0 where it waits, or has ended "
        "and nobody ended it. Else none.",
        lambda s: (((n,), int(e.state == RUNNING)) for n, e in s.services.emits.items()),
    ),
    Told(
        "tidemark_lane_up",
        GAUGE,
        ("lane",),
        "Of each lane that should run, 1 while its Spark does and nothing is waited for, else 0.",
        lambda s: (
            ((n,), None if lane.state is None else int(lane.state == RUNNING))
            for n, lane in s.services.lanes.items()
        ),
    ),
    Told(
        "tidemark_lane_consumer_lag",
        GAUGE,
        ("lane", "topic", "partition"),
        "Offsets that are in Kafka and not in the newest checkpoint of a lane, which is some time "
        "old; none before the first, and while the brokers don't answer.",
        _carried,
    ),
    _of_assets(
        "events_total",
        COUNTER,
        ("mode", "verdict"),
        "Events that runs have counted, once for each of their windows, by the run's mode and the "
        "event's verdict.",
        lambda a: {(m, v): n for (m, v), n in a.runs.counted.items()},
    ),
    _of_assets(
        "runs_total",
        COUNTER,
        ("mode",),
        "Runs that have ended.",
        lambda a: {(mode,): count for mode, count in a.runs.ended.items()},
    ),
    _of_assets(
        "run_seconds",
        HISTOGRAM,
        ("mode",),
        "How long runs took.",
        lambda a: {(mode,): seconds for mode, seconds in a.runs.seconds.items()},
    ),
    _of_assets(
        "run_step_seconds",
        HISTOGRAM,
        ("mode", "step"),
        "How long the steps of runs took.",
        lambda a: {(m, step): seconds for (m, step), seconds in a.runs.steps.items()},
    ),
    _asset(
        "last_run_timestamp_seconds",
        GAUGE,
        "When the newest run ended.",
        lambda a: _seconds(a.runs.ended_at),
    ),
    _asset(
        "arrival_to_published_seconds",
        HISTOGRAM,
        "From an arrival until the run had ended that took it in. Not of recordings.",
        lambda a: None if a.source.played else a.runs.from_arrival,
    ),
    _asset(
        "event_to_published_seconds",
        HISTOGRAM,
        "The same, from the newest event of the arrival. Not of recordings.",
        lambda a: None if a.source.played else a.runs.from_event,
    ),
    _asset(
        "arrivals_behind",
        GAUGE,
        "Arrivals of its source that are not in the asset yet.",
        lambda a: a.behind,
    ),
    _asset("rows_waiting", GAUGE, "The events of these.", lambda a: a.rows_waiting),
    _of_assets(
        "limited_runs_total",
        COUNTER,
        ("limit",),
        "Runs that left arrivals to the next one, as they were limited: to so many arrivals, rows "
        "or bytes a run.",
        lambda a: {(limit,): count for limit, count in sorted(a.runs.limited.items())},
    ),
    _asset(
        "watermark_timestamp_seconds",
        GAUGE,
        "The watermark through which the asset is complete.",
        lambda a: _seconds(a.runs.watermark),
    ),
    _asset(
        "watermark_lag_seconds",
        GAUGE,
        "How far that is behind the source's clock.",
        lambda a: a.lag,
    ),
    _asset("published_rows", GAUGE, "Rows of the published table.", lambda a: a.published),
    _asset("final_rows", GAUGE, "Those that nothing will change any more.", lambda a: a.final),
    _asset(
        "open_rows",
        GAUGE,
        "Rows under way: of windows whose end the watermark has not passed. Of a roll-up, those "
        "published that are not final.",
        lambda a: a.open,
    ),
    _of_assets(
        "withheld_rows",
        GAUGE,
        ("status",),
        "Rows in quarantine: held, or discarded by a person.",
        lambda a: {("held",): a.held, ("discarded",): a.discarded},
    ),
    _asset(
        "withheld_total",
        COUNTER,
        "Rows that runs have withheld, each time that they did.",
        lambda a: a.runs.withheld,
    ),
    Told(
        "tidemark_stream_running",
        GAUGE,
        ("asset",),
        "Of each stream that should run, 1 while it does, else 0: of a detached one, where the "
        "supervisor saw it run in the last two minutes; of one in a terminal, or of an asset that "
        "`ingest --follow --run` runs, while that command works.",
        lambda s: (((n,), int(w.running)) for n, w in s.services.streams.items()),
    ),
    Told(
        "tidemark_stream_failures",
        GAUGE,
        ("asset",),
        "How often in a row it ended or could not be started.",
        lambda s: (((n,), w.failures) for n, w in s.services.streams.items()),
    ),
    Told(
        "tidemark_stream_restarts_total",
        COUNTER,
        ("asset",),
        "How often it was started again since it was asked for, also at once and without a "
        "failure: as its worker or its engine was killed, or its definition has changed.",
        lambda s: (((n,), w.restarts) for n, w in s.services.streams.items()),
    ),
    Told(
        "tidemark_process_up",
        GAUGE,
        ("process",),
        "1 where a process of the home runs: engine, webserver, daemon, and kafka where a broker "
        "was started. Of the engine: somebody listens at its address.",
        lambda s: (((name,), int(runs)) for name, runs in s.services.up.items()),
    ),
    _tables("bytes", "Bytes of a table's files as of its newest commit.", "size"),
    _tables("files", "Files of a table.", "files"),
    _tables("rows", "Rows of a table.", "rows"),
    _tables("version", "The number of a table's newest commit.", "version"),
    Told(
        "tidemark_disk_free_bytes",
        GAUGE,
        (),
        "What is free on the disk of the warehouse, or of the home where that is elsewhere.",
        lambda s: [((), s.services.disk_free)],
    ),
    Told(
        "tidemark_disk_size_bytes",
        GAUGE,
        (),
        "The size of that disk.",
        lambda s: [((), s.services.disk_size)],
    ),
    Told(
        "tidemark_watch_troubles",
        GAUGE,
        (),
        "Sources and assets that could not be read; the page says why.",
        lambda s: [((), len(s.troubles))],
    ),
    Told(
        "tidemark_watch_look_seconds",
        GAUGE,
        (),
        "What the newest look at the tables took.",
        lambda s: [((), s.seconds)],
    ),
)


class _Exposed(Collector):
    def __init__(self, sight: Sight) -> None:
        self._sight = sight

    def collect(self) -> Iterator[Metric]:
        for told in METRICS:
            yield _family(told, self._sight)


def exposition(sight: Sight) -> bytes:
    """The metrics in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(_Exposed(sight))
    return generate_latest(registry)


def _family(told: Told, sight: Sight) -> Metric:
    samples = [(labels, value) for labels, value in told.samples(sight) if value is not None]
    if told.kind == HISTOGRAM:
        family = HistogramMetricFamily(told.name, told.meaning, labels=told.labels)
        for labels, value in samples:
            assert isinstance(value, Histogram)
            family.add_metric(labels, value.buckets(), value.sum)
        return family
    kind = CounterMetricFamily if told.kind == COUNTER else GaugeMetricFamily
    family = kind(told.name, told.meaning, labels=told.labels)
    for labels, value in samples:
        assert not isinstance(value, Histogram)
        family.add_metric(labels, value)
    return family
