"""The data of the live page as JSON. Instants are in milliseconds."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tidemark.base.instants import BEGINNING, INFINITY, format_duration
from tidemark.store import ledger
from tidemark_streaming.base.extra import PipelineOverview
from tidemark_streaming.findings.polls import SinkOverview
from tidemark_streaming.findings.services import IngestState, Services
from tidemark_streaming.monitor.overview import AssetOverview, Overview, SourceOverview
from tidemark_streaming.snapshot.history import Run, lag_seconds
from tidemark_streaming.streams.stream_states import StreamState

SPANS = (300, 900, 3600, 21_600, 86_400, 604_800, 2_592_000)
"""The time ranges of the charts that a request may choose, in seconds."""

POINTS = 60
"""The number of points of a chart."""

_HELD = 20
"""Seconds for which a chart continues the last known value."""


@dataclass(frozen=True)
class Axis:
    """The time axis of the charts: `POINTS` spans of `step` seconds.

    Args:
        end: the end of the last span, in seconds since 1970.
    """

    end: int
    step: int

    @classmethod
    def for_range(cls, overview: Overview, span: int | None) -> "Axis":
        """Return the axis of a time range.

        Args:
            span: one of `SPANS`. None means the shortest one that is at least twice as long as the
                time since the newest run ended, or the longest one if none is long enough.
        """
        ended = [a.runs.ended_at for a in overview.assets if a.runs.ended_at is not None]
        age = (overview.at - max(ended)) / 1e6 if ended else 0
        chosen = span or next((s for s in SPANS if age <= s / 2), SPANS[-1])
        step = chosen // POINTS
        seconds = overview.at // 1_000_000
        return cls((seconds // step + 1) * step, step)

    def group_by_point(self, runs: Sequence[Run]) -> list[list[Run]]:
        """Return the runs that ended in each span, the newest run first.

        Args:
            runs: in the order of their ends.
        """
        runs_by_point: list[list[Run]] = [[] for _ in range(POINTS)]
        for run in reversed(runs):
            back = self._points_before_end(run.ended_at)
            if back >= POINTS:
                break
            if back >= 0:
                runs_by_point[POINTS - 1 - back].append(run)
        return runs_by_point

    def highest_by_point(self, measured: Sequence[tuple[int, int]]) -> list[int | None]:
        """Return the highest value of a quantity, such as the lag in Kafka, in each span.

        A span without a value has the value of the span before it, for at most `_HELD` seconds;
        after that, None.

        Args:
            measured: pairs of an instant, in microseconds, and the value then, in order.
        """
        by_point: list[int | None] = [None] * POINTS
        first = bisect_left(measured, ((self.end - POINTS * self.step) * 1_000_000,))
        for instant, level in measured[first:]:
            point = POINTS - 1 - self._points_before_end(instant)
            if point < POINTS:
                by_point[point] = max(by_point[point] or 0, level)
        last = None
        left = 0
        for point, level in enumerate(by_point):
            if level is not None:
                last = level
                left = _HELD // self.step
            elif left:
                by_point[point] = last
                left = left - 1
        return by_point

    def _points_before_end(self, instant: int) -> int:
        """Return how many points an instant lies before the last point; negative after `end`."""
        return (self.end * 1_000_000 - instant - 1) // (self.step * 1_000_000)


def create_page_data(
    overview: Overview, database: str, dagster: int, span: int | None = None
) -> dict[str, Any]:
    """Return the data of the page.

    Args:
        dagster: the port of Dagster's web interface.
        span: one of `SPANS`. The default depends on the end of the newest run.
    """
    axis = Axis.for_range(overview, span)
    services = overview.services
    return {
        "at": overview.at // 1000,
        "database": database,
        "dagster": dagster,
        "end": axis.end * 1000,
        "step": axis.step * 1000,
        "span": axis.step * POINTS,
        "processes": dict(services.up),
        "disk": {"free": services.disk_free, "size": services.disk_size},
        "findings": [finding.to_json() for finding in overview.findings],
        "troubles": dict(overview.troubles),
        "sources": [_describe_source(source, services, axis) for source in overview.sources],
        "streams": [_describe_stream(asset, overview, axis) for asset in overview.assets],
        "sinks": [
            _describe_sink(sink, overview.at, services.sinks.get(sink.asset))
            for sink in overview.sinks
        ],
        "pipelines": [
            _describe_pipeline(extra, pipeline)
            for extra, pipelines in overview.pipelines.items()
            for pipeline in pipelines
        ],
    }


def _describe_sink(
    sink: SinkOverview, time_micros: int, command: StreamState | None
) -> dict[str, Any]:
    waits = sink.seconds_behind(time_micros)
    return {
        "asset": sink.asset,
        "topic": sink.topic,
        # The state of `sink --follow`; None if a stream publishes to the sink.
        "state": command and command.state,
        "error": command and command.error,
        "behind": sink.behind,
        # Whole seconds, so that most requests get the same data.
        "waits": None if waits is None else float(int(waits)),
        "trouble": sink.trouble,
    }


def _describe_pipeline(extra: str, overview: PipelineOverview) -> dict[str, Any]:
    pipeline = overview.pipeline
    waiting = overview.waiting
    return {
        "extra": extra,
        "name": pipeline.name,
        "come": list(pipeline.inputs),
        "go": list(pipeline.outputs),
        "state": overview.state,
        "error": overview.error,
        "waiting": None if waiting is None else _count_total(waiting.values()),
        "trouble": overview.trouble,
    }


def _describe_source(source: SourceOverview, services: Services, axis: Axis) -> dict[str, Any]:
    ingest = services.ingests.get(source.name, IngestState())
    snapshot = source.snapshot
    backlog = source.backlog
    waiting = {} if backlog is None else backlog.waiting
    return {
        "name": source.name,
        "played": source.played,
        "clock": source.clock // 1000,
        "watermark": _to_millis(snapshot.watermark),
        "ended": snapshot.watermark == INFINITY,
        "arrivals": snapshot.arrivals,
        "events": snapshot.events,
        "arrived": _to_millis(snapshot.arrived_at),
        "silentSince": _to_millis(snapshot.silent_since),
        "newest": _to_millis(snapshot.newest_event),
        "deadLetters": snapshot.dead_letters,
        "bases": list(snapshot.lag_arrivals.items()),
        "unjoined": snapshot.unjoined,
        "atWork": ingest.at_work,
        "refused": ingest.refused,
        "bySensor": ingest.by_sensor,
        "following": None
        if ingest.following is None
        else {
            "runs": ingest.following.runs,
            "assets": list(ingest.following.assets),
            "error": ingest.following.error,
        },
        "kafka": None
        if backlog is None
        else {
            "trouble": backlog.trouble,
            "silent": backlog.is_silent,
            "waiting": [[topic, n, count] for (topic, n), count in sorted(waiting.items())],
            "waited": axis.highest_by_point(source.waited),
        },
    }


def _describe_stream(asset: AssetOverview, overview: Overview, axis: Axis) -> dict[str, Any]:
    definition = asset.definition
    snapshot = asset.snapshot
    runs = asset.runs
    span = asset.span
    points = axis.group_by_point(runs.recent)
    stream_state = overview.services.streams.get(asset.name)
    mark = _to_millis(snapshot.watermark)
    longest = [max(p, key=lambda r: r.seconds, default=None) for p in points]
    return {
        "name": asset.name,
        "source": asset.source.name,
        "follows": definition.rolled_up_name,
        "windows": str(definition.window),
        "lateness": format_duration(definition.allowed_lateness),
        "state": None if stream_state is None else stream_state.state,
        "failures": 0 if stream_state is None else stream_state.failures,
        "error": None if stream_state is None else stream_state.error,
        "restarts": 0 if stream_state is None else stream_state.restarts or 0,
        "keptBy": None if stream_state is None else stream_state.kept_by,
        "watermark": mark,
        "ended": snapshot.watermark == INFINITY,
        "finalBefore": None if mark is None else mark - definition.allowed_lateness // 1000,
        "behind": snapshot.behind,
        "rowsWaiting": snapshot.rows_waiting,
        "unfollowed": snapshot.unfollowed is not None,
        "limitedBy": snapshot.limited_by,
        "runs": sum(runs.ended.values()),
        "lastRun": _to_millis(runs.ended_at),
        "published": snapshot.windows,
        "final": snapshot.final,
        "open": snapshot.open,
        "held": asset.quarantined_count,
        "late": snapshot.late,
        "tooLate": snapshot.too_late,
        "rate": [_count_total(r.rows for r in p) / axis.step if p else None for p in points],
        "seconds": [None if run is None else run.seconds for run in longest],
        "steps": {
            step: [None if run is None else run.steps.get(step, 0) for run in longest]
            for step in ledger.ENDED
        },
        "latency": [_find_longest_latency(p) for p in points],
        "lateShare": [_compute_share(p, "late") for p in points],
        "tooLateShare": [_compute_share(p, "too_late") for p in points],
        "lag": [_lag_at_end(p[0], asset.source) if p else None for p in points],
        "axis": {
            "start": span.start // 1000,
            "end": span.end // 1000,
            "step": span.step // 1000,
            "together": span.together,
        },
        "bars": [[w.end // 1000, w.final, w.ended, w.open, w.quarantined] for w in asset.windows],
        "quarantined": [
            {"start": w.start // 1000, "keys": w.keys, "why": w.why} for w in asset.quarantined
        ],
    }


def _find_longest_latency(runs: Sequence[Run]) -> float | None:
    return max((r.latency for r in runs if r.latency is not None), default=None)


def _lag_at_end(run: Run, source: SourceOverview) -> float | None:
    """Return the lag of a run's watermark when the run ended.

    The lag of a recording is measured against its newest event, and shows how the asset catches up.
    """
    return lag_seconds(source.clock if source.played else run.ended_at, run.watermark)


def _compute_share(runs: Sequence[Run], verdict: str) -> float | None:
    events = _count_total(r.events for r in runs)
    if events:
        return _count_total(getattr(r, verdict) for r in runs) / events
    return None


def _count_total(numbers: Iterable[int]) -> int:
    return sum(numbers)


def _to_millis(instant: int | None) -> int | None:
    if instant is None or instant >= INFINITY or instant <= BEGINNING:
        return None
    return instant // 1000
