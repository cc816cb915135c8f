"""A check of each event log and asset. It passes if nothing about it needs attention.

It has the findings that `tidemark status`, the live page and the metrics show. The sensor
`<domain>_reports` reports the check when the findings change, and the page of the asset can run it
at any time. Neither uses the engine.
"""

from collections.abc import Iterable

import dagster as dg

from tidemark_assets.base.cells import as_table, literal
from tidemark_assets.base.names import PLAIN, Names
from tidemark_assets.base.resources import TidemarkResource
from tidemark_assets.checks.page_checks import page_check
from tidemark_streaming.findings.finding import Finding, asset_node, source_node
from tidemark_streaming.findings.home_state import BROKERS_SECONDS, HomeReader
from tidemark_streaming.findings.listing import list_findings
from tidemark_streaming.home.domains import AvailableDomains, Domains

NO_FINDINGS = "no_findings"


def keys_by_node(domains: Domains, names: Names = PLAIN) -> dict[str, dg.AssetKey]:
    """Return the keys of a domain's event logs and assets, by the node that findings name."""
    sources = (ingestion.source for ingestion in domains.ingestions.values())
    logs = {source_node(source.name): names.key(source.log_table) for source in sources}
    tables = {
        asset_node(name): names.key(definition.published_table)
        for name, definition in domains.transforms.items()
    }
    return logs | tables


def findings_checks(domains: Domains, names: Names = PLAIN) -> list[dg.AssetChecksDefinition]:
    """Return the check `no_findings` of each event log and asset of a domain."""
    return [
        _findings_check(domains, node, key, names)
        for node, key in keys_by_node(domains, names).items()
    ]


def _findings_check(
    domains: Domains, node: str, key: dg.AssetKey, names: Names
) -> dg.AssetChecksDefinition:
    def evaluate(tidemark: TidemarkResource) -> dg.AssetCheckEvaluation:
        reader = HomeReader(
            tidemark.settings, AvailableDomains(domains), wait_seconds=BROKERS_SECONDS
        )
        findings = [f for f in list_findings(reader.read()) if f.node == node]
        return evaluate_findings(key, findings)

    description = (
        "Nothing needs attention, as in `tidemark status`. A warning or an error, by the level of "
        "the findings, with their causes and the commands that settle them."
    )
    return page_check(key, names, NO_FINDINGS, description, evaluate)


def evaluate_findings(key: dg.AssetKey, findings: Iterable[Finding]) -> dg.AssetCheckEvaluation:
    """Return the result of the check `no_findings`.

    Args:
        findings: all findings about the event log or the asset with this key.
    """
    listed = [*findings]
    rows = [(f.kind.value, f.level, f.cause, f.remedy) for f in listed]
    has_error = any(f.level == "error" for f in listed)
    return dg.AssetCheckEvaluation(
        asset_key=key,
        check_name=NO_FINDINGS,
        passed=not listed,
        severity=dg.AssetCheckSeverity.ERROR if has_error else dg.AssetCheckSeverity.WARN,
        description=literal(" ".join(map(str, listed))) if listed else "Nothing needs attention.",
        metadata={"findings": as_table(("kind", "level", "cause", "remedy"), rows)} if rows else {},
    )
