"""The metrics: the name, labels, meaning and samples of each.

Names and units follow Prometheus: counters end in `_total`, durations and instants are in seconds,
sizes in bytes. An unknown value, such as a watermark before the first event or a lag after the end
of a source, has no sample.
"""

from collections import Counter
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
from tidemark_streaming.base.extra import find_extras
from tidemark_streaming.findings.polls import SinkOverview
from tidemark_streaming.monitor.overview import AssetOverview, Overview, SourceOverview
from tidemark_streaming.snapshot.history import Histogram
from tidemark_streaming.streams.stream_states import StreamState
from tidemark_streaming.streams.supervisor import RUNNING

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
_Sample = tuple[tuple[str, ...], float | int | Histogram | None]
"""The values of the labels, and the measured value. A sample with None is not exposed."""


@dataclass(frozen=True)
class MetricDefinition:
    """A metric for Prometheus, and how its samples are taken from an overview.

    Args:
        name: the name in Prometheus; the name of a counter ends in `_total`.
        is_histogram: true if its values are histograms.
    """

    name: str
    labels: tuple[str, ...]
    meaning: str
    samples: Callable[[Overview], Iterable[_Sample]]
    is_histogram: bool = False

    @property
    def kind(self) -> str:
        """The type of the metric: `histogram`, `counter` or `gauge`."""
        if self.is_histogram:
            return "histogram"
        return "counter" if self.name.endswith("_total") else "gauge"


def _source_metric(
    name: str,
    meaning: str,
    value: Callable[[SourceOverview], float | None],
) -> MetricDefinition:
    def sample_sources(overview: Overview) -> Iterator[_Sample]:
        for source in overview.sources:
            yield (source.name,), value(source)

    return MetricDefinition(f"tidemark_source_{name}", ("source",), meaning, sample_sources)


def _asset_metric(
    name: str,
    meaning: str,
    value: Callable[[AssetOverview], float | Histogram | None],
    *,
    is_histogram: bool = False,
) -> MetricDefinition:
    def sample_assets(overview: Overview) -> Iterator[_Sample]:
        for asset in overview.assets:
            yield (asset.name,), value(asset)

    return MetricDefinition(
        f"tidemark_asset_{name}", ("asset",), meaning, sample_assets, is_histogram
    )


def _labeled_metric(
    name: str,
    labels: tuple[str, ...],
    meaning: str,
    values: Callable[[AssetOverview], Mapping[tuple[str, ...], float | Histogram]],
    *,
    is_histogram: bool = False,
) -> MetricDefinition:
    def sample_labels(overview: Overview) -> Iterator[_Sample]:
        for asset in overview.assets:
            for label_values, value in values(asset).items():
                yield (asset.name, *label_values), value

    return MetricDefinition(
        f"tidemark_asset_{name}", ("asset", *labels), meaning, sample_labels, is_histogram
    )


def _table_metric(name: str, meaning: str, attribute: str) -> MetricDefinition:
    def sample_tables(overview: Overview) -> Iterator[_Sample]:
        for table, size in overview.tables.items():
            yield (table,), getattr(size, attribute)

    return MetricDefinition(f"tidemark_table_{name}", ("table",), meaning, sample_tables)


def _kafka_lag(overview: Overview) -> Iterator[_Sample]:
    for source in overview.sources:
        if source.backlog is None:
            continue
        for (topic, partition), count in sorted(source.backlog.waiting.items()):
            yield (source.name, topic, str(partition)), count


def _lag_of_bases(overview: Overview) -> Iterator[_Sample]:
    for source in overview.sources:
        for base, count in source.snapshot.lag_arrivals.items():
            yield (source.name, base), count


def _unjoined_rows(overview: Overview) -> Iterator[_Sample]:
    for source in overview.sources:
        if source.snapshot.lag_arrivals:
            yield (source.name,), source.snapshot.unjoined


def _kafka_up(overview: Overview) -> Iterator[_Sample]:
    for source in overview.sources:
        if source.backlog is not None:
            yield (source.name,), int(not source.backlog.is_silent)


def _count_findings(overview: Overview) -> Iterator[_Sample]:
    counts = Counter((f.kind.value, f.level, f.node) for f in overview.findings)
    yield from counts.items()


