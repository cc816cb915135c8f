"""The facts of a run, as text for people and as JSON."""

from dataclasses import asdict
from typing import TYPE_CHECKING

from tidemark.base.instants import format_instant
from tidemark_streaming.cli.console import format_seconds, print_facts
from tidemark_streaming.cli.output import Output

if TYPE_CHECKING:
    from tidemark.store.ledger import RunFacts

_INSTANTS = ("window_from", "window_to", "started_at", "ended_at", "watermark")
"""The facts that are instants."""


def report_run(facts: "RunFacts") -> Output:
    """Return the facts of a run as the result of a command."""
    return Output(to_json(facts), lambda: print_run(facts))


def print_run(facts: "RunFacts") -> None:
    """Print the facts of a run for people."""
    rows: dict[str, object] = {
        "arrivals": f"{facts.from_arrival + 1:,} to {facts.through_arrival:,}",
        "events": f"{facts.events:,}",
        "on time": f"{facts.on_time:,}",
        "late, counted": f"{facts.late:,}",
        "too late": f"{facts.too_late:,}",
        "no event time": f"{facts.no_event_time:,}",
        "duplicates": f"{facts.duplicate:,}",
        "watermark": format_instant(facts.watermark),
        "took": format_seconds(facts.seconds),
    }
    if facts.quarantined:
        rows["quarantined"] = f"{facts.quarantined:,}: `tidemark quarantine list {facts.asset}`"
    if facts.warned:
        rows["published with a warning"] = f"{facts.warned:,}"
    print_facts(rows)


def to_json(run_facts: "RunFacts") -> dict[str, object]:
    """Return a run's facts for JSON, with instants as text."""
    facts = asdict(run_facts)
    for name in _INSTANTS:
        facts[name] = format_instant(facts[name])
    return {**facts, "events": run_facts.events, "seconds": run_facts.seconds}
