"""The data of the live page as JSON. Instants are in milliseconds."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tidemark.base.instants import BEGINNING, INFINITY, describe
from tidemark.store import ledger
from tidemark_streaming.base.extra import PipelineOverview
from tidemark_streaming.findings.polls import SinkOverview
from tidemark_streaming.findings.services import IngestState, Services
from tidemark_streaming.monitor.overview import AssetOverview, Overview, SourceOverview
from tidemark_streaming.snapshot.history import Run, lag
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
    def of(cls, overview: Overview, span: int | None) -> "Axis":
        """Return the axis of a time range.

        Args:
            span: one of `SPANS`. None means the shortest one that is at least twice as long as the
                time since the newest run ended, or the longest one if none is long enough.
        """
        ended = [a.runs.ended_at for a in overview.assets if a.runs.ended_at is not None]
        age = (overview.at - max(ended)) / 1e6 if ended else 0
        chosen = span or next((s for s in SPANS if age <= s / 2), SPANS[-1])
        step, now = chosen // POINTS, overview.at // 1_000_000
        return cls((now // step + 1) * step, step)

    def points(self, runs: Sequence[Run]) -> list[list[Run]]:
        """Return the runs that ended in each span, the newest run first.

        Args:
            runs: in the order of their ends.
        """
        found: list[list[Run]] = [[] for _ in range(POINTS)]
        for run in reversed(runs):
            back = self._back(run.ended_at)
            if back >= POINTS:
                break
            if back >= 0:
                found[POINTS - 1 - back].append(run)
        return found

    def levels(self, known: Sequence[tuple[int, int]]) -> list[int | None]:
        """Return the highest value of a quantity, such as the lag in Kafka, in each span.

        A span without a value has the value of the span before it, for at most `_HELD` seconds;
        after that, None.

        Args:
            known: pairs of an instant, in microseconds, and the value then, in order.
        """
        found: list[int | None] = [None] * POINTS
        first = bisect_left(known, ((self.end - POINTS * self.step) * 1_000_000,))
        for at, level in known[first:]:
            place = POINTS - 1 - self._back(at)
            if place < POINTS:
                found[place] = max(found[place] or 0, level)
        last, left = None, 0
        for place, level in enumerate(found):
            if level is not None:
                last, left = level, _HELD // self.step
            elif left:
                found[place], left = last, left - 1
        return found

    def _back(self, at: int) -> int:
        """Return how many points an instant lies before the last point; negative after `end`."""
        return (self.end * 1_000_000 - at - 1) // (self.step * 1_000_000)


def state(
    overview: Overview, database: str, dagster: int, span: int | None = None
) -> dict[str, Any]:
    """Return the data of the page.

    Args:
        dagster: the port of Dagster's web interface.
        span: one of `SPANS`. The default depends on the end of the newest run.
    """
    axis = Axis.of(overview, span)
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
        "sources": [_source(source, services, axis) for source in overview.sources],
        "streams": [_stream(asset, overview, axis) for asset in overview.assets],
        "sinks": [
            _sink(sink, overview.at, services.sinks.get(sink.asset)) for sink in overview.sinks
        ],
        "pipelines": [
            _pipeline(extra, each)
            for extra, pipelines in overview.pipelines.items()
            for each in pipelines
        ],
    }


def _sink(sink: SinkOverview, at: int, command: StreamState | None) -> dict[str, Any]:
    waits = sink.waits(at)
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


def _pipeline(extra: str, overview: PipelineOverview) -> dict[str, Any]:
    pipeline, waiting = overview.pipeline, overview.waiting
    return {
        "extra": extra,
        "name": pipeline.name,
        "come": list(pipeline.inputs),
        "go": list(pipeline.outputs),
        "state": overview.state,
        "error": overview.error,
        "waiting": None if waiting is None else _sum(waiting.values()),
        "trouble": overview.trouble,
    }


def _source(source: SourceOverview, services: Services, axis: Axis) -> dict[str, Any]:
    ingest = services.ingests.get(source.name, IngestState())
    found, backlog = source.snapshot, source.backlog
    waiting = {} if backlog is None else backlog.waiting
    return {
        "name": source.name,
        "played": source.played,
        "clock": source.clock // 1000,
        "watermark": _millis(found.watermark),
        "ended": found.watermark == INFINITY,
        "arrivals": found.arrivals,
        "events": found.events,
        "arrived": _millis(found.arrived_at),
        "silentSince": _millis(found.silent_since),
        "newest": _millis(found.newest_event),
        "deadLetters": found.dead_letters,
        "bases": list(found.lag_arrivals.items()),
        "unjoined": found.unjoined,
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
            "silent": backlog.silent,
            "waiting": [[topic, n, count] for (topic, n), count in sorted(waiting.items())],
            "waited": axis.levels(source.waited),
        },
    }


def _stream(asset: AssetOverview, overview: Overview, axis: Axis) -> dict[str, Any]:
    definition, found, runs, span = asset.definition, asset.snapshot, asset.runs, asset.span
    points, wanted = axis.points(runs.recent), overview.services.streams.get(asset.name)
    mark = _millis(found.watermark)
    longest = [max(p, key=lambda r: r.seconds, default=None) for p in points]
    return {
        "name": asset.name,
        "source": asset.source.name,
        "follows": definition.follows,
        "windows": str(definition.window),
        "lateness": describe(definition.allowed_lateness),
        "state": None if wanted is None else wanted.state,
        "failures": 0 if wanted is None else wanted.failures,
        "error": None if wanted is None else wanted.error,
        "restarts": 0 if wanted is None else wanted.restarts or 0,
        "keptBy": None if wanted is None else wanted.kept_by,
        "watermark": mark,
        "ended": found.watermark == INFINITY,
        "finalBefore": None if mark is None else mark - definition.allowed_lateness // 1000,
        "behind": found.behind,
        "rowsWaiting": found.rows_waiting,
        "unfollowed": found.unfollowed is not None,
        "limitedBy": found.limited_by,
        "runs": sum(runs.ended.values()),
        "lastRun": _millis(runs.ended_at),
        "published": found.windows,
        "final": found.final,
        "open": found.open,
        "held": asset.quarantined_count,
        "late": found.late,
        "tooLate": found.too_late,
        "rate": [_sum(r.rows for r in p) / axis.step if p else None for p in points],
        "seconds": [None if run is None else run.seconds for run in longest],
        "steps": {
            step: [None if run is None else run.steps.get(step, 0) for run in longest]
            for step in ledger.ENDED
        },
        "latency": [_longest(p) for p in points],
        "lateShare": [_share(p, "late") for p in points],
        "tooLateShare": [_share(p, "too_late") for p in points],
        "lag": [_lag(p[0], asset.source) if p else None for p in points],
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


def _longest(runs: Sequence[Run]) -> float | None:
    return max((r.latency for r in runs if r.latency is not None), default=None)


def _lag(run: Run, source: SourceOverview) -> float | None:
    """Return the lag of a run's watermark when the run ended.

    The lag of a recording is measured against its newest event, and shows how the asset catches up.
    """
    return lag(source.clock if source.played else run.ended_at, run.watermark)


def _share(runs: Sequence[Run], verdict: str) -> float | None:
    events = _sum(r.events for r in runs)
    return _sum(getattr(r, verdict) for r in runs) / events if events else None


def _sum(numbers: Iterable[int]) -> int:
    return sum(numbers)


def _millis(instant: int | None) -> int | None:
    return (
        None if instant is None or instant >= INFINITY or instant <= BEGINNING else instant // 1000
    )
