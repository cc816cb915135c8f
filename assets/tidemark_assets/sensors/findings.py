"""Report what needs attention, as results of the check `no_findings`.

A tick reports the check of an event log or an asset if the kinds of its findings have changed, and
every five minutes while there are findings.
"""

import threading
import time
from typing import Any

import dagster as dg

from tidemark.base.counts import format_count
from tidemark.base.instants import is_wait_over
from tidemark.base.settings import Settings
from tidemark_assets.base.names import PLAIN, Names
from tidemark_assets.checks.findings_check import evaluate_findings, keys_by_node
from tidemark_assets.sensors.frame import REPORT_EVERY, PartResult, SensorPart, Tick
from tidemark_streaming.findings.finding import HOME, Finding
from tidemark_streaming.findings.home_state import BROKERS_SECONDS, HomeReader
from tidemark_streaming.findings.listing import list_findings
from tidemark_streaming.home.domains import AvailableDomains, Domains
from tidemark_streaming.snapshot import tables


def findings_reporter(domain: str, domains: Domains, names: Names = PLAIN) -> SensorPart:
    """Return the reporter of the findings about a domain's event logs and assets."""
    keys = keys_by_node(domains, names)
    reader = _KeptReader(domains)

    def report(tick: Tick) -> PartResult:
        listed = reader.list_findings(tick.tidemark.settings)
        by_node = {node: [f for f in listed if f.node == node] for node in keys}
        memory: dict[str, Any] = tick.memory or {}
        current_time = time.time()
        events = list[dg.AssetCheckEvaluation]()
        for node, findings in by_node.items():
            kinds = [[finding.kind.value, finding.level] for finding in findings]
            before = memory.get(node)
            if before is not None and before["kinds"] == kinds:
                due = bool(kinds) and is_wait_over(REPORT_EVERY, before["at"], current_time)
                if not due:
                    continue
            events.append(evaluate_findings(keys[node], findings))
            memory[node] = {"kinds": kinds, "at": current_time}
        # Findings about the whole home have no asset, so only the message has them.
        listed = [f for f in listed if f.node in keys or f.node == HOME]
        message = " ".join([f"{format_count(len(listed), 'finding')}.", *map(str, listed)])
        return PartResult(message, events, {node: memory[node] for node in by_node})

    return SensorPart(f"{domain}_findings", report)


class _KeptReader:
    """Reads the findings of a domain. It is kept between ticks, which then read only changes."""

    def __init__(self, domains: Domains) -> None:
        self._known = domains
        self._lock = threading.Lock()
        self._readers = dict[tuple[str, str, str], HomeReader]()

    def list_findings(self, settings: Settings) -> tuple[Finding, ...]:
        location = (str(settings.home), str(settings.warehouse), settings.database)
        # The reader is not safe for several threads.
        with self._lock:
            if location not in self._readers:
                self._readers[location] = HomeReader(
                    settings,
                    AvailableDomains(self._known),
                    rest=tables.PAUSE_FACTOR,
                    wait_seconds=BROKERS_SECONDS,
                )
            return list_findings(self._readers[location].read())