def _list_extra_metrics(name: str) -> Iterator[MetricDefinition]:
    """Yield the metrics of an extra's pipelines."""

    def sample_states(overview: Overview) -> Iterator[_Sample]:
        for pipeline_state in overview.pipelines[name]:
            if pipeline_state.state is not None:
                is_running = pipeline_state.state == RUNNING
                yield (pipeline_state.pipeline.name,), int(is_running)

    def sample_lags(overview: Overview) -> Iterator[_Sample]:
        for pipeline_state in overview.pipelines[name]:
            for (topic, partition), count in sorted((pipeline_state.waiting or {}).items()):
                yield (pipeline_state.pipeline.name, topic, str(partition)), count

    yield MetricDefinition(
        f"tidemark_{name}_up",
        (name,),
        f"1 while a {name} runs, 0 if it should run and does not, or waits.",
        sample_states,
    )
    yield MetricDefinition(
        f"tidemark_{name}_consumer_lag",
        (name, "topic", "partition"),
        f"Offsets in Kafka that are not in the newest checkpoint of a {name}, which may be some "
        "time old; absent before the first one, and while the brokers do not answer.",
        sample_lags,
    )


def _sample_sinks(
    value: Callable[[SinkOverview, Overview], float | None],
) -> Callable[[Overview], Iterable[_Sample]]:
    def sample_sinks(overview: Overview) -> Iterator[_Sample]:
        for sink in overview.sinks:
            yield (sink.asset, sink.topic), value(sink, overview)

    return sample_sinks


def _sample_streams(
    value: Callable[[StreamState], float | None],
) -> Callable[[Overview], Iterable[_Sample]]:
    def sample_streams(overview: Overview) -> Iterator[_Sample]:
        for name, stream in overview.services.streams.items():
            yield (name,), value(stream)

    return sample_streams


def _ingests_up(overview: Overview) -> Iterator[_Sample]:
    for name, ingest in overview.services.ingests.items():
        if ingest.is_up is not None:
            yield (name,), int(ingest.is_up)


def _to_seconds(instant: int | None) -> float | None:
    if instant is None or instant >= INFINITY:
        return None
    return instant / 1e6


