"""Report a run as OpenTelemetry spans in the traces of the arrivals that it processed."""

from dataclasses import asdict

from tidemark.base import telemetry
from tidemark.base.telemetry import Span, TracedArrival
from tidemark.store import ledger
from tidemark.store.asset import Asset
from tidemark.store.commits.kinds import Following, Increment
from tidemark.store.event_log.log import Log
from tidemark.store.ledger import RunFacts

_TAKES = (Increment().mode, Following().mode)
"""Modes of the runs that process new arrivals. All other runs recompute existing windows."""


def send_span(asset: Asset, facts: RunFacts) -> None:
    """Send the run's span if a trace receiver is configured."""
    if not telemetry.is_enabled() or facts.mode not in _TAKES:
        return
    span = Span(
        f"run {facts.asset}",
        facts.started_at,
        facts.ended_at,
        {
            "asset": facts.asset,
            "run": facts.run,
            "commit_number": facts.commit_number,
            "events": facts.events,
            "windows": facts.windows,
            "quarantined": facts.quarantined,
        },
        [Span(step, start, end) for step, start, end in ledger.spans(asdict(facts))],
    )
    telemetry.report(list_arrivals(asset.log, facts.from_arrival, facts.through_arrival), span)


def list_arrivals(log: Log, after: int, through: int) -> list[TracedArrival]:
    """Return the newest arrivals with `after` < number <= `through` that may be traced."""
    place = log.warehouse.path("")
    found = log.timeline(max(after, through - telemetry.MAX_TRACED_ARRIVALS), through)
    return [TracedArrival(place, log.source.name, a.arrival, a.arrived_at) for a in found]
