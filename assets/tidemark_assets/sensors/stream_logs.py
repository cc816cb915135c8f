"""Log the states of streams that the supervisor sees, and their runs since its last poll.

A stream is a query of the engine, whose own log is text.
"""

from collections.abc import Mapping

from tidemark_streaming.base import logs
from tidemark_streaming.snapshot.snapshot import Snapshot
from tidemark_streaming.streams.supervisor import GIVEN_UP, WAITING, Stream

LoggedRuns = dict[str, tuple[str, int]]
"""The table ID and the number of the last logged run, by asset."""


def log_state(asset: str, stream: Stream) -> None:
    """Log the new state of a stream."""
    log = logs.warn if stream.state in (WAITING, GIVEN_UP) else logs.log
    log(
        f"stream {stream.state}",
        asset=asset,
        query=stream.query,
        failures=stream.failures,
        restarts=stream.restarts,
        error=stream.error,
    )


def log_runs(snapshot: Snapshot, streams: Mapping[str, Stream], seen: LoggedRuns) -> LoggedRuns:
    """Log the runs of streams since the last poll. Return the last logged run of each stream.

    A stream that was stopped since is included. Runs before the first poll of a stream are not
    logged.

    Args:
        seen: the result of the last poll.
    """
    found = LoggedRuns()
    for asset in {**seen, **streams}:
        table_id, before = snapshot.table_id(asset) or "", seen.get(asset)
        commit_number = before[1] if before is not None and before[0] == table_id else -1
        runs = snapshot.runs_after(asset, commit_number)
        for run in runs if before is not None else []:
            logs.log("ran", **logs.of_run(run))
        found[asset] = (table_id, runs[-1]["commit_number"] if runs else commit_number)
    return {asset: found[asset] for asset in streams}
