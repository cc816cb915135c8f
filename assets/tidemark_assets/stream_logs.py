"""What the supervisor logs of the streams that it looks after: into which state each has come, and
the runs that it has made since. A stream is a query of the engine, whose log is text."""

from collections.abc import Mapping

from tidemark_streaming import logs
from tidemark_streaming.glance import Glance
from tidemark_streaming.supervisor import GIVEN_UP, WAITING, Stream

Told = dict[str, tuple[str, int]]
"""By asset, the life and the number of the last run that was logged."""


def log_state(asset: str, stream: Stream) -> None:
    """Log the state into which a stream has come."""
    tell = logs.warn if stream.state in (WAITING, GIVEN_UP) else logs.tell
    tell(
        f"stream {stream.state}",
        asset=asset,
        query=stream.query,
        failures=stream.failures,
        restarts=stream.restarts,
        error=stream.error,
    )


def log_runs(glance: Glance, streams: Mapping[str, Stream], told: Told) -> Told:
    """Log the runs of streams since the last look, also of one that was stopped since; what is told
    by now. What ran before a stream was looked at first is no news.

    Args:
        told: what the last look gave.
    """
    found = Told()
    for asset in {**told, **streams}:
        life, before = glance.life(asset) or "", told.get(asset)
        seq = before[1] if before is not None and before[0] == life else -1
        runs = glance.runs_after(asset, seq)
        for run in runs if before is not None else []:
            logs.tell("ran", **logs.of_run(run))
        found[asset] = (life, runs[-1]["seq"] if runs else seq)
    return {asset: found[asset] for asset in streams}