METRICS: tuple[MetricDefinition, ...] = (
    MetricDefinition(
        "tidemark_findings",
        ("kind", "level", "node"),
        "Findings that need a person's attention, such as a quarantine or a stopped ingest; the "
        "live page shows the cause and the remedy of each.",
        _count_findings,
    ),
    _source_metric("events_total", "Events that have arrived.", lambda s: s.snapshot.events),
    _source_metric("arrivals_total", "Arrivals in the timeline.", lambda s: s.snapshot.arrivals),
    _source_metric("bytes_total", "Bytes that were read.", lambda s: s.bytes),
    _source_metric(
        "dead_letters",
        "Dead letters of the source, including those that were replayed.",
        # Expose 0, too: Prometheus does not count the first value of a new series as an increase.
        lambda s: s.dead_letters,
    ),
    _source_metric(
        "undeclared_fields",
        "Fields of JSON records, and columns of Parquet files, that the source does not declare "
        "and that were ignored (JSON is sampled).",
        lambda s: len(s.snapshot.undeclared),
    ),
    _source_metric(
        "last_arrival_timestamp_seconds",
        "Processing time of the newest arrival that is not a heartbeat.",
        lambda s: _to_seconds(s.snapshot.arrived_at),
    ),
    _source_metric(
        "newest_event_timestamp_seconds",
        "Event time of the newest event.",
        lambda s: _to_seconds(s.snapshot.newest_event),
    ),
    _source_metric(
        "watermark_timestamp_seconds",
        "The watermark; absent before the first event, and after the end of the source.",
        lambda s: _to_seconds(s.snapshot.watermark),
    ),
    _source_metric(
        "watermark_lag_seconds",
        "Lag of the watermark behind the source's clock: the wall clock, or the newest event "
        "of a recording.",
        lambda s: s.watermark_lag,
    ),
    _source_metric(
        "watermark_ahead_seconds",
        "How far the watermark is ahead of the processing clock of the newest arrival; 0 if it is "
        "not.",
        lambda s: s.seconds_ahead,
    ),
    MetricDefinition(
        "tidemark_source_lag_arrivals",
        ("source", "base"),
        "Arrivals of a base that a derived source, such as a join, has not taken yet. With the "
        "asset of a chain as `base`: its runs, such as corrections, that changed windows that the "
        "chain has taken, and that the chain has not taken yet.",
        _lag_of_bases,
    ),
    MetricDefinition(
        "tidemark_source_unjoined_rows",
        ("source",),
        "Rows of the bases that take no part in a derived source; absent for other sources.",
        _unjoined_rows,
    ),
    MetricDefinition(
        "tidemark_kafka_up",
        ("source",),
        "1 if the brokers of a Kafka source answer, else 0.",
        _kafka_up,
    ),
    MetricDefinition(
        "tidemark_kafka_consumer_lag",
        ("source", "topic", "partition"),
        "Offsets in Kafka that are not in the event log yet; absent while the brokers do not "
        "answer.",
        _kafka_lag,
    ),
    MetricDefinition(
        "tidemark_ingest_up",
        ("source",),
        "1 while an ingest of the source runs; 0 if `tidemark ingest --follow` exited without "
        "being stopped; absent otherwise.",
        _ingests_up,
    ),
    MetricDefinition(
        "tidemark_sink_up",
        ("asset", "topic"),
        "1 if the publishing progress of an asset's topic is known, else 0.",
        _sample_sinks(lambda o, _: int(o.trouble is None)),
    ),
    MetricDefinition(
        "tidemark_sink_lag_versions",
        ("asset", "topic"),
        "Versions of the published table that its topic lacks; absent while that is unknown.",
        _sample_sinks(lambda o, _: o.behind),
    ),
    MetricDefinition(
        "tidemark_sink_lag_seconds",
        ("asset", "topic"),
        "How long the first of these versions has waited; 0 if the topic lacks none.",
        _sample_sinks(lambda o, s: o.seconds_behind(s.at)),
    ),
    MetricDefinition(
        "tidemark_sink_process_up",
        ("asset",),
        "1 while `tidemark sink --follow` publishes; 0 while it waits, or if it exited without "
        "being stopped; absent otherwise.",
        lambda s: (((n,), int(e.state == RUNNING)) for n, e in s.services.sinks.items()),
    ),
    *(metric for extra in find_extras() for metric in _list_extra_metrics(extra.name)),
    _labeled_metric(
        "events_total",
        ("mode", "verdict"),
        "Events that runs have classified, by the run's mode and the event's lateness in the first "
        "of its windows to end. An event counts once, even if windows overlap.",
        lambda a: {(m, v): n for (m, v), n in a.runs.counted.items()},
    ),
    _labeled_metric(
        "runs_total",
        ("mode",),
        "Runs that have ended.",
        lambda a: {(mode,): count for mode, count in a.runs.ended.items()},
    ),
    _labeled_metric(
        "run_seconds",
        ("mode",),
        "Duration of runs.",
        lambda a: {(mode,): seconds for mode, seconds in a.runs.seconds.items()},
        is_histogram=True,
    ),
    _labeled_metric(
        "run_step_seconds",
        ("mode", "step"),
        "Duration of the steps of runs.",
        lambda a: {(m, step): seconds for (m, step), seconds in a.runs.steps.items()},
        is_histogram=True,
    ),
    _asset_metric(
        "last_run_timestamp_seconds",
        "End of the newest run.",
        lambda a: _to_seconds(a.runs.ended_at),
    ),
    _asset_metric(
        "arrival_to_published_seconds",
        "Time from an arrival with events to the end of the run that processed it. Absent for "
        "recordings.",
        lambda a: None if a.source.played else a.runs.from_arrival,
        is_histogram=True,
    ),
    _asset_metric(
        "event_to_published_seconds",
        "Time from the newest event of an arrival to the end of the run that processed it. "
        "Absent for recordings.",
        lambda a: None if a.source.played else a.runs.from_event,
        is_histogram=True,
    ),
    _asset_metric(
        "lag_arrivals",
        "Arrivals of its source that the asset has not processed yet. Arrivals without events "
        "count only if they change a window.",
        lambda a: a.snapshot.behind,
    ),
    _asset_metric("lag_rows", "Events of these arrivals.", lambda a: a.snapshot.rows_waiting),
    _labeled_metric(
        "rate_limited_runs_total",
        ("limit",),
        "Runs that left arrivals for the next run because of a limit of arrivals, rows or "
        "bytes per run.",
        lambda a: {(limit,): count for limit, count in sorted(a.runs.limited.items())},
    ),
    _asset_metric(
        "watermark_timestamp_seconds",
        "The watermark through which the asset has processed its source.",
        lambda a: _to_seconds(a.snapshot.watermark),
    ),
    _asset_metric(
        "watermark_lag_seconds",
        "Lag of that watermark behind the source's clock.",
        lambda a: a.watermark_lag,
    ),
    _asset_metric("published_rows", "Rows of the published table.", lambda a: a.snapshot.windows),
    _asset_metric(
        "final_rows",
        "Published rows that no late event can change any more.",
        lambda a: a.snapshot.final,
    ),
    _asset_metric(
        "open_rows",
        "Rows of open windows, whose end the watermark has not passed; for a roll-up, "
        "those that it has published early.",
        lambda a: a.snapshot.open,
    ),
    _labeled_metric(
        "quarantined_rows",
        ("status",),
        "Rows in quarantine: quarantined, or discarded manually.",
        lambda a: {("quarantined",): a.quarantined_count, ("discarded",): a.discarded},
    ),
    _asset_metric(
        "quarantined_rows_total",
        "Rows that runs have put into quarantine, counted each time.",
        lambda a: a.runs.quarantined,
    ),
    MetricDefinition(
        "tidemark_stream_up",
        ("asset",),
        "1 if a stream that should run does, else 0. A detached stream runs if the supervisor "
        "saw it in the last two minutes; any other stream, and an asset of `ingest --follow "
        "--run`, while its command runs.",
        _sample_streams(lambda stream: int(stream.is_running)),
    ),
    MetricDefinition(
        "tidemark_stream_consecutive_failures",
        ("asset",),
        "Consecutive failures: how often the stream has ended or could not be started.",
        _sample_streams(lambda stream: stream.failures),
    ),
    MetricDefinition(
        "tidemark_stream_restarts_total",
        ("asset",),
        "Restarts since the stream was requested, including those without a failure: its "
        "worker or engine was killed, or its definition has changed.",
        _sample_streams(lambda stream: stream.restarts),
    ),
    MetricDefinition(
        "tidemark_process_up",
        ("process",),
        "1 if a process of the home runs: engine (a server listens at its address), webserver, "
        "daemon, and kafka if a broker was started.",
        lambda s: (((name,), int(runs)) for name, runs in s.services.up.items()),
    ),
    _table_metric("bytes", "Bytes of a table's files as of its newest commit.", "size"),
    _table_metric("files", "Files of a table.", "files"),
    _table_metric("rows", "Rows of a table.", "rows"),
    _table_metric("version", "The number of a table's newest commit.", "version"),
    MetricDefinition(
        "tidemark_disk_free_bytes",
        (),
        "Free space on the disk of the warehouse, or of the home if the warehouse is elsewhere.",
        lambda s: [((), s.services.disk_free)],
    ),
    MetricDefinition(
        "tidemark_disk_size_bytes",
        (),
        "The size of that disk.",
        lambda s: [((), s.services.disk_size)],
    ),
    MetricDefinition(
        "tidemark_exporter_collect_seconds",
        (),
        "Duration of the newest refresh of the tables.",
        lambda s: [((), s.seconds)],
    ),
)


class _Metrics(Collector):
    def __init__(self, overview: Overview) -> None:
        self._overview = overview

    def collect(self) -> Iterator[Metric]:
        for metric in METRICS:
            yield _create_family(metric, self._overview)


def render_metrics(overview: Overview) -> bytes:
    """Return the metrics in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(_Metrics(overview))
    return generate_latest(registry)


def _create_family(metric: MetricDefinition, overview: Overview) -> Metric:
    samples = [(labels, value) for labels, value in metric.samples(overview) if value is not None]
    if metric.is_histogram:
        family = HistogramMetricFamily(metric.name, metric.meaning, labels=metric.labels)
        for labels, value in samples:
            assert isinstance(value, Histogram)
            family.add_metric(labels, value.cumulated_buckets(), value.sum)
        return family
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(metric.name, metric.meaning, labels=metric.labels)
    for labels, value in samples:
        assert not isinstance(value, Histogram)
        family.add_metric(labels, value)
    return family
