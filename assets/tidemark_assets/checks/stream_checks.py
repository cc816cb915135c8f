"""A check of each asset. It passes if the asset's stream runs, or should not run.

The supervisor reports the check when a stream ends, recovers or is given up. The asset's page can
run the check at any time. The result then comes from the supervisor's last status, without the
engine.
"""

import time

import dagster as dg

from tidemark.define.definition import Definition
from tidemark_assets.base.cells import literal
from tidemark_assets.base.names import PLAIN, Names
from tidemark_assets.base.resources import TidemarkResource
from tidemark_assets.checks.page_checks import page_check
from tidemark_streaming.streams import desired_streams
from tidemark_streaming.streams.supervisor import GIVEN_UP, Stream, read_statuses

KEEPS_RUNNING = "stream_keeps_running"

_NO_STREAM = "No stream should be running."
_NOT_SUPERVISED = "It should be running, but no supervisor is watching it."


def stream_check(transform: Definition, names: Names = PLAIN) -> dg.AssetChecksDefinition:
    """Return the check `stream_keeps_running`, which users can run on the asset's page."""

    def evaluate(tidemark: TidemarkResource) -> dg.AssetCheckEvaluation:
        settings, name = tidemark.settings, transform.name
        stream = read_statuses(settings, time.time_ns() // 1000).get(name)
        wished = desired_streams.find(settings, name) is not None
        return check_stream(names, transform, stream if wished else None, unseen=wished)

    description = (
        "The stream that should run is running. A warning while it waits for its next start after "
        "a failure; an error once the supervisor has given it up."
    )
    return page_check(names.key(transform.table), names, KEEPS_RUNNING, description, evaluate)


def check_stream(
    names: Names, transform: Definition, stream: Stream | None, *, unseen: bool = False
) -> dg.AssetCheckEvaluation:
    """Return the result of the check `stream_keeps_running`.

    Args:
        stream: the stream's status from the supervisor; None if there is none, or if no stream
            should run.
        unseen: true if a stream should run, but has no status.
    """
    passed, description = not unseen, _NOT_SUPERVISED if unseen else _NO_STREAM
    if stream is not None:
        passed = not stream.failures
        description = f"The stream is {stream.state}."
        if stream.failures:
            failures = "1 failure" if stream.failures == 1 else f"{stream.failures} failures"
            description = f"The stream is {stream.state} after {failures} in a row"
            description += f": {literal(stream.error)}" if stream.error else "."
        if stream.state == GIVEN_UP:
            description += f" Fix the cause, then run `tidemark stream {transform.name} --detach`."
    lost = stream is not None and stream.state == GIVEN_UP
    return dg.AssetCheckEvaluation(
        asset_key=names.key(transform.table),
        check_name=KEEPS_RUNNING,
        passed=passed,
        severity=dg.AssetCheckSeverity.ERROR if lost else dg.AssetCheckSeverity.WARN,
        description=description,
        metadata={
            "stream": stream.state if stream is not None else "none",
            "consecutive failures": stream.failures if stream is not None else 0,
            **({"last error": stream.error} if stream is not None and stream.error else {}),
        },
    )
