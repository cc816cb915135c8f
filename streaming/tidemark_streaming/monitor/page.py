"""The data of the live page as JSON. Instants are in milliseconds."""

from bisect import bisect_left
from collections.abc import Sequence
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
        chosen = span or _choose_span(overview)
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
        last_level = None
        continued_points = 0
        for point, level in enumerate(by_point):
            if level is not None:
                last_level = level
                continued_points = _HELD // self.step
            elif continued_points:
                by_point[point] = last_level
                continued_points -= 1
        return by_point

    def _points_before_end(self, instant: int) -> int:
        """Return how many points an instant lies before the last point; negative after `end`."""
        return (self.end * 1_000_000 - instant - 1) // (self.step * 1_000_000)


def _choose_span(overview: Overview) -> int:
    """Return the shortest time range that is twice as long as the time since the last run."""
    age = 0.0
    ended = [asset.runs.ended_at for asset in overview.assets if asset.runs.ended_at is not None]
    if ended:
        age = (overview.at - max(ended)) / 1e6
    for span in SPANS:
        if age <= span / 2:
            return span
    return SPANS[-1]


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
    sinks = list[dict[str, Any]]()
    for sink in overview.sinks:
        sinks.append(_describe_sink(sink, overview.at, services.sinks.get(sink.asset)))
    pipelines = list[dict[str, Any]]()
    for extra, extra_pipelines in overview.pipelines.items():
        pipelines += [_describe_pipeline(extra, pipeline) for pipeline in extra_pipelines]
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
        "sinks": sinks,
        "pipelines": pipelines,
    }


def _describe_sink(
    sink: SinkOverview, time_micros: int, command: StreamState | None
) -> dict[str, Any]:
    seconds = sink.seconds_behind(time_micros)
    # Whole seconds, so that most requests get the same data.
    whole_seconds = None if seconds is None else float(int(seconds))
    return {
        "asset": sink.asset,
        "topic": sink.topic,
        # The state of `sink --follow`; None if a stream publishes to the sink.
        "state": command and command.state,
        "error": command and command.error,
        "behind": sink.behind,
        "waits": whole_seconds,
        "trouble": sink.trouble,
    }


def _describe_pipeline(extra: str, overview: PipelineOverview) -> dict[str, Any]:
    pipeline = overview.pipeline
    waiting = None if overview.waiting is None else sum(overview.waiting.values())
    return {
        "extra": extra,
        "name": pipeline.name,
        "come": list(pipeline.inputs),
        "go": list(pipeline.outputs),
        "state": overview.state,
        "error": overview.error,
        "waiting": waiting,
        "trouble": overview.trouble,
    }


def _describe_source(source: SourceOverview, services: Services, axis: Axis) -> dict[str, Any]:
    ingest = services.ingests.get(source.name, IngestState())
    snapshot = source.snapshot
    backlog = source.backlog
    followed = ingest.following
    following = None
    if followed is not None:
        following = {
            "runs": followed.runs,
            "assets": list(followed.assets),
            "error": followed.error,
        }
    kafka = None
    if backlog is not None:
        waiting = list[list[Any]]()
        for (topic, partition), count in sorted(backlog.waiting.items()):
            waiting.append([topic, partition, count])
        kafka = {
            "trouble": backlog.trouble,
            "silent": backlog.is_silent,
            "waiting": waiting,
            "waited": axis.highest_by_point(source.waited),
        }
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
        "following": following,
        "kafka": kafka,
    }


def _describe_stream(asset: AssetOverview, overview: Overview, axis: Axis) -> dict[str, Any]:
    definition = asset.definition
    snapshot = asset.snapshot
    runs = asset.runs
    span = asset.span
    mark = _to_millis(snapshot.watermark)
    final_before = None
    if mark is not None:
        final_before = mark - definition.allowed_lateness // 1000
    bars = list[list[int]]()
    for window in asset.windows:
        end = window.end // 1000
        bars.append([end, window.final, window.ended, window.open, window.quarantined])
    quarantined = list[dict[str, Any]]()
    for window in asset.quarantined:
        start = window.start // 1000
        quarantined.append({"start": start, "keys": window.keys, "why": window.why})
    return {
        "name": asset.name,
        "source": asset.source.name,
        "follows": definition.rolled_up_name,
        "windows": str(definition.window),
        "lateness": format_duration(definition.allowed_lateness),
        **_describe_stream_state(overview.services.streams.get(asset.name)),
        "watermark": mark,
        "ended": snapshot.watermark == INFINITY,
        "finalBefore": final_before,
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
        **_describe_runs(asset, axis),
        "axis": {
            "start": span.start // 1000,
            "end": span.end // 1000,
            "step": span.step // 1000,
            "together": span.together,
        },
        "bars": bars,
        "quarantined": quarantined,
    }


def _describe_stream_state(stream: StreamState | None) -> dict[str, Any]:
    """Return the state of an asset's stream, which is None if none should run."""
    if stream is None:
        return {"state": None, "failures": 0, "error": None, "restarts": 0, "keptBy": None}
    return {
        "state": stream.state,
        "failures": stream.failures,
        "error": stream.error,
        "restarts": stream.restarts or 0,
        "keptBy": stream.kept_by,
    }


def _describe_runs(asset: AssetOverview, axis: Axis) -> dict[str, Any]:
    """Return the values of the charts, each as a list with a value or None for each point."""
    rates: list[float | None] = [None] * POINTS
    seconds: list[float | None] = [None] * POINTS
    latencies: list[float | None] = [None] * POINTS
    late_shares: list[float | None] = [None] * POINTS
    too_late_shares: list[float | None] = [None] * POINTS
    lags: list[float | None] = [None] * POINTS
    steps: dict[str, list[float | None]] = {step: [None] * POINTS for step in ledger.ENDED}
    for point, runs in enumerate(axis.group_by_point(asset.runs.recent)):
        if not runs:
            continue
        longest = max(runs, key=lambda run: run.seconds)
        seconds[point] = longest.seconds
        for step in ledger.ENDED:
            steps[step][point] = longest.steps.get(step, 0)
        rates[point] = sum(run.rows for run in runs) / axis.step
        latencies[point] = _find_longest_latency(runs)
        late_shares[point] = _compute_share(runs, "late")
        too_late_shares[point] = _compute_share(runs, "too_late")
        lags[point] = _lag_at_end(runs[0], asset.source)
    return {
        "rate": rates,
        "seconds": seconds,
        "steps": steps,
        "latency": latencies,
        "lateShare": late_shares,
        "tooLateShare": too_late_shares,
        "lag": lags,
    }


def _find_longest_latency(runs: Sequence[Run]) -> float | None:
    latencies = [run.latency for run in runs if run.latency is not None]
    return max(latencies, default=None)


def _lag_at_end(run: Run, source: SourceOverview) -> float | None:
    """Return the lag of a run's watermark when the run ended.

    The lag of a recording is measured against its newest event, and shows how the asset catches up.
    """
    clock = source.clock if source.played else run.ended_at
    return lag_seconds(clock, run.watermark)


def _compute_share(runs: Sequence[Run], lateness: str) -> float | None:
    """Return the share of events with a lateness, which is the name of the attribute of runs."""
    events = sum(run.events for run in runs)
    if not events:
        return None
    return sum(getattr(run, lateness) for run in runs) / events


def _to_millis(instant: int | None) -> int | None:
    if instant is None or instant >= INFINITY or instant <= BEGINNING:
        return None
    return instant // 1000
