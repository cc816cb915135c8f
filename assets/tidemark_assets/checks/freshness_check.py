"""Freshness by event time: a check that the windows are as new as the events that have arrived.

Dagster's own freshness policies measure the wall-clock time since the last materialization. To
such a policy, a recording of last year is fresh, and so is a stream whose watermark does not move.
This check compares event times instead: the newest event of the log with the watermark that the
asset has reached.
"""

import dagster as dg

from tidemark.base.instants import INFINITY, format_duration
from tidemark.define.definition import Definition
from tidemark_assets.base.names import PLAIN, Names
from tidemark_assets.base.resources import TidemarkResource
from tidemark_assets.checks.page_checks import page_check
from tidemark_assets.metadata.run_metadata import as_timestamp

FRESH = "fresh_by_event_time"


def fresh_check(
    transform: Definition, within: int, names: Names = PLAIN
) -> dg.AssetChecksDefinition:
    """Return the check that an asset's page can run. A sensor reports changes of the result.

    Args:
        within: how far the watermark may be behind the newest event, in microseconds.
    """

    key = names.key(transform.published_table)

    def evaluate(tidemark: TidemarkResource) -> dg.AssetCheckEvaluation:
        snapshot = tidemark.snapshot(transform)
        newest = snapshot.read_source(transform.source).newest_event
        watermark = snapshot.read_asset(transform).watermark
        return freshness(key, newest, watermark, within)

    description = (
        f"The watermark of the windows is at most {format_duration(within)} behind the newest "
        "event in "
        "the event log."
    )
    return page_check(key, names, FRESH, description, evaluate)


def freshness(
    key: dg.AssetKey, newest: int | None, watermark: int | None, within: int
) -> dg.AssetCheckEvaluation:
    """Return the result of the check.

    Args:
        newest: the time of the newest event in the event log, in microseconds; None if there are
            no events.
        watermark: the watermark that the asset has reached, in microseconds; None if no run has
            processed the arrivals.
        within: how far the watermark may be behind the newest event, in microseconds.
    """
    if newest is None:
        behind = 0
        description = "No event has arrived yet."
    elif watermark is None:
        behind = within + 1
        description = "No run has processed the arrivals yet."
    else:
        behind = 0 if watermark >= INFINITY else max(0, newest - watermark)
        description = (
            f"{format_duration(behind // 60_000_000 * 60_000_000)} behind the newest event."
        )
    return dg.AssetCheckEvaluation(
        asset_key=key,
        check_name=FRESH,
        passed=behind <= within,
        severity=dg.AssetCheckSeverity.WARN,
        description=description,
        metadata={
            "newest event": as_timestamp(newest),
            "watermark now": as_timestamp(watermark),
            "allowed": format_duration(within),
            "minutes behind": behind // 60_000_000,
        },
    )
